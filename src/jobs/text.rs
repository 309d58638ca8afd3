//! One text generation from hold to settlement, in a task that no caller can stop by going
//! away.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt as _;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::{Handle, Runner, Slot, submit::Submissions};
use crate::{
    domain::{
        generation::{Failure, FailureCode, Generation},
        pricing::TextPrices,
        usage::{TextUsage, TokenCounts},
    },
    providers::{DeltaSink, ProviderError, ProviderErrorKind, TextAnswer, TextCall, TextProvider},
    store::{
        StoreError,
        generations::{Finish, NewGeneration, Opened, Outcome},
    },
};

/// A text generation that is ready to be opened and run.
pub struct TextJob {
    /// The row, with the hold.
    pub new: NewGeneration,
    /// What the provider is asked.
    pub call: TextCall,
    /// The provider.
    pub provider: Arc<dyn TextProvider>,
    /// The price row of the bill.
    pub prices: TextPrices,
    /// Where the pieces go, when they are wanted.
    pub deltas: Option<DeltaSink>,
}

/// What an opening came to: the record with a handle to wait with, or why not.
pub type Started = Result<(Generation, Handle), Opened>;

impl Runner {
    /// Opens a generation and runs it, all in its own task. Answers as soon as the verdict on
    /// the hold is known.
    pub async fn start_text(&self, job: TextJob) -> Result<Started, StoreError> {
        let (verdict, opened) = oneshot::channel();
        let runner = self.clone();
        // Reserved before the row exists: see `Running`.
        let (slot, done) = self.reserve(job.new.id);
        let handle = slot.handle();
        let span = tracing::info_span!("generation", id = %job.new.id);
        self.spawn(
            async move {
                let record = match runner.open(&job.new).await {
                    Ok(Opened::Held) => {
                        slot.opened();
                        job.new.record()
                    }
                    other => {
                        // After an error the row may be there all the same. The slot is given
                        // up here, so the sweep will find it without an owner and end it.
                        drop(slot);
                        let _ = verdict.send(other.map(Err));
                        return;
                    }
                };
                // Whoever asked may be gone; the work goes on.
                let _ = verdict.send(Ok(Ok(record.clone())));
                let work = AssertUnwindSafe(runner.run_text(&job, &slot)).catch_unwind();
                let settled = match work.await {
                    Ok(Some(finish)) => runner.settle(record, finish).await,
                    Ok(None) => runner.ended_elsewhere(&record).await,
                    Err(_panic) => {
                        let message = "the server failed during the call";
                        let failure = Failure::new(FailureCode::Interrupted, message);
                        let finish = runner.finish(&job, Outcome::Failed(failure), None, None);
                        runner.settle(record, finish).await
                    }
                };
                done.send_replace(settled.map(Arc::new));
                drop(slot);
            }
            .instrument(span),
        );
        let verdict = opened.await.unwrap_or_else(|_| {
            Err(StoreError::Corrupt(
                "the task of a generation ended without a verdict".to_owned(),
            ))
        })?;
        Ok(verdict.map(|record| (record, handle)))
    }

    /// Asks the provider. `None`: the generation was ended by a cancel meanwhile.
    async fn run_text(&self, job: &TextJob, slot: &Slot) -> Option<Finish> {
        let mut submissions = Submissions::begin(self.0.submit);
        let result = tokio::select! {
            // An answer that is there is not given up for anything that comes with it.
            biased;
            result = submit(job, &mut submissions, slot) => result,
            () = slot.cancel.cancelled() => return None,
            () = self.0.interrupt.cancelled() => {
                let message = "the server stopped during the call";
                let failure = Failure::new(FailureCode::Interrupted, message);
                let attempts = Some(submissions.made);
                return Some(self.finish(job, Outcome::Failed(failure), attempts, None));
            }
        };
        let (outcome, request_id) = match result {
            Ok(answer) => {
                let request_id = answer.request_id.clone();
                (completed(job, &answer), request_id)
            }
            Err(error) => {
                log_failure(job, &error);
                (Outcome::Failed(failure(&error)), error.request_id)
            }
        };
        Some(self.finish(job, outcome, Some(submissions.made), request_id))
    }

    fn finish(
        &self,
        job: &TextJob,
        outcome: Outcome,
        attempts: Option<u32>,
        provider_request_id: Option<String>,
    ) -> Finish {
        Finish {
            id: job.new.id,
            instance: Some(self.0.instance),
            outcome,
            attempts: attempts.and_then(|n| i32::try_from(n).ok()),
            provider_request_id: provider_request_id.map(|id| storable(&id)),
            now: self.0.clock.now(),
        }
    }

    async fn ended_elsewhere(&self, record: &Generation) -> Option<Generation> {
        let found = self.0.store.generation(record.account_id, record.id).await;
        found.ok().flatten()
    }
}

/// Submits, and again where the provider is known not to have started.
async fn submit(
    job: &TextJob,
    submissions: &mut Submissions,
    slot: &Slot,
) -> Result<TextAnswer, ProviderError> {
    loop {
        submissions.made += 1;
        slot.submitted();
        let error = match job.provider.generate(&job.call, job.deltas.as_ref()).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        match submissions.wait_after(&error) {
            Some(wait) => {
                tracing::info!(provider = %job.new.provider, %error, ?wait, "submitting again");
                tokio::time::sleep(wait).await;
            }
            None => return Err(error),
        }
    }
}

fn completed(job: &TextJob, answer: &TextAnswer) -> Outcome {
    let counts = TokenCounts {
        input: answer.usage.input_tokens,
        output: answer.usage.output_tokens,
        cached_input: answer.usage.cached_input_tokens,
        reasoning: answer.usage.reasoning_tokens,
    };
    let input_bytes = job.call.prompt.len() + job.call.system_prompt.as_deref().map_or(0, str::len);
    let usage = TextUsage::from_counts(counts, input_bytes, answer.text.len());
    let (charged, excess) = job.prices.charge(&usage, job.new.hold);
    if excess > crate::domain::credits::Credits::ZERO {
        tracing::warn!(
            provider = %job.new.provider, model = %job.new.model, %excess, ?usage,
            "the provider counted more than the ceiling; the operator bears the rest"
        );
    }
    Outcome::Completed {
        result: storable(&answer.text),
        usage: serde_json::json!(usage),
        charged,
    }
}

/// Postgres keeps no U+0000.
fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn failure(error: &ProviderError) -> Failure {
    let code = match error.kind {
        ProviderErrorKind::Rejected => FailureCode::ProviderRejected,
        ProviderErrorKind::ContentPolicy => FailureCode::ContentPolicy,
        ProviderErrorKind::Timeout => FailureCode::ProviderTimeout,
        ProviderErrorKind::Overloaded => FailureCode::ProviderOverloaded,
        ProviderErrorKind::Account | ProviderErrorKind::Failed => FailureCode::ProviderError,
    };
    Failure::new(code, error.message.clone())
}

fn log_failure(job: &TextJob, error: &ProviderError) {
    let (provider, model) = (&job.new.provider, &job.new.model);
    if error.kind == ProviderErrorKind::Account {
        tracing::error!(%provider, %model, %error,
            "the provider refuses this server's account: its key, funds or permission");
    } else {
        tracing::warn!(%provider, %model, %error, "a generation failed upstream");
    }
}
