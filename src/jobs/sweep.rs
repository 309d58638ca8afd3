//! The sweep: ends what nobody works on any more. First run and recovery are the same path.

use std::sync::PoisonError;

use chrono::{DateTime, Utc};

use super::{About, Runner};
use crate::{
    domain::{
        generation::{Failure, FailureCode},
        ids::GenerationId,
    },
    store::{
        StoreError,
        generations::{Finish, Outcome},
        instances::Abandoned,
    },
};

/// Generations that one step ends at most for each query.
const BATCH: i64 = 500;

impl Runner {
    /// Declares every other process dead: right only when this one is known to be alone on the
    /// database.
    pub async fn declare_alone(&self) -> Result<(), StoreError> {
        self.0.store.heartbeat(self.0.instance).await?;
        self.0.store.retire_others(self.0.instance).await
    }

    /// Says that this process lives, also while a sweep takes long.
    pub async fn sign_of_life(&self) -> Result<(), StoreError> {
        self.0.store.heartbeat(self.0.instance).await
    }

    /// One step: says that this process lives, takes silent ones off the list, ends what they
    /// left, and what this one has lost track of. Answers how many it ended.
    pub async fn sweep_step(&self) -> Result<u64, StoreError> {
        let step = self.sweep().await;
        if step.is_err() {
            self.steady(None);
        }
        step
    }

    async fn sweep(&self) -> Result<u64, StoreError> {
        let store = &self.0.store;
        store.heartbeat(self.0.instance).await?;
        // After an outage of the database everybody looks silent. Only who has been heard for
        // a whole lease may judge: by then the living have been heard too.
        let now = self.0.clock.now();
        let steady_for = now - self.steady(Some(now));
        if steady_for
            .to_std()
            .is_ok_and(|steady| steady >= self.0.lease)
        {
            store.retire_silent(self.0.lease).await?;
        }
        let mut ended = 0;
        for left in store.abandoned(BATCH).await? {
            ended += self.end_or_pass_on(left).await?;
        }
        {
            // A row that is being claimed is not in the register yet.
            let _claims = self.0.claims.lock().await;
            let owned = store.owned(self.0.instance).await?;
            let ids: Vec<GenerationId> = owned.iter().map(|left| left.id).collect();
            for left in owned {
                // The register is asked after the row was read: a row that had an owner then
                // and has none now is settled, and ending it again touches nothing.
                if !self.0.running.contains(left.id) {
                    ended += self.end_or_pass_on(left).await?;
                }
            }
            self.0.running.stop_lost(&ids);
        }
        if ended > 0 {
            tracing::warn!(
                ended,
                "ended generations that nobody worked on; their holds are released"
            );
        }
        Ok(ended)
    }

    /// Notes whether the last sign of life was taken; answers since when all have been.
    fn steady(&self, now: Option<DateTime<Utc>>) -> DateTime<Utc> {
        let mut since = self
            .0
            .steady_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match now {
            Some(now) => *since.get_or_insert(now),
            None => since.take().unwrap_or_default(),
        }
    }

    /// What another worker can go on with is given back; the rest is ended.
    async fn end_or_pass_on(&self, left: Abandoned) -> Result<u64, StoreError> {
        if !left.resumable {
            return self.end_interrupted(&left).await;
        }
        let now = self.0.clock.now();
        self.0
            .store
            .release_job(left.id, left.owner, None, now)
            .await?;
        self.0.wake.notify_one();
        Ok(0)
    }

    async fn end_interrupted(&self, left: &Abandoned) -> Result<u64, StoreError> {
        let id = left.id;
        let message = "the server stopped during the call";
        let finish = Finish {
            id,
            instance: Some(left.owner),
            outcome: Outcome::Failed(Failure::new(FailureCode::Interrupted, message)),
            attempts: None,
            provider_request_id: None,
            now: self.0.clock.now(),
        };
        match self.end(&left.into(), &finish).await {
            Ok(ended) => Ok(u64::from(ended)),
            Err(error @ StoreError::Unavailable(_)) => Err(error),
            // One row that cannot be ended must not keep the others from it.
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(generation = %id, error, "an abandoned generation cannot be ended");
                Ok(0)
            }
        }
    }
}

impl From<&Abandoned> for About {
    fn from(left: &Abandoned) -> Self {
        Self {
            modality: left.modality,
            provider: left.provider.clone(),
            model: left.model.clone(),
            held: left.held,
        }
    }
}
