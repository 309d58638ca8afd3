//! The sweep recovers generations without a working process, at startup and after crashes. Also
//! does periodic housekeeping: deletion by age, erasure of deleted accounts, and deferred work of
//! settlements.

use std::{collections::HashMap, sync::atomic::Ordering, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};

use super::{Runner, step::interrupted};
use crate::{
    domain::{
        clock::ClockReading,
        ids::{AccountId, GenerationId, InstanceId},
        lock::lock,
    },
    store::{
        StoreError,
        generations::{Outcome, Settlement},
        instances::Abandoned,
    },
};

/// Abandoned generations recovered per query.
const BATCH: i64 = 500;
/// Change of the clock skew that is logged.
const LOGGED_SKEW: TimeDelta = TimeDelta::seconds(5);

/// Vacuums the rows of running generations after this many have ended in this process. Each row has
/// some 0.3 KiB; autovacuum runs only once a minute.
const ENDED_ROWS: u64 = 10_000;

impl Runner {
    /// Treats every other instance as dead. Only correct if this one is alone on the database.
    pub async fn assume_sole_instance(&self) -> Result<(), StoreError> {
        self.heartbeat().await?;
        self.0.store.retire_others(self.0.instance).await
    }

    /// Renews this process's lease, even during a long sweep, and measures the clock skew.
    pub async fn heartbeat(&self) -> Result<(), StoreError> {
        let reading = ClockReading::of(self.0.store.heartbeat(self.0.instance)).await?;
        self.0.clock.follow(&reading);
        self.log_skew();
        Ok(())
    }

    /// Logs the clock skew when it has changed.
    fn log_skew(&self) {
        let ahead = self.0.clock.machine_ahead();
        let mut logged = lock(&self.0.logged_skew);
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
                "the clocks of this machine and the database differ; using the database's"
            );
        }
    }

    /// Sends a heartbeat, removes instances whose lease has expired, and recovers their generations
    /// and those that this process lost. Wakes waiters that may have missed a notification. Returns
    /// the number of generations that it ended.
    pub async fn sweep_step(&self) -> Result<u64, StoreError> {
        let step = self.sweep().await;
        if step.is_err() {
            // After a database outage every process looks silent.
            lock(&self.0.peers).0.clear();
        }
        step
    }

    /// Warns once that another server is alive if it may not see this one's files.
    fn tell_of_peers(&self) {
        if self.0.media.is_local() && !self.0.told_of_peers.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "another gensvc server uses this database, but files are stored in a local \
                 folder: unless the servers share it, a link to a file of one is not found by the \
                 other; set GENSVC__MEDIA__STORAGE=s3"
            );
        }
    }

    async fn sweep(&self) -> Result<u64, StoreError> {
        let store = &self.0.store;
        let (wakeups, now) = (&self.0.wakeups, self.0.clock.now());
        let found = store.survey(self.0.instance).await?;
        let heartbeats: Vec<_> = found.others.into_iter().zip(found.heard).collect();
        let silent = {
            let mut peers = lock(&self.0.peers);
            if peers.anybody(&heartbeats) {
                self.tell_of_peers();
            }
            peers.silent(heartbeats, self.0.clock.monotonic(), self.0.settings.lease)
        };
        let mut abandoned = found.abandoned;
        for (instance, seen_at) in silent {
            store.retire_silent(instance, seen_at).await?;
            abandoned = true;
        }
        if let Some(at) = found.first_step {
            wakeups.jobs.ring_at(at);
        }
        if let Some(at) = found.next_attempt {
            wakeups.deliveries.ring_at(at);
        }
        let latest = now + self.longest_wait();
        if found.last_step.is_some_and(|at| at > latest)
            && store.hasten_jobs(latest, now).await? > 0
        {
            wakeups.jobs.ring();
        }
        self.cancel_requested().await?;
        let (mut ended, mut locked) = (0, Vec::new());
        while abandoned {
            let known = locked.len();
            for left in store.abandoned(BATCH, &locked).await? {
                ended += self.recover(left, &mut locked).await?;
            }
            // Rows of locked accounts may have filled the batch.
            abandoned = locked.len() > known;
        }
        if found.owns || self.running() > 0 {
            // A row that is being claimed is not registered yet.
            let claims = self.0.claims.lock().await;
            let mut owned = store.owned(self.0.instance).await?;
            let ids: Vec<GenerationId> = owned.iter().map(|left| left.id).collect();
            // The register is checked after the row was read. A row that had an owner then but has
            // none now is settled, and ending it again has no effect.
            owned.retain(|left| !self.0.running.contains(left.id));
            self.0.running.stop_lost(&ids);
            // These rows cannot be claimed: this process still has their leases.
            drop(claims);
            for left in owned {
                ended += self.recover(left, &mut locked).await?;
            }
        }
        // Includes the last settlements of a dead process.
        if found.uncounted
            && let Err(error) = store.count_usage().await
        {
            tracing::warn!(%error, "usage could not be counted; reports add it up");
        }
        if ended > 0 {
            tracing::warn!(
                ended,
                "ended abandoned generations and released their holds"
            );
        }
        Ok(ended)
    }

    /// Releases a generation that another worker can resume; ends any other. Adds its account to
    /// `locked` after a lock timeout, and skips those of such accounts: waiting for each would delay
    /// other accounts. The next sweep retries them.
    async fn recover(
        &self,
        left: Abandoned,
        locked: &mut Vec<AccountId>,
    ) -> Result<u64, StoreError> {
        if locked.contains(&left.account_id) {
            return Ok(0);
        }
        let recovered = if left.resumable {
            self.release(&left).await.map(|()| 0)
        } else {
            self.end_interrupted(&left).await
        };
        match recovered {
            Err(error) if error.is_locked() => {
                locked.push(left.account_id);
                Ok(0)
            }
            recovered => recovered,
        }
    }

    async fn release(&self, left: &Abandoned) -> Result<(), StoreError> {
        let (store, now) = (&self.0.store, self.0.clock.now());
        let releasing = store.release_job(left.account_id, left.id, left.owner, None, now);
        releasing.await?;
        self.0.wakeups.jobs.ring();
        Ok(())
    }

    async fn end_interrupted(&self, left: &Abandoned) -> Result<u64, StoreError> {
        let id = left.id;
        let failure = interrupted();
        let settlement = Settlement {
            instance: Some(left.owner),
            ..self.settlement((left.account_id, id), Outcome::Failed(failure), None, None)
        };
        match self.end(&settlement).await {
            Ok(ended) => Ok(u64::from(ended.is_some())),
            Err(error @ StoreError::Unavailable(_)) => Err(error),
            // A row that cannot be ended must not block the others.
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(generation = %id, error, "could not end an abandoned generation");
                Ok(0)
            }
        }
    }

    /// Deletes up to `batch` generations older than `age`, as their owners would. Returns whether
    /// there may be more.
    pub async fn delete_old(&self, age: TimeDelta, batch: i64) -> Result<bool, StoreError> {
        let (store, now) = (&self.0.store, self.0.clock.now());
        store.delete_old_generations(now - age, now, batch).await
    }

    /// Removes content and files of up to `batch` generations of deleted accounts. Returns whether
    /// there may be more.
    pub async fn erase_deleted(&self, batch: i64) -> Result<bool, StoreError> {
        let now = self.0.clock.now();
        let (with_files, is_complete) = self.0.store.erase_deleted(now, batch).await?;
        for id in with_files {
            self.remove_files(id).await;
        }
        Ok(!is_complete)
    }

    /// Deletes expired rows, and webhook deliveries older than `log_age`, at most `batch` of each
    /// kind. Returns whether there may be more.
    pub async fn purge(&self, log_age: TimeDelta, batch: i64) -> Result<bool, StoreError> {
        let now = self.0.clock.now();
        self.0.store.purge(now - log_age, now, batch).await
    }

    /// Sums usage and vacuums running generations, if this process has settled since the last call.
    pub async fn follow_settlements(&self) -> Result<(), StoreError> {
        let (settled, tidied) = (&self.0.settled, &self.0.tidied);
        let now = settled.load(Ordering::Relaxed);
        if self.0.counted.load(Ordering::Relaxed) < now {
            self.0.store.count_usage().await?;
            self.0.counted.store(now, Ordering::Relaxed);
        }
        if now - tidied.load(Ordering::Relaxed) >= ENDED_ROWS {
            tidied.store(now, Ordering::Relaxed);
            self.0.store.vacuum_running().await?;
        }
        Ok(())
    }
}

