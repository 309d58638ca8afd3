//! Finding generations, waiting for them, cancelling and deleting them.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::{Service, ServiceError, WaitPlace, auth::Caller};
use crate::{
    domain::{
        ability::Ability,
        dialect::Answer,
        generation::{Generation, Modality},
        ids::GenerationId,
        page::{Page, PageRequest},
    },
    jobs::{Cancel, Handle},
    store::history::HistoryFilter,
};

/// When the database is asked again about a generation that another process runs, at the latest.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How soon about a text or an image, which tells nobody of its end unless it is a job. The longer
/// it takes, the less a moment matters.
const LOOK_AGAIN_SOON: Duration = Duration::from_millis(250);

/// Longer than any generation runs that somebody waits for.
const LONGEST: Duration = Duration::from_hours(6);

/// The ability that making, cancelling and deleting a generation of this type needs.
pub const fn ability_of(modality: Modality) -> Ability {
    match modality {
        Modality::Text => Ability::GenerateText,
        Modality::Image => Ability::GenerateImage,
        Modality::Video => Ability::GenerateVideo,
        Modality::Audio => Ability::GenerateAudio,
    }
}

/// A generation that was waited for.
#[derive(Debug)]
pub struct Found {
    /// As it is now.
    pub generation: Generation,
    /// Whether the wait was as long as was asked for: until the end, or the whole time. Not where
    /// too many wait already, or a stop cut it short.
    pub waited: bool,
}

impl Found {
    const fn waited(generation: Generation) -> Self {
        Self {
            generation,
            waited: true,
        }
    }
}

impl Service {
    /// One generation of the caller's account.
    pub async fn generation(
        &self,
        caller: &Caller,
        id: GenerationId,
    ) -> Result<Generation, ServiceError> {
        let found = self.0.store.generation(caller.account_id, id).await?;
        found.ok_or(ServiceError::NotFound)
    }

    /// Passes the answers of these generations of the caller's account to `read`, one at a time.
    pub async fn each_answer(
        &self,
        caller: &Caller,
        ids: &[Uuid],
        read: impl FnMut(GenerationId, Answer) + Send,
    ) -> Result<(), ServiceError> {
        let permit = self.0.answers.acquire(caller.account_id).await;
        let _permit = permit.ok_or(ServiceError::Overloaded)?;
        let store = &self.0.store;
        Ok(store.each_answer(caller.account_id, ids, read).await?)
    }

    /// One generation of the caller's account, or what is left of it if it was deleted.
    pub async fn generation_or_remains(
        &self,
        caller: &Caller,
        id: GenerationId,
    ) -> Result<Generation, ServiceError> {
        let store = &self.0.store;
        let found = store.generation_including_deleted(caller.account_id, id);
        found.await?.ok_or(ServiceError::NotFound)
    }

    /// One generation of any account, or what is left of a deleted one: for the operator.
    pub async fn any_generation(&self, id: GenerationId) -> Result<Generation, ServiceError> {
        let (store, account) = (&self.0.store, self.account_of(id).await?);
        let found = store.generation_including_deleted(account, id).await?;
        found.ok_or(ServiceError::NotFound)
    }

    /// The same, waiting at most `wait` until it is finished; then as it is. `waiting` is called
    /// before it waits. Where too many wait already, and once the server stops, it is answered at
    /// once.
    pub async fn generation_within(
        &self,
        caller: &Caller,
        id: GenerationId,
        wait: Duration,
        waiting: impl FnOnce() + Send,
    ) -> Result<Found, ServiceError> {
        self.generation_from(caller, id, wait, None, waiting).await
    }

