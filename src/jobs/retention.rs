//! Deletion by age, and of what deleted accounts leave.

use chrono::TimeDelta;

use super::Runner;
use crate::store::StoreError;

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
        let deliveries = store.purge_deliveries(now - log_age, now, batch).await?;
        Ok(expired || deliveries)
    }
}
