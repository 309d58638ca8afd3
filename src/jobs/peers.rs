//! Liveness of the other processes.

use std::{collections::HashMap, time::Duration};

use chrono::{DateTime, Utc};

use crate::domain::ids::InstanceId;

/// When each process's heartbeat was last seen to change, by this process's monotonic clock. The
/// times in the rows are never compared with a clock, so that a clock that jumps cannot make a live
/// process look dead, or a dead one alive.
#[derive(Debug, Default)]
pub(super) struct Peers(HashMap<InstanceId, (DateTime<Utc>, Duration)>);

impl Peers {
    /// Whether one of the heartbeats just read has changed: its process lives.
    pub(super) fn anybody(&self, read: &[(InstanceId, DateTime<Utc>)]) -> bool {
        let changed = |id, seen_at| self.0.get(id).is_some_and(|(before, _)| before != seen_at);
        read.iter().any(|(id, seen_at)| changed(id, seen_at))
    }

    /// Records the heartbeats just read, and returns who has been silent for `lease`: only
    /// processes that were watched for that long.
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

    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}