    /// As [`Self::generation_within`], with a place to wait that may have been taken before.
    async fn generation_from(
        &self,
        caller: &Caller,
        id: GenerationId,
        wait: Duration,
        mut place: Option<WaitPlace>,
        waiting: impl FnOnce() + Send,
    ) -> Result<Found, ServiceError> {
        let begun = Instant::now();
        let until = begun + wait;
        let mut waiting = Some(waiting);
        let waiter = self.0.runner.waiter(id);
        loop {
            // The handle first: a generation that ends between the two is then seen as ended.
            let handle = self.0.runner.handle(id);
            let generation = self.generation(caller, id).await?;
            let rest = until.saturating_duration_since(Instant::now());
            if generation.status.is_finished() || rest.is_zero() {
                return Ok(Found::waited(generation));
            }
            if let Some(waiting) = waiting.take() {
                place = place.or_else(|| self.0.waits.try_acquire(caller.account_id));
                if place.is_some() {
                    waiting();
                }
            }
            let stopping = self.0.runner.stopping();
            if place.is_none() || stopping.is_cancelled() {
                return Ok(Found {
                    generation,
                    waited: false,
                });
            }
            match handle {
                Some(handle) => {
                    let finished = tokio::time::timeout(rest, handle.finished());
                    let finished = stopping.run_until_cancelled(finished).await;
                    if let Some(Ok(Some(record))) = finished {
                        return Ok(Found::waited(record.as_ref().clone()));
                    }
                }
                None => {
                    let pause = match generation.modality {
                        Modality::Text | Modality::Image => {
                            (begun.elapsed() / 8).clamp(LOOK_AGAIN_SOON, LOOK_AGAIN)
                        }
                        Modality::Video | Modality::Audio => LOOK_AGAIN,
                    };
                    let ended = tokio::time::timeout(rest.min(pause), waiter.woken());
                    let _stopped = stopping.run_until_cancelled(ended).await;
                }
            }
        }
    }

    /// The handle of a generation that runs in this process.
    pub fn running(&self, id: GenerationId) -> Option<Handle> {
        self.0.runner.handle(id)
    }

    /// What an idempotency key made, waiting for its end as the first request does; unfinished
    /// only where the server stops. `waiting` is called before it waits.
    pub async fn replay(
        &self,
        caller: &Caller,
        id: GenerationId,
        waiting: impl FnOnce() + Send,
    ) -> Result<Generation, ServiceError> {
        let wait = self.0.settings.idempotency_wait;
        let found = self.generation_within(caller, id, wait, waiting).await?;
        let found = found.generation;
        if found.status.is_finished() || self.is_draining() {
            Ok(found)
        } else {
            Err(ServiceError::IdempotencyInProgress)
        }
    }

    /// Waits for the end of a generation as its first request does. An error names the generation
    /// if the server stops, or if too many wait already and there is no `place`. `waiting` is called
    /// before it waits.
    pub async fn ended(
        &self,
        caller: &Caller,
        id: GenerationId,
        place: Option<WaitPlace>,
        waiting: impl FnOnce() + Send,
    ) -> Result<Generation, ServiceError> {
        let found = self.generation_from(caller, id, LONGEST, place, waiting);
        let found = found.await?.generation;
        if found.status.is_finished() {
            Ok(found)
        } else if self.is_draining() {
            Err(ServiceError::StoppedWaiting(Box::new(found)))
        } else {
            Err(ServiceError::TooManyWait(Box::new(found)))
        }
    }

    /// The account's generations, newest first.
    pub async fn history(
        &self,
        caller: &Caller,
        filter: &HistoryFilter,
        page: &PageRequest,
    ) -> Result<Page<Generation>, ServiceError> {
        Ok(self
            .0
            .store
            .history(caller.account_id, filter, page)
            .await?)
    }

    /// Ends an unfinished generation: free, unless some of its text was delivered. A text that is
    /// read on for its counts, or that another server streams, may still be unfinished when this
    /// returns.
    pub async fn cancel(
        &self,
        caller: &Caller,
        id: GenerationId,
    ) -> Result<Generation, ServiceError> {
        let found = self.generation(caller, id).await?;
        caller.require(ability_of(found.modality))?;
        if found.status.is_finished() {
            return Err(ServiceError::AlreadyFinished);
        }
        self.require_running()?;
        match self.0.runner.cancel(&found).await? {
            Cancel::Done | Cancel::Requested => self.generation(caller, id).await,
            Cancel::AlreadyFinished => Err(ServiceError::AlreadyFinished),
        }
    }

    /// Removes a finished generation's prompt and result for good.
    pub async fn delete(&self, caller: &Caller, id: GenerationId) -> Result<(), ServiceError> {
        let found = self.generation(caller, id).await?;
        caller.require(ability_of(found.modality))?;
        self.require_running()?;
        let now = self.0.clock.now();
        if self
            .0
            .store
            .delete_generation(caller.account_id, id, now)
            .await?
        {
            // The link to a file must not outlive this answer.
            self.0.runner.remove_files(id).await;
            return Ok(());
        }
        // Not finished, or deleted by a parallel request.
        self.generation(caller, id).await?;
        Err(ServiceError::NotFinished)
    }
}
