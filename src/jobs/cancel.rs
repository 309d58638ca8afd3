//! Cancels. A streamed text is ended by the task that streams it, which alone knows what was
//! delivered; everything else by one statement, whichever process runs it.
//!
//! The task ends the delivery at once, but the text only when the provider's counts are known
//! ([`super::text`]), which may take minutes.

use std::time::Duration;

use tokio::{sync::oneshot, time::Instant};

use super::{RunError, Runner};
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
/// Interval at which the row of a text that another server streams is read without a notice.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancel {
    /// Ended by this cancel, or a concurrent one.
    Done,
    /// Finished otherwise.
    AlreadyFinished,
    /// The server that streams the text was asked, and has not ended it yet: it waits for the
    /// provider's counts, or hangs. No other process may end it: what was delivered would be free.
    /// If that server is dead, the sweep ends the text.
    Requested,
}

/// The failure of a generation that is cancelled before anything was delivered.
pub(super) fn cancelled() -> Failure {
    Failure::new(FailureCode::Cancelled, "the generation was cancelled")
}

impl Runner {
    pub async fn cancel(&self, generation: &Generation) -> Result<Cancel, RunError> {
        if generation.modality == Modality::Text && self.ask_stream(generation).await? {
            return Ok(self.stream_cancelled(generation).await?);
        }
        // Runs to its end even if the caller disconnects, so that the provider's call is cancelled
        // too.
        let (runner, (done, verdict)) = (self.clone(), oneshot::channel());
        let of = (generation.account_id, generation.id);
        self.spawn(async move {
            let ended = runner.end_cancelled(of).await;
            let row = ended.as_ref().ok().cloned().flatten();
            // The provider may be slow; the caller need not wait for it.
            let _ = done.send(ended);
            if let Some(row) = row {
                let task = row.remote_id.as_deref();
                runner.cancel_task(&row.provider, task).await;
            }
        });
        Ok(match verdict.await?? {
            Some(_) => Cancel::Done,
            None => Cancel::AlreadyFinished,
        })
    }

    async fn end_cancelled(
        &self,
        of: (AccountId, GenerationId),
    ) -> Result<Option<SettledRow>, StoreError> {
        let attempts = self.handle(of.1).and_then(|handle| handle.attempts());
        let settlement = Settlement {
            instance: None,
            ..self.settlement(of, Outcome::Failed(cancelled()), attempts, None)
        };
        let ended = self.end(&settlement).await?;
        if ended.is_some() {
            self.0.running.abandon(of.1);
        }
        Ok(ended)
    }

    /// Asks the task that streams a text to end it. `false`: there is none.
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

    /// Waits until the task has ended its text.
    async fn stream_cancelled(&self, generation: &Generation) -> Result<Cancel, StoreError> {
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
                Some(record) if record.is_cancelled() => return Ok(Cancel::Done),
                Some(record) if !record.status.is_finished() => {
                    if Instant::now() >= until {
                        return Ok(Cancel::Requested);
                    }
                }
                // Ended otherwise, or deleted since.
                _ => return Ok(Cancel::AlreadyFinished),
            }
        }
    }
}
