//! Cancels generations. A streamed text is ended by the task that streams it, because only that
//! task knows what was delivered. Everything else is ended by one statement, whichever process runs
//! it.
//!
//! The task ends the delivery at once, but settles only when the provider's counts are known
//! ([`super::text`]), which may take minutes.

use std::time::Duration;

use tokio::{sync::oneshot, time::Instant};

use super::Runner;
use crate::{
    domain::{
        generation::{Failure, FailureCode, Generation, Modality},
        ids::{AccountId, GenerationId},
    },
    store::{
        StoreError,
        generations::{Outcome, SettledRow, Settlement},
    },
};

/// Maximum wait for the end of a text whose cancel was requested.
const STREAM_WAIT: Duration = Duration::from_secs(10);
/// Interval between reads of the row of another server's text, without a notification.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The failure of a generation that is cancelled before anything was delivered.
pub(super) fn cancelled() -> Failure {
    Failure::new(FailureCode::Cancelled, "the generation was cancelled")
}

impl Runner {
    /// Ends a generation. Returns `false` if it had ended in another way. A text that another
    /// server streams may not have ended when this returns: that server may wait for the provider's
    /// counts, or hang. No other process may end the text, because the delivered part would be
    /// free. If that server is dead, the sweep ends the text.
    pub async fn cancel(&self, generation: &Generation) -> Result<bool, StoreError> {
        if generation.modality == Modality::Text && self.ask_stream(generation).await? {
            return self.stream_cancelled(generation).await;
        }
        // Completes even if the caller disconnects, to cancel the provider's call too.
        let (runner, (done, verdict)) = (self.clone(), oneshot::channel());
        let of = (generation.account_id, generation.id);
        self.spawn(async move {
            let ended = runner.end_anywhere(of, cancelled()).await;
            let row = ended.as_ref().ok().cloned().flatten();
            // The provider may be slow; the caller need not wait for it.
            let _ = done.send(ended);
            if let Some(row) = row {
                let task = row.remote_id.as_deref();
                runner.cancel_task(&row.provider, task).await;
            }
        });
        Ok(verdict.await??.is_some())
    }

    /// Ends a generation, whichever process runs it.
    pub(super) async fn end_anywhere(
        &self,
        of: (AccountId, GenerationId),
        failure: Failure,
    ) -> Result<Option<SettledRow>, StoreError> {
        let attempts = self.handle(of.1).and_then(|handle| handle.attempts());
        let settlement = Settlement {
            instance: None,
            ..self.settlement(of, Outcome::Failed(failure), attempts, None)
        };
        let ended = self.end(&settlement).await?;
        if ended.is_some() {
            self.0.running.abandon(of.1);
        }
        Ok(ended)
    }

    /// Asks the task that streams a text to end it. Returns `false` if there is none.
    async fn ask_stream(&self, generation: &Generation) -> Result<bool, StoreError> {
        let (account, id) = (generation.account_id, generation.id);
        match self.handle(id) {
            Some(handle) if handle.streams() => {
                handle.cancel.cancel();
                Ok(true)
            }
            Some(_) => Ok(false),
            None => self.0.store.request_cancel(account, id).await,
        }
    }

    /// Waits up to [`STREAM_WAIT`] until the task has ended its text. Returns `false` if the text
    /// ended in another way.
    async fn stream_cancelled(&self, generation: &Generation) -> Result<bool, StoreError> {
        let until = Instant::now() + STREAM_WAIT.min(self.0.settings.lease);
        let (account, id) = (generation.account_id, generation.id);
        let waiter = self.waiter(id);
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            let ended = match self.handle(id) {
                Some(handle) => tokio::time::timeout(rest, handle.finished()).await.ok(),
                None => {
                    let _ended = tokio::time::timeout(LOOK_AGAIN.min(rest), waiter.woken()).await;
                    None
                }
            };
            let record = match ended.flatten() {
                Some(record) => Some(record.as_ref().clone()),
                None => self.0.store.generation(account, id).await?,
            };
            match record {
                Some(record) if record.is_cancelled() => return Ok(true),
                Some(record) if !record.status.is_finished() => {
                    if Instant::now() >= until {
                        return Ok(true);
                    }
                }
                // Ended in another way, or deleted since.
                _ => return Ok(false),
            }
        }
    }
}
