//! Periodic housekeeping: deletion by age, erasure of deleted accounts, and deferred work of
//! settlements.

use std::sync::atomic::Ordering;

use chrono::TimeDelta;

use super::Runner;
use crate::store::StoreError;

/// Running generations that end in this process before their rows are vacuumed. Each has some
/// 0.3 KiB; autovacuum runs once a minute.
const ENDED_ROWS: u64 = 10_000;

impl Runner {
    /// Deletes generations older than `age`, as their owners would, at most `batch` of them.
    /// Returns whether there may be more.
    pub async fn delete_old(&self, age: TimeDelta, batch: i64) -> Result<bool, StoreError> {
        let (store, now) = (&self.0.store, self.0.clock.now());
        store.delete_old_generations(now - age, now, batch).await
    }

    /// Removes content and files of up to `batch` generations of deleted accounts. Returns whether
    /// there may be more.
    pub async fn erase_deleted(&self, batch: i64) -> Result<bool, StoreError> {
        let now = self.0.clock.now();
        let erased = self.0.store.erase_deleted(now, batch).await?;
        for id in erased.with_files {
            self.remove_files(id).await;
        }
        Ok(!erased.is_complete)
    }

    /// Deletes what has expired, and webhook deliveries older than `log_age`, at most `batch` of
    /// each kind. Returns whether there may be more.
    pub async fn purge(&self, log_age: TimeDelta, batch: i64) -> Result<bool, StoreError> {
        let (store, now) = (&self.0.store, self.0.clock.now());
        let expired = store.purge_expired(now, batch).await?;
        let uploads = store.purge_uploads(now, batch).await?;
        let deliveries = store.purge_deliveries(now - log_age, now, batch).await?;
        Ok(expired || uploads || deliveries)
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
