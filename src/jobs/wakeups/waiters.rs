//! Waiters by key: the end of a generation, or a settlement of an account.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex},
};

use tokio::sync::Notify;

use crate::domain::lock::lock;

type All<K> = Arc<Mutex<HashMap<K, Vec<Arc<Notify>>>>>;

#[derive(Debug)]
pub struct Waiters<K>(All<K>);

/// A wake-up between two waits is kept for the next wait.
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
    use super::*;
    use futures_util::FutureExt as _;

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
