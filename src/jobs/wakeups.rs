//! Wakes tasks for due jobs, due deliveries and ended generations, by the notifications of all
//! servers. The sweep compensates for lost notifications.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::{DateTime, Utc};
use tokio::{sync::Notify, time::timeout};

use super::{Handle, Runner};
use crate::{
    domain::{
        clock::SharedClock,
        ids::{AccountId, GenerationId},
        lock::lock,
    },
    store::{StoreError, instances::Notice},
};

/// Pause between attempts to listen or to claim due work while the database is unavailable.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct Wakeups {
    pub(super) jobs: Alarm,
    /// Wakes the webhook dispatcher.
    pub(super) deliveries: Alarm,
    pub(super) catalogue: Notify,
    /// Woken when a generation ends.
    pub(super) ended: Waiters<GenerationId>,
    /// Woken when a generation of the account is settled in this process.
    pub(super) freed: Waiters<AccountId>,
}

impl Runner {
    /// Receives the notifications of all servers; never returns.
    pub async fn listen(&self) {
        let mut notices = self.0.store.notices();
        let mut deaf = false;
        loop {
            match notices.next().await {
                Ok(notice) => {
                    deaf = false;
                    self.receive(notice).await;
                }
                Err(error) => {
                    if !deaf {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "notices of other servers cannot be heard");
                    }
                    deaf = true;
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    async fn receive(&self, notice: Notice) {
        let wakeups = &self.0.wakeups;
        match notice {
            Notice::Jobs => wakeups.jobs.ring(),
            Notice::Ended(id) => wakeups.ended.wake(id),
            Notice::Cancel(id) => self.cancel_stream(id),
            Notice::Deliveries => wakeups.deliveries.ring(),
            Notice::Catalogue => wakeups.catalogue.notify_one(),
            Notice::Missed => {
                wakeups.jobs.ring();
                wakeups.deliveries.ring();
                wakeups.catalogue.notify_one();
                wakeups.ended.wake_all();
                if let Err(error) = self.cancel_requested().await {
                    // The sweep fails too, and logs the error.
                    tracing::debug!(%error, "looking for cancels failed");
                }
            }
        }
    }

    /// Waits for a request to reload the catalogue, and returns the new number of requests.
    /// `known`: the previous number. A reconnect alone is no request: the file may be half-written.
    pub async fn reload_request(&self, known: i64) -> i64 {
        loop {
            self.0.wakeups.catalogue.notified().await;
            loop {
                match self.0.store.requested_catalogue_reloads().await {
                    Ok(requested) if requested == known => break,
                    Ok(requested) => return requested,
                    Err(error) => {
                        tracing::warn!(%error, "requests to reload the catalogue were not read");
                        tokio::time::sleep(RETRY_PAUSE).await;
                    }
                }
            }
        }
    }

    /// Returns a waiter for the end of a generation on any server. Create it before reading the
    /// row, so that no end is missed.
    pub fn waiter(&self, id: GenerationId) -> Waiter<GenerationId> {
        self.0.wakeups.ended.waiter(id)
    }

    /// Returns a waiter for settlements of an account in this process. Create it before trying a
    /// hold, so that no settlement is missed.
    pub fn freed(&self, account: AccountId) -> Waiter<AccountId> {
        self.0.wakeups.freed.waiter(account)
    }

    /// Cancels texts that this process streams and whose cancel another server has requested.
    pub(super) async fn cancel_requested(&self) -> Result<(), StoreError> {
        if !self.0.running.any_streams() {
            return Ok(());
        }
        for id in self.0.store.requested_cancels(self.0.instance).await? {
            self.cancel_stream(id);
        }
        Ok(())
    }

    fn cancel_stream(&self, id: GenerationId) {
        if let Some(handle) = self.handle(id).filter(Handle::streams) {
            handle.cancel.cancel();
        }
    }
}

/// A timer that wakes a task at given times.
#[derive(Debug, Default)]
pub struct Alarm {
    times: Mutex<BTreeSet<DateTime<Utc>>>,
    /// Notified when the earliest time changes.
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

    /// Waits until the next time. Several due times wake it once.
    pub async fn rung(&self, clock: &SharedClock) {
        while let Some(wait) = self.wait(clock.now()) {
            let _changed = timeout(wait, self.changed.notified()).await;
        }
    }

    /// Returns the time until the alarm rings; `None` if it is due.
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

type All<K> = Arc<Mutex<HashMap<K, Vec<Arc<Notify>>>>>;

#[derive(Debug)]
pub struct Waiters<K>(All<K>);

/// Waits for wake-ups of a key. A wake-up between two waits is kept for the next wait.
#[derive(Debug)]
pub struct Waiter<K: Copy + Eq + Hash> {
    id: K,
    woken: Arc<Notify>,
    all: All<K>,
}

impl<K> Default for Waiters<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Copy + Eq + Hash> Waiters<K> {
    pub fn waiter(&self, id: K) -> Waiter<K> {
        let woken = Arc::<Notify>::default();
        let waiting = Arc::clone(&woken);
        lock(&self.0).entry(id).or_default().push(waiting);
        Waiter {
            id,
            woken,
            all: Arc::clone(&self.0),
        }
    }

    pub fn wake(&self, id: K) {
        for waiting in lock(&self.0).get(&id).into_iter().flatten() {
            waiting.notify_one();
        }
    }

    pub fn wake_all(&self) {
        for waiting in lock(&self.0).values().flatten() {
            waiting.notify_one();
        }
    }
}

impl<K: Copy + Eq + Hash> Waiter<K> {
    /// Waits for the next wake-up, which may be spurious.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl<K: Copy + Eq + Hash> Drop for Waiter<K> {
    fn drop(&mut self) {
        let mut all = lock(&self.all);
        if let Some(waiting) = all.get_mut(&self.id) {
            waiting.retain(|other| !Arc::ptr_eq(other, &self.woken));
            if waiting.is_empty() {
                all.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

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

    #[test]
    fn each_is_woken_for_its_own_and_leaves_nothing_behind() {
        let waiters = Waiters::default();
        let [first, second, other] = [1, 1, 2].map(|n| waiters.waiter(n));
        let woken = |waiter: &Waiter<i32>| waiter.woken().now_or_never().is_some();
        waiters.wake(1);
        waiters.wake(3);
        assert_eq!([&first, &second, &other].map(woken), [true, true, false]);
        assert_eq!([&first, &second, &other].map(woken), [false; 3]);
        drop(first);
        waiters.wake_all();
        assert_eq!([&second, &other].map(woken), [true; 2]);
        drop((second, other));
        assert!(lock(&waiters.0).is_empty());
    }
}
