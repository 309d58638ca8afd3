//! Speech: one submission; its sound is joined, checked and stored.

use serde_json::json;

use super::{
    Runner, RunningGuard, files::unusable, running::Stopped, step::Step, submit::Submissions,
};
use crate::{
    domain::{
        credits::Credits,
        generation::{Failure, FailureCode},
    },
    media::{MediaKind, mp3_from_parts, wav_from_parts},
    providers::{SpeechAnswer, SpeechCall, SpeechFormat},
    store::{generations::Outcome, jobs::Job},
};

impl Runner {
    /// Submits and stores. A row whose intent is stored already belongs to a call that was
    /// cut off: it is never submitted again.
    pub(super) async fn speech_step(&self, job: &Job, slot: &RunningGuard) -> Step {
        if job.submitted_at.is_some() {
            return Step::interrupted();
        }
        let (Some(provider), Some(call)) = (self.0.providers.speech.get(&job.provider), call(job))
        else {
            let message = "the provider is no longer on this server";
            return Step::failed(Failure::new(FailureCode::ProviderError, message));
        };
        let Some(seat) = self.0.providers.try_acquire(&job.provider) else {
            return Step::again();
        };
        let mut submissions = Submissions::begin(self.0.submit);
        loop {
            if !self.intend(job, slot, submissions.made).await {
                return Step::LeaseLost;
            }
            submissions.made += 1;
            let error = match self.unless_stopped(slot, provider.generate(&call)).await {
                Ok(Ok(answer)) => {
                    drop(seat);
                    return self.keep_speech(job, &call, answer).await;
                }
                Ok(Err(error)) => error,
                Err(Stopped::Cancelled) => return Step::LeaseLost,
                Err(Stopped::Interrupted) => return Step::interrupted(),
            };
            let Some(wait) = submissions.wait_after(&error) else {
                return Step::upstream(job, error);
            };
            match self.unless_stopped(slot, tokio::time::sleep(wait)).await {
                Ok(()) => {}
                Err(Stopped::Cancelled) => return Step::LeaseLost,
                Err(Stopped::Interrupted) => return Step::interrupted(),
            }
        }
    }

    /// Stores the intent to submit, before the call. `false`: the job is not to be submitted.
    pub(super) async fn intend(&self, job: &Job, slot: &RunningGuard, made: u32) -> bool {
        if self.0.interrupt.is_cancelled() {
            return false;
        }
        let attempts = job.attempts + i32::try_from(made).unwrap_or(i32::MAX);
        slot.submitted();
        let (store, now) = (&self.0.store, self.0.clock.now());
        let intent = store.intend_submission(job.id, self.0.instance, attempts, now);
        match intent.await {
            Ok(still_ours) => still_ours,
            Err(error) => {
                // Whether it was stored is unknown; the sweep reads the row.
                tracing::warn!(generation = %job.id, %error, "an intent could not be stored");
                false
            }
        }
    }

    async fn keep_speech(&self, job: &Job, call: &SpeechCall, answer: SpeechAnswer) -> Step {
        let format = call.format;
        let kind = match format {
            SpeechFormat::Mp3 => MediaKind::Mp3,
            SpeechFormat::Wav => MediaKind::Wav,
        };
        let joined = self.convert(move || match format {
            SpeechFormat::Mp3 => mp3_from_parts(&answer.parts),
            SpeechFormat::Wav => wav_from_parts(&answer.parts),
        });
        let kept = match joined.await {
            Ok(sound) => self.keep(job.id, 0, kind, sound).await,
            Err(error) => Err(unusable(job.id, &error)),
        };
        match kept {
            Ok(output) => Step::Finished {
                outcome: Box::new(Outcome::Completed {
                    result: None,
                    outputs: vec![output],
                    usage: json!({ "characters": job.prompt.chars().count() }),
                    // The price is known before; it is what was held.
                    charged: Credits::from_micros(job.estimated),
                    finish_reason: None,
                }),
                request_id: answer.request_id,
            },
            Err(failure) => Step::failed(failure),
        }
    }
}

/// What the row asks of the provider.
fn call(job: &Job) -> Option<SpeechCall> {
    let parameters = &job.parameters;
    Some(SpeechCall {
        model: job.model.clone(),
        text: job.prompt.clone(),
        voice: parameters["voice"].as_str()?.to_owned(),
        speed: parameters["speed"].as_f64()?,
        format: match parameters["format"].as_str()? {
            "wav" => SpeechFormat::Wav,
            _ => SpeechFormat::Mp3,
        },
    })
}
