//! Cancels. A streamed text is ended by the task that streams it, which alone knows what was
//! delivered; everything else by one statement, whichever process runs it.

use std::time::Duration;

use tokio::{sync::oneshot, time::Instant};

use super::{RunError, Runner};
use crate::{
    domain::{
        generation::{Failure, FailureCode, Generation, Modality},
        ids::GenerationId,
    },
    store::{
        StoreError,
        generations::{Outcome, Settlement},
    },
};

/// Maximum wait for the task that streams a text. It normally ends within a moment; otherwise its
/// server hangs or has no database.
const STREAM_WAIT: Duration = Duration::from_secs(10);
/// Between two polls of a text that another server streams.
const STREAM_POLL: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancel {
    /// Ended by this cancel, or a concurrent one.
    Done,
    /// Ended otherwise.
    AlreadyFinished,
    /// The server that streams the text was asked, and has not ended it yet. No other process may:
    /// what was delivered would be free. If that server is dead, the sweep ends the text.
    Requested,
}

/// The failure of a generation that is cancelled before anything was delivered.
pub(super) fn cancelled() -> Failure {
    Failure::new(FailureCode::Cancelled, "the generation was cancelled")
}

impl Runner {
    pub async fn cancel(&self, generation: &Generation) -> Result<Cancel, RunError> {
        if generation.modality == Modality::Text && self.ask_stream(generation.id).await? {
            return Ok(self.stream_cancelled(generation).await?);
        }
        // Runs to its end even if the caller disconnects, so that the provider's call is cancelled
        // too.
        let (runner, id, (done, verdict)) = (self.clone(), generation.id, oneshot::channel());
        self.spawn(async move {
            let ended = runner.end_cancelled(id).await;
            let cancelled = matches!(ended, Ok(true));
            // The provider may be slow; the caller need not wait for it.
            let _ = done.send(ended);
            if cancelled {
                runner.cancel_upstream(id).await;
            }
        });
        Ok(if verdict.await?? {
            Cancel::Done
        } else {
            Cancel::AlreadyFinished
        })
    }

    async fn end_cancelled(&self, id: GenerationId) -> Result<bool, StoreError> {
        let attempts = self.handle(id).and_then(|handle| handle.attempts());
        let settlement = Settlement {
            instance: None,
            ..self.settlement(id, Outcome::Failed(cancelled()), attempts, None)
        };
        let ended = self.end(&settlement).await?.is_some();
        if ended {
            self.0.running.cancel(id);
        }
        Ok(ended)
    }

    /// Asks the task that streams a text to end it. `false`: there is none.
    async fn ask_stream(&self, id: GenerationId) -> Result<bool, StoreError> {
        match self.handle(id) {
            Some(handle) if handle.streams() => {
                handle.cancel.cancel();
                Ok(true)
            }
            Some(_) => Ok(false),
            None => self.0.store.request_cancel(id).await,
        }
    }

    /// Waits until the task has ended its text.
    async fn stream_cancelled(&self, generation: &Generation) -> Result<Cancel, StoreError> {
        let until = Instant::now() + STREAM_WAIT.min(self.0.lease);
        loop {
            let (handle, rest) = (
                self.handle(generation.id),
                until.saturating_duration_since(Instant::now()),
            );
            let ended = match handle {
                Some(handle) => tokio::time::timeout(rest, handle.finished()).await.ok(),
                None => {
                    tokio::time::sleep(STREAM_POLL.min(rest)).await;
                    None
                }
            };
            let record = match ended.flatten() {
                Some(record) => Some(record.as_ref().clone()),
                None => {
                    let reading = self
                        .0
                        .store
                        .generation(generation.account_id, generation.id);
                    reading.await?
                }
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

    /// Whether any text is streamed here, which a cancel on another server may concern.
    pub fn streams(&self) -> bool {
        self.0.running.any_streams()
    }

    /// Ends texts that are streamed here and were cancelled on another server.
    pub async fn cancel_requested(&self) -> Result<(), StoreError> {
        let ids = self.0.store.requested_cancels(self.0.instance).await?;
        for id in ids {
            self.0.running.cancel(id);
        }
        Ok(())
    }
}
