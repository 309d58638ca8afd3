//! What follows behind settlements: the sums of usage, and the room of rows that have ended.

use std::sync::atomic::Ordering;

use super::Runner;
use crate::store::StoreError;

/// Rows of running generations that end here before their room is made free. Each takes some
/// 0.3 KiB; the database itself looks once a minute.
const ENDED_ROWS: u64 = 10_000;

impl Runner {
    /// Nothing, unless something was settled here since the last time.
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
