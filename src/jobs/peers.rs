//! Which other processes live.

use std::{collections::HashMap, time::Duration};

use chrono::{DateTime, Utc};

use crate::domain::ids::InstanceId;

/// When each other process was last heard, by this one's monotonic clock. That its row changes
/// is what tells; the times in the rows are compared with no clock, so that none that jumps
/// makes the living look silent, or the dead alive.
#[derive(Debug, Default)]
pub(super) struct Peers(HashMap<InstanceId, (DateTime<Utc>, Duration)>);

impl Peers {
    /// Notes what was just read, and answers who has been silent for `lease`: nobody that has
    /// not been watched for as long.
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

    /// Forgets everybody: all are watched anew.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}
