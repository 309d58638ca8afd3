//! The sweep: ends what nobody works on any more. First run and recovery are the same path.

use std::sync::{MutexGuard, PoisonError};

use chrono::TimeDelta;

use super::{Runner, peers::Peers};
use crate::{
    domain::{
        clock::ClockReading,
        generation::{Failure, FailureCode},
        ids::GenerationId,
    },
    store::{
        StoreError,
        generations::{Outcome, Settlement},
        instances::Abandoned,
    },
};

/// Generations that one step ends at most for each query.
const BATCH: i64 = 500;
/// By how much the machine's clock must go wrong to be logged.
const LOGGED_SKEW: TimeDelta = TimeDelta::seconds(5);

impl Runner {
    /// Declares every other process dead: right only when this one is known to be alone on the
    /// database.
    pub async fn assume_sole_instance(&self) -> Result<(), StoreError> {
        self.heartbeat().await?;
        self.0.store.retire_others(self.0.instance).await
    }

    /// Says that this process lives, also while a sweep takes long, and compares clocks.
    pub async fn heartbeat(&self) -> Result<(), StoreError> {
        let reading = ClockReading::of(self.0.store.heartbeat(self.0.instance)).await?;
        self.0.clock.follow(&reading);
        self.log_skew();
        Ok(())
    }

    /// Logs how far the machine's clock is off, where that has changed.
    fn log_skew(&self) {
        let ahead = self.0.clock.machine_ahead();
        let mut logged = self
            .0
            .logged_skew
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if (ahead - *logged).abs() < LOGGED_SKEW {
            return;
        }
        *logged = ahead;
        let seconds_ahead = ahead.num_seconds();
        if ahead.abs() < LOGGED_SKEW {
            tracing::info!("the machine's clock agrees with the database's again");
        } else {
            tracing::warn!(
                seconds_ahead,
                "the machine's clock is wrong, or the database's; the latter is used"
            );
        }
    }

    /// One step: says that this process lives, takes silent ones off the list, ends what they
    /// left, and what this one has lost track of. Answers how many it ended.
    pub async fn sweep_step(&self) -> Result<u64, StoreError> {
        let step = self.sweep().await;
        if step.is_err() {
            // After an outage of the database everybody looks silent.
            self.peers().forget();
        }
        step
    }

    fn peers(&self) -> MutexGuard<'_, Peers> {
        self.0.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn sweep(&self) -> Result<u64, StoreError> {
        let store = &self.0.store;
        self.heartbeat().await?;
        let others = store.other_instances(self.0.instance).await?;
        let silent = self
            .peers()
            .silent(others, self.0.clock.monotonic(), self.0.lease);
        for (instance, seen_at) in silent {
            store.retire_silent(instance, seen_at).await?;
        }
        let now = self.0.clock.now();
        if store.hasten_jobs(now + self.longest_wait(), now).await? > 0 {
            self.0.wake.notify_one();
        }
        let mut ended = 0;
        for left in store.abandoned(BATCH).await? {
            ended += self.recover(left).await?;
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
                    ended += self.recover(left).await?;
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

    /// What another worker can go on with is given back; the rest is ended.
    async fn recover(&self, left: Abandoned) -> Result<u64, StoreError> {
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
        let failure = Failure::new(FailureCode::Interrupted, message);
        let settlement = Settlement {
            instance: Some(left.owner),
            ..self.settlement(id, Outcome::Failed(failure), None, None)
        };
        match self.end(&settlement).await {
            Ok(ended) => Ok(u64::from(ended.is_some())),
            // Its account is locked: the next sweep tries again, and others do not wait for it.
            Err(error) if error.is_locked() => Ok(0),
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
