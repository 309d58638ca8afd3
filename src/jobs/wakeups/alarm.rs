//! An alarm with several times.

use std::{collections::BTreeSet, sync::Mutex, time::Duration};

use chrono::{DateTime, Utc};
use tokio::{sync::Notify, time::timeout};

use crate::domain::{clock::SharedClock, lock::lock};

/// Wakes a task at given times.
#[derive(Debug, Default)]
pub struct Alarm {
    times: Mutex<BTreeSet<DateTime<Utc>>>,
    /// Notified when the first time changes.
    changed: Notify,
}

impl Alarm {
    pub fn ring(&self) {
        self.ring_at(DateTime::<Utc>::MIN_UTC);
    }

    pub fn ring_at(&self, at: DateTime<Utc>) {
        let mut times = lock(&self.times);
        times.insert(at);
        if times.first() == Some(&at) {
            self.changed.notify_one();
        }
    }

    /// Waits until it rings. Several times that are due ring once.
    pub async fn rung(&self, clock: &SharedClock) {
        while let Some(wait) = self.wait(clock.now()) {
            let _changed = timeout(wait, self.changed.notified()).await;
        }
    }

    /// Returns the time until it rings; `None` if it rings now.
    fn wait(&self, now: DateTime<Utc>) -> Option<Duration> {
        let mut times = lock(&self.times);
        let mut rings = false;
        while times.first().is_some_and(|at| *at <= now) {
            times.pop_first();
            rings = true;
        }
        let rest = |at: &DateTime<Utc>| (*at - now).to_std().unwrap_or_default();
        (!rings).then(|| times.first().map_or(Duration::MAX, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
    }

    #[test]
    fn it_rings_once_for_all_that_is_due() {
        let alarm = Alarm::default();
        assert_eq!(alarm.wait(time(0)), Some(Duration::MAX));
        for at in [7, 3, 5, 3] {
            alarm.ring_at(time(at));
        }
        assert_eq!(alarm.wait(time(1)), Some(Duration::from_secs(2)));
        assert_eq!(alarm.wait(time(5)), None);
        assert_eq!(alarm.wait(time(5)), Some(Duration::from_secs(2)));
        alarm.ring();
        alarm.ring();
        assert_eq!(alarm.wait(time(5)), None);
        assert_eq!(alarm.wait(time(5)), Some(Duration::from_secs(2)));
        assert_eq!(alarm.wait(time(8)), None);
        assert_eq!(alarm.wait(time(8)), Some(Duration::MAX));
    }
}