/// When each process's heartbeat last changed, by this process's monotonic clock. The times in the
/// rows are never compared with a clock, so a jumping clock cannot make a live process look dead or
/// a dead one alive.
#[derive(Debug, Default)]
pub(super) struct Peers(HashMap<InstanceId, (DateTime<Utc>, Duration)>);

impl Peers {
    /// Whether any heartbeat has changed, so that its process is alive.
    pub(super) fn anybody(&self, read: &[(InstanceId, DateTime<Utc>)]) -> bool {
        let changed = |id, seen_at| self.0.get(id).is_some_and(|(before, _)| before != seen_at);
        read.iter().any(|(id, seen_at)| changed(id, seen_at))
    }

    /// Records the heartbeats just read. Returns the processes that were watched and silent for
    /// `lease`.
    pub(super) fn silent(
        &mut self,
        read: Vec<(InstanceId, DateTime<Utc>)>,
        now: Duration,
        lease: Duration,
    ) -> Vec<(InstanceId, DateTime<Utc>)> {
        let before = std::mem::take(&mut self.0);
        let heard = |id: InstanceId, seen_at| match before.get(&id) {
            Some(&(same, since)) if same == seen_at => since,
            _ => now,
        };
        self.0 = read
            .into_iter()
            .map(|(id, seen_at)| (id, (seen_at, heard(id, seen_at))))
            .collect();
        let all = self.0.iter();
        let silent = all.filter(|(_, (_, since))| now.saturating_sub(*since) >= lease);
        silent.map(|(&id, &(seen_at, _))| (id, seen_at)).collect()
    }
}
