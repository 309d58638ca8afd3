//! Lookups of generations, waits for their end, cancels and deletions.

use std::{sync::Arc, time::Duration};

use tokio::time::{self, Instant, sleep};
use uuid::Uuid;

use super::{Result, Service, ServiceError, WaitPlace, auth::Caller, generate::Submitted, reserve};
use crate::{
    dialect::Answer,
    domain::{
        ability::Ability,
        generation::{Generation, Modality, Status},
        ids::GenerationId,
    },
};

/// Maximum interval between reads of the row of a generation that another process runs.
const MAX_POLL: Duration = Duration::from_secs(5);
/// Minimum interval, for a text or an image, whose end is notified only if it is a job. The
/// interval grows with the wait.
const MIN_POLL: Duration = Duration::from_millis(250);
/// Pause of a persistent wait while the database is unavailable.
const DATABASE_RETRY: Duration = Duration::from_secs(1);

/// Memory for reading a stored answer: 4 MiB as text, and its parsed form.
const ANSWER_BYTES: usize = 12 << 20;

/// Longer than any generation that a caller waits for.
const LONGEST: Duration = Duration::from_hours(6);

impl Service {
    pub async fn generation(&self, caller: &Caller, id: GenerationId) -> Result<Generation> {
        let found = self.0.store.generation(caller.account_id, id).await?;
        found.ok_or(ServiceError::NotFound)
    }

    /// Passes the answers of these generations of the caller's account to `read`, one by one.
    pub async fn each_answer(
        &self,
        caller: &Caller,
        ids: &[Uuid],
        read: impl FnMut(GenerationId, Answer) + Send,
    ) -> Result<()> {
        let permit = self.0.answers.acquire(caller.account_id).await;
        let _permit = permit.ok_or(ServiceError::Overloaded)?;
        let _reserved = reserve(ANSWER_BYTES)?;
        let store = &self.0.store;
        Ok(store.each_answer(caller.account_id, ids, read).await?)
    }

    /// Returns a generation of any account, for operators; of a deleted one, its remaining fields.
    pub async fn any_generation(&self, id: GenerationId) -> Result<Generation> {
        let (store, account) = (&self.0.store, self.account_of(id).await?);
        let found = store.generation_including_deleted(account, id).await?;
        found.ok_or(ServiceError::NotFound)
    }

    /// Returns a generation of the caller's account once it has ended, or its current state after
    /// `timeout`, or at once if too many requests wait or the server stops; and whether it could
    /// wait. Calls `on_wait` before it waits.
    pub async fn generation_within(
        &self,
        caller: &Caller,
        id: GenerationId,
        timeout: Duration,
        on_wait: impl Fn() + Send,
    ) -> Result<(Generation, bool)> {
        self.wait(caller, id, timeout, None, || false, on_wait)
            .await
    }

    /// Returns the current record of a request's generation.
    pub async fn record_of(
        &self,
        caller: &Caller,
        submitted: Submitted,
    ) -> Result<(Submitted, Generation)> {
        let record = match &submitted {
            Submitted::New(record, _) | Submitted::Queued(record, _) => record.as_ref().clone(),
            Submitted::Replay(id) | Submitted::Joined(id) => self.generation(caller, *id).await?,
        };
        Ok((submitted, record))
    }

    /// Waits until the generation of a request has ended. If it does not, because the server stops
    /// or too many requests wait, the error names the generation. `is_persistent`: whether the status
    /// of the response has been sent, after which only the end, or a stop of the server, ends the
    /// wait. `on_wait` is called before it waits.
    pub async fn wait_for_end(
        &self,
        caller: &Caller,
        submitted: Submitted,
        is_persistent: impl Fn() -> bool + Send + Sync,
        on_wait: impl Fn() + Send,
    ) -> Result<Generation> {
        let is_replay = matches!(submitted, Submitted::Replay(_));
        let is_new = matches!(submitted, Submitted::New(..));
        let (id, timeout, place) = match submitted {
            Submitted::New(record, handle) => {
                on_wait();
                tokio::select! {
                    biased;
                    ended = handle.finished() => if let Some(ended) = ended {
                        return Ok(Arc::unwrap_or_clone(ended));
                    },
                    () = self.0.runner.given_up() => {
                        return Err(ServiceError::StoppedWaiting(record));
                    }
                }
                // Its task ended without a record; the database has it, unless it refused it.
                (record.id, Duration::ZERO, None)
            }
            Submitted::Queued(record, place) => (record.id, LONGEST, place),
            Submitted::Replay(id) => (id, self.0.settings.idempotency_wait, None),
            Submitted::Joined(id) => (id, LONGEST, None),
        };
        let waiting = self.wait(caller, id, timeout, place, &is_persistent, on_wait);
        let (generation, _) = match waiting.await {
            Err(ServiceError::NotFound) if is_persistent() || !is_replay => {
                return self.remains(caller, id).await;
            }
            found => found?,
        };
        let generation = Box::new(generation);
        Err(if generation.status.is_finished() {
            return Ok(*generation);
        } else if self.is_draining() {
            ServiceError::StoppedWaiting(generation)
        } else if is_replay {
            ServiceError::IdempotencyInProgress
        } else if is_new {
            ServiceError::Internal("a task ended without settling its generation".to_owned())
        } else {
            ServiceError::TooManyWait(generation)
        })
    }

