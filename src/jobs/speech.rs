//! Speech: submits once, then joins, checks and stores the audio parts.

use serde_json::json;

use super::{
    files::{convert, unusable},
    step::{Run, Step},
    submit::Submission,
};
use crate::{
    media::{MediaKind, mp3_from_parts, wav_from_parts},
    providers::{SpeechAnswer, SpeechCall},
    request::SpeechFormat,
};

impl Run<'_> {
    /// Takes the step of a speech job. A job with a stored intent belongs to an interrupted call
    /// and is never submitted again.
    pub(super) async fn speech_step(&self, call: &SpeechCall) -> Step {
        let job = self.job;
        if job.submitted_at.is_some() {
            return Step::interrupted();
        }
        let Some(provider) = self.0.providers.speech.get(&job.provider) else {
            return Step::no_provider(job);
        };
        let permit = match self.job_permit().await {
            Ok(permit) => permit,
            Err(step) => return step,
        };
        let submit = self.submit(Submission::OfJob, || provider.generate(call));
        match submit.await {
            Ok(answer) => {
                drop(permit);
                self.store_speech(call, answer).await
            }
            Err(step) => step,
        }
    }

    async fn store_speech(&self, call: &SpeechCall, answer: SpeechAnswer) -> Step {
        let job = self.job;
        let format = call.format;
        let kind = match format {
            SpeechFormat::Mp3 => MediaKind::Mp3,
            SpeechFormat::Wav => MediaKind::Wav,
        };
        let joined = convert(move || match format {
            SpeechFormat::Mp3 => mp3_from_parts(&answer.parts),
            SpeechFormat::Wav => wav_from_parts(&answer.parts),
        });
        let stored = match joined.await {
            Ok(sound) => self.store_file(job.id, 0, kind, sound).await,
            Err(error) => Err(unusable(job.id, &error)),
        };
        match stored {
            Ok(output) => {
                let usage = json!({ "characters": call.characters() });
                Step::stored(job, output, usage, answer.request_id)
            }
            Err(failure) => Step::failed(failure),
        }
    }
}
