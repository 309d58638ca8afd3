//! Limits the use of a resource in this process, in total and per key, with a fair queue.
//!
//! A permit has a weight: 1 for a place, or a number of bytes. Waiting keys are served round robin,
//! and the waiters of a key in order. A waiter that fits its key's limit but not the total reserves
//! the weight that becomes free, so that later ones cannot starve it; callers bound the wait with a
//! timeout. A key at its own limit delays no other key.

mod queue;
#[cfg(test)]
mod tests;

use std::{
    hash::Hash,
    sync::{Arc, Mutex},
};

use super::lock::lock;
use queue::{State, Waiting};

/// The permits in use, their limits and the queue. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Limiter<K: Copy + Eq + Hash = ()>(Arc<Inner<K>>);

#[derive(Debug)]
struct Inner<K> {
    bounds: Bounds,
    state: Mutex<State<K>>,
}

#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Weight in use, of all keys and of one key.
    total: usize,
    per_key: usize,
    /// Number of waiters, of all keys and of one key.
    queue: usize,
    queue_per_key: usize,
}

impl Bounds {
    /// Returns the maximum waiters of a key while other keys have `others`: half of the remaining
    /// queue, so that a new key finds a place.
    fn queue_of_key(&self, others: usize) -> usize {
        self.queue_per_key
            .min(half(self.queue.saturating_sub(others)))
    }
}

/// A weight in use, released when the permit is dropped, also by a panic.
#[derive(Debug)]
pub struct Permit<K: Copy + Eq + Hash = ()> {
    limiter: Limiter<K>,
    key: K,
    weight: usize,
    /// Locked before the limiter's state.
    is_held: Mutex<bool>,
}

impl Limiter {
    /// Creates a limiter with one key, which may use everything.
    pub fn of(total: usize) -> Self {
        Self::new(total, total)
    }
}

impl<K: Copy + Eq + Hash> Limiter<K> {
    /// Creates a limiter without a queue: at most `total` in use, and at most `per_key` by one key.
    pub fn new(total: usize, per_key: usize) -> Self {
        Self::with_queue((total, per_key), (0, 0))
    }

    /// Creates a limiter with at most `total` in use and `queue` waiters. A key gets at most half
    /// of `total`, and half of the queue that other keys leave.
    pub fn shared(total: usize, queue: usize) -> Self {
        Self::with_queue((total, half(total)), (queue, half(queue)))
    }

    /// Creates a limiter with maximum `weights` and maximum `waiters`, each in total and per key.
    pub fn with_queue(weights: (usize, usize), waiters: (usize, usize)) -> Self {
        Self(Arc::new(Inner {
            bounds: Bounds {
                total: weights.0,
                per_key: weights.1,
                queue: waiters.0,
                queue_per_key: waiters.1,
            },
            state: Mutex::default(),
        }))
    }

    /// Returns a permit of weight 1, or `None` if a limit is reached or others wait for room.
    pub fn try_acquire(&self, key: K) -> Option<Permit<K>> {
        self.try_acquire_many(key, 1)
    }

    /// Returns a permit of `weight`; `None` if it exceeds a limit or others wait for room.
    pub fn try_acquire_many(&self, key: K, weight: usize) -> Option<Permit<K>> {
        let entered = self.update(|state, bounds| state.try_enter(bounds, key, weight));
        entered.then(|| self.permit(key, weight))
    }

    /// Like [`Self::try_acquire_many`], but also returns `None` if the key would then hold more
    /// than remains free.
    pub fn try_acquire_leaving(&self, key: K, weight: usize) -> Option<Permit<K>> {
        let entered = self.update(|state, bounds| {
            let left = bounds.total.saturating_sub(state.used() + weight);
            state.held_by(key) + weight <= left && state.try_enter(bounds, key, weight)
        });
        entered.then(|| self.permit(key, weight))
    }

    /// Waits for a permit of `weight`. Returns `None` at once if the queue is full or `weight`
    /// exceeds a limit. Dropping the future leaves the queue.
    pub async fn acquire(&self, key: K, weight: usize) -> Option<Permit<K>> {
        let waiter = self.update(|state, bounds| {
            let entered = state.try_enter(bounds, key, weight);
            if entered {
                return Some(None);
            }
            state.enqueue(bounds, key, weight).map(Some)
        });
        match waiter? {
            None => Some(self.permit(key, weight)),
            Some(waiter) => Some(Waiting::new(self, key, waiter).await),
        }
    }

    /// Returns a permit of weight 1 regardless of the limits, for work that was admitted elsewhere.
    pub fn admit(&self, key: K) -> Permit<K> {
        self.admit_many(key, 1)
    }

    /// Like [`Self::admit`], with a weight.
    pub fn admit_many(&self, key: K, weight: usize) -> Permit<K> {
        self.update(|state, _| state.add(key, weight));
        self.permit(key, weight)
    }

    /// Returns the weight that is not in use.
    pub fn free(&self) -> usize {
        self.total().saturating_sub(lock(&self.0.state).used())
    }

    /// Returns the number of waiters.
    pub fn queued(&self) -> usize {
        lock(&self.0.state).queued()
    }

    /// Returns the limit of all keys.
    pub fn total(&self) -> usize {
        self.0.bounds.total
    }

    pub fn per_key(&self) -> usize {
        self.0.bounds.per_key
    }

    /// Returns the weight in use by each key that uses any.
    pub fn held(&self) -> Vec<(K, usize)> {
        lock(&self.0.state).held()
    }

    /// Returns the weight in use by one key.
    pub fn held_by(&self, key: K) -> usize {
        lock(&self.0.state).held_by(key)
    }

    fn permit(&self, key: K, weight: usize) -> Permit<K> {
        Permit {
            limiter: self.clone(),
            key,
            weight,
            is_held: Mutex::new(true),
        }
    }

    /// Changes the state, then grants waiting permits that now fit. Every change goes through here.
    fn update<T>(&self, change: impl FnOnce(&mut State<K>, &Bounds) -> T) -> T {
        let bounds = &self.0.bounds;
        let (result, granted) = {
            let mut state = lock(&self.0.state);
            let result = change(&mut state, bounds);
            (result, state.grant(bounds))
        };
        // After unlocking: a waker may run code that drops a permit.
        for waiter in granted {
            waiter.wake();
        }
        result
    }
}

impl<K: Copy + Eq + Hash> Permit<K> {
    pub fn key(&self) -> K {
        self.key
    }

    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Releases the weight before the permit is dropped.
    pub fn release(&self) {
        let mut is_held = lock(&self.is_held);
        if std::mem::take(&mut *is_held) {
            self.limiter
                .update(|state, _| state.remove(self.key, self.weight));
        }
    }

    /// Acquires the weight again after [`Self::release`]. Returns `false` if there is no room.
    pub fn reacquire(&self) -> bool {
        let mut is_held = lock(&self.is_held);
        *is_held = *is_held
            || self
                .limiter
                .update(|state, bounds| state.try_enter(bounds, self.key, self.weight));
        *is_held
    }
}

impl<K: Copy + Eq + Hash> Drop for Permit<K> {
    fn drop(&mut self) {
        self.release();
    }
}

/// Returns half of a limit, at least 1.
pub fn half(bound: usize) -> usize {
    (bound / 2).max(1)
}