    /// Returns a failed generation that was deleted; an error for a completed one.
    pub async fn remains(&self, caller: &Caller, id: GenerationId) -> Result<Generation> {
        let store = &self.0.store;
        let found = store.generation_including_deleted(caller.account_id, id);
        match found.await? {
            Some(remains) if remains.status == Status::Failed => Ok(remains),
            Some(_) => Err(ServiceError::Deleted),
            None => Err(ServiceError::Lost),
        }
    }

    /// `place`: the permit to wait, if it was taken before. As soon as `is_persistent`, it waits also
    /// without one, beyond the timeout, and while the database is unavailable. Returns whether the
    /// wait lasted until the end or the timeout.
    async fn wait(
        &self,
        caller: &Caller,
        id: GenerationId,
        timeout: Duration,
        mut place: Option<WaitPlace>,
        is_persistent: impl Fn() -> bool + Send,
        on_wait: impl Fn() + Send,
    ) -> Result<(Generation, bool)> {
        let begun = Instant::now();
        let (waiter, stopping) = (self.0.runner.waiter(id), self.0.runner.stopping());
        let mut has_waited = false;
        loop {
            // Get the handle first, so that a generation that ends in between is seen as ended.
            let handle = self.0.runner.handle(id);
            let generation = match self.generation(caller, id).await {
                Err(ServiceError::Store(_))
                    if is_persistent() && (handle.is_some() || !stopping.is_cancelled()) =>
                {
                    sleep(DATABASE_RETRY).await;
                    continue;
                }
                found => found?,
            };
            let persistent = is_persistent();
            let longest = if persistent { LONGEST } else { timeout };
            let rest = longest.saturating_sub(begun.elapsed());
            if generation.status.is_finished() || rest.is_zero() {
                return Ok((generation, true));
            }
            if place.is_none() {
                place = self.0.waits.try_acquire(caller.account_id);
            }
            let may_wait = persistent || place.is_some();
            // A persistent wait continues while this process still works on the generation.
            let is_stopping = stopping.is_cancelled() && (!persistent || handle.is_none());
            if !may_wait || is_stopping {
                return Ok((generation, false));
            }
            if !has_waited {
                has_waited = true;
                on_wait();
            }
            let is_local = handle.is_some();
            let ended = async {
                match handle {
                    Some(handle) => handle.finished().await,
                    None => {
                        waiter.woken().await;
                        None
                    }
                }
            };
            let pause = match generation.modality {
                _ if is_local => rest,
                Modality::Text | Modality::Image => (begun.elapsed() / 8).clamp(MIN_POLL, MAX_POLL),
                Modality::Video | Modality::Audio => MAX_POLL,
            };
            let ended = time::timeout(rest.min(pause), ended);
            let ended = if is_local && persistent {
                Some(ended.await)
            } else {
                stopping.run_until_cancelled(ended).await
            };
            if let Some(Ok(Some(record))) = ended {
                return Ok((Arc::unwrap_or_clone(record), true));
            }
        }
    }

    /// A generation that the caller may cancel or delete.
    pub async fn changeable_generation(
        &self,
        caller: &Caller,
        id: GenerationId,
    ) -> Result<Generation> {
        let found = self.generation(caller, id).await?;
        caller.require(Ability::to_generate(found.modality))?;
        Ok(found)
    }

    /// Ends an unfinished generation, without a charge unless some of its text was delivered. A text
    /// whose response is read to its end for the token counts, or that another server streams, may
    /// still be unfinished when this returns.
    pub async fn cancel(&self, caller: &Caller, id: GenerationId) -> Result<Generation> {
        let found = self.changeable_generation(caller, id).await?;
        if found.status.is_finished() {
            return Err(ServiceError::AlreadyFinished);
        }
        self.require_running()?;
        if !self.0.runner.cancel(&found).await? {
            return Err(ServiceError::AlreadyFinished);
        }
        self.generation(caller, id).await
    }

    /// Permanently removes the prompt and the result of a finished generation.
    pub async fn delete(&self, caller: &Caller, id: GenerationId) -> Result<()> {
        let found = self.changeable_generation(caller, id).await?;
        self.require_running()?;
        let (store, now) = (&self.0.store, self.0.clock.now());
        let deleting = store.delete_generation(caller.account_id, id, now);
        if deleting.await? {
            if found.modality != Modality::Text {
                // Links to its files must be invalid when the response is sent.
                self.0.runner.remove_files(id).await;
            }
            return Ok(());
        }
        // Not finished, or deleted by a parallel request.
        self.generation(caller, id).await?;
        Err(ServiceError::NotFinished)
    }
}
