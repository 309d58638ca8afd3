//! Work that is done within one process: from hold to settlement, in a task that no caller can
//! stop by going away.

use std::{panic::AssertUnwindSafe, sync::Arc};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::{Handle, Runner, RunningGuard};
use crate::{
    domain::{
        generation::{Failure, FailureCode, Generation},
        ids::GenerationId,
    },
    providers::{ProviderError, ProviderErrorKind},
    store::{
        StoreError,
        generations::{HoldOutcome, NewGeneration, Outcome, Settlement},
    },
};

/// Something to be done for a generation.
#[async_trait]
pub(super) trait Work: Send + Sync + 'static {
    /// The generation to open first.
    fn new_generation(&self) -> &NewGeneration;

    /// The work itself. After a cancel its end may have been settled already; then what this
    /// answers has no effect.
    async fn run(&self, runner: &Runner, slot: &RunningGuard) -> Settlement;
}

/// What an opening came to: the record with a handle to wait with, or why not.
pub type Started = Result<(Generation, Handle), HoldOutcome>;

impl Runner {
    /// Opens a generation and runs its work, all in one task. Answers as soon as the verdict on
    /// the hold is known.
    pub(super) async fn start(&self, work: impl Work) -> Result<Started, StoreError> {
        let (verdict, opened) = oneshot::channel();
        let runner = self.clone();
        // Reserved before the row exists: see `Running`.
        let new = work.new_generation();
        let (slot, done) = self.0.running.reserve(new.id, new.streamed);
        let handle = slot.handle();
        let span = tracing::info_span!("generation", id = %new.id);
        self.spawn(
            async move {
                let record = match runner.open(work.new_generation()).await {
                    Ok(HoldOutcome::Held) => {
                        slot.opened();
                        work.new_generation().record()
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
                let done_work = AssertUnwindSafe(work.run(&runner, &slot)).catch_unwind();
                let finish = done_work.await.unwrap_or_else(|_panic| {
                    let message = "the server failed during the call";
                    let failure = Failure::new(FailureCode::Interrupted, message);
                    let attempts = slot.handle().attempts();
                    let attempts = attempts.and_then(|n| u32::try_from(n).ok());
                    runner.finish(record.id, Outcome::Failed(failure), attempts, None)
                });
                let settled = runner.settle(record, finish).await;
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

    /// The end of this process's generation.
    pub(super) fn finish(
        &self,
        id: GenerationId,
        outcome: Outcome,
        attempts: Option<u32>,
        provider_request_id: Option<String>,
    ) -> Settlement {
        Settlement {
            id,
            instance: Some(self.0.instance),
            outcome,
            attempts: attempts.and_then(|n| i32::try_from(n).ok()),
            provider_request_id: provider_request_id.map(|id| storable(&id)),
            now: self.0.clock.now(),
        }
    }
}

/// Postgres keeps no U+0000.
pub(super) fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// What a provider's error is to its generation.
pub(super) fn failure(error: &ProviderError) -> Failure {
    let code = match error.kind {
        ProviderErrorKind::Rejected => FailureCode::ProviderRejected,
        ProviderErrorKind::ContentPolicy => FailureCode::ContentPolicy,
        ProviderErrorKind::Timeout => FailureCode::ProviderTimeout,
        ProviderErrorKind::Overloaded => FailureCode::ProviderOverloaded,
        ProviderErrorKind::Account | ProviderErrorKind::Failed => FailureCode::ProviderError,
    };
    Failure::new(code, error.message.clone())
}

/// Logs a provider's error once, where its generation ends. The adapter has logged a refused
/// account.
pub(super) fn log_failure(provider: &str, model: &str, error: &ProviderError) {
    if error.kind != ProviderErrorKind::Account {
        tracing::warn!(provider, model, %error, "a generation failed upstream");
    }
}
