//! Who waits for the end of which generation.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::domain::ids::GenerationId;

type All = Arc<Mutex<HashMap<GenerationId, Vec<Arc<Notify>>>>>;

#[derive(Debug, Default)]
pub struct Waiters(All);

/// One who waits. A wake-up that comes between two waits is kept for the next.
#[derive(Debug)]
pub struct Waiter {
    id: GenerationId,
    woken: Arc<Notify>,
    all: All,
}

impl Waiters {
    pub fn waiter(&self, id: GenerationId) -> Waiter {
        let woken = Arc::<Notify>::default();
        let waiting = Arc::clone(&woken);
        lock(&self.0).entry(id).or_default().push(waiting);
        Waiter {
            id,
            woken,
            all: Arc::clone(&self.0),
        }
    }

    pub fn wake(&self, id: GenerationId) {
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

impl Waiter {
    /// Waits for the next wake-up. The generation may not have ended.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Waiter {
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

fn lock(all: &All) -> MutexGuard<'_, HashMap<GenerationId, Vec<Arc<Notify>>>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn each_is_woken_for_its_own_and_leaves_nothing_behind() {
        let waiters = Waiters::default();
        let id = |n| GenerationId(Uuid::from_u128(n));
        let [first, second, other] = [1, 1, 2].map(|n| waiters.waiter(id(n)));
        let woken = |waiter: &Waiter| waiter.woken().now_or_never().is_some();
        waiters.wake(id(1));
        waiters.wake(id(3));
        assert_eq!([&first, &second, &other].map(woken), [true, true, false]);
        assert_eq!([&first, &second, &other].map(woken), [false; 3]);
        drop(first);
        waiters.wake_all();
        assert_eq!([&second, &other].map(woken), [true; 2]);
        drop((second, other));
        assert!(lock(&waiters.0).is_empty());
    }
}
