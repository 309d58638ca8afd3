//! Speech: submits once, then joins, checks and stores the audio parts.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use super::{
    files::{convert, unusable},
    step::{Run, Step},
    submit::Submission,
};
use crate::{
    media::{MediaKind, mp3_from_parts, wav_from_parts},
    memory,
    providers::{SpeechAnswer, SpeechCall, http::SPEECH_CAP},
    request::SpeechFormat,
};

/// Copies of a file in memory: its parts, and the joined file.
const COPIES: usize = 2;
/// Characters per second at speed 1.0.
const PACE: f64 = 15.0;

/// Estimates the bytes of a file: an MP3 of 128 kbit/s, or a WAV of 24 kHz, 16 bits, mono.
fn expected_bytes(call: &SpeechCall) -> usize {
    let per_second = match call.format {
        SpeechFormat::Mp3 => 16_000,
        SpeechFormat::Wav => 48_000,
    };
    let characters = u32::try_from(call.text.chars().count()).unwrap_or(u32::MAX);
    let length = Duration::try_from_secs_f64(f64::from(characters) / PACE / call.speed);
    let seconds = length.unwrap_or(Duration::MAX).as_secs();
    let bytes = usize::try_from(seconds).unwrap_or(usize::MAX);
    bytes.saturating_mul(per_second).min(SPEECH_CAP)
}

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
        let memory = memory::reservation();
        if let Some(memory) = &memory
            && !memory.try_add_result(COPIES * expected_bytes(call))
        {
            return Step::retry();
        }
        let submit = self.submit(Submission::OfJob, || provider.generate(call));
        match submit.await {
            Ok(answer) => {
                drop(permit);
                if let Some(memory) = &memory {
                    let bytes = COPIES * answer.parts.iter().map(Bytes::len).sum::<usize>();
                    memory.shrink_to(0);
                    memory.add(bytes);
                }
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
