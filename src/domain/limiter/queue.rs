//! Weights in use and waiters by key, and the order in which waiters are served.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use futures_util::task::AtomicWaker;

use super::{Bounds, Limiter, Permit};

#[derive(Debug)]
pub struct State<K> {
    used: usize,
    queued: usize,
    /// Keys that use a weight or wait.
    keys: HashMap<K, Entry>,
    /// Keys with waiters, in the order of service. A key at its own limit may be absent; it is
    /// added again when it releases a weight. After [`State::grant`], the first key waits for room
    /// in the total.
    turns: VecDeque<K>,
}

#[derive(Debug, Default)]
struct Entry {
    held: usize,
    waiters: VecDeque<Arc<Waiter>>,
    is_in_turns: bool,
}

#[derive(Debug)]
pub struct Waiter {
    weight: usize,
    /// Changed while the state is locked.
    is_granted: AtomicBool,
    waker: AtomicWaker,
}

impl Waiter {
    pub fn wake(&self) {
        self.waker.wake();
    }
}

impl<K> Default for State<K> {
    fn default() -> Self {
        Self {
            used: 0,
            queued: 0,
            keys: HashMap::new(),
            turns: VecDeque::new(),
        }
    }
}

impl<K: Copy + Eq + Hash> State<K> {
    pub fn used(&self) -> usize {
        self.used
    }

    pub fn queued(&self) -> usize {
        self.queued
    }

    pub fn held(&self) -> Vec<(K, usize)> {
        let held = self.keys.iter().map(|(&key, entry)| (key, entry.held));
        held.filter(|&(_, weight)| weight > 0).collect()
    }

    pub fn held_by(&self, key: K) -> usize {
        self.keys.get(&key).map_or(0, |entry| entry.held)
    }

    pub fn add(&mut self, key: K, weight: usize) {
        self.used += weight;
        self.keys.entry(key).or_default().held += weight;
    }

    pub fn remove(&mut self, key: K, weight: usize) {
        self.used -= weight;
        if let Some(entry) = self.keys.get_mut(&key) {
            entry.held -= weight;
        }
        self.join_turns(key);
    }

    /// Adds a weight if it keeps the limits and does not overtake a waiter that it could delay.
    pub fn try_enter(&mut self, bounds: &Bounds, key: K, weight: usize) -> bool {
        let has_waiters = self
            .keys
            .get(&key)
            .is_some_and(|entry| !entry.waiters.is_empty());
        let has_room = self.turns.is_empty()
            && !has_waiters
            && weight <= bounds.per_key.saturating_sub(self.held_by(key))
            && weight <= bounds.total.saturating_sub(self.used);
        if has_room {
            self.add(key, weight);
        }
        has_room
    }

    /// Appends a waiter. Returns `None` if the queue is full or the weight can never be granted.
    pub fn enqueue(&mut self, bounds: &Bounds, key: K, weight: usize) -> Option<Arc<Waiter>> {
        let own = self.keys.get(&key).map_or(0, |entry| entry.waiters.len());
        if weight > bounds.per_key.min(bounds.total)
            || own >= bounds.queue_of_key(self.queued - own)
            || self.queued >= bounds.queue
        {
            return None;
        }
        let waiter = Arc::new(Waiter {
            weight,
            is_granted: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        let entry = self.keys.entry(key).or_default();
        entry.waiters.push_back(Arc::clone(&waiter));
        self.queued += 1;
        self.join_turns(key);
        Some(waiter)
    }

    /// Removes a waiter that gave up. The next one of its key waits for the key's next turn.
    fn cancel(&mut self, key: K, waiter: &Arc<Waiter>) {
        if waiter.is_granted.load(Ordering::Acquire) {
            return self.remove(key, waiter.weight);
        }
        let Some(entry) = self.keys.get_mut(&key) else {
            return;
        };
        let was_first = entry
            .waiters
            .front()
            .is_some_and(|w| Arc::ptr_eq(w, waiter));
        entry.waiters.retain(|w| !Arc::ptr_eq(w, waiter));
        self.queued -= 1;
        if was_first {
            entry.is_in_turns = false;
            self.turns.retain(|other| *other != key);
            self.join_turns(key);
        }
    }

    /// Adds a key with waiters at the end of the order, and removes a key without any use.
    fn join_turns(&mut self, key: K) {
        let Some(entry) = self.keys.get_mut(&key) else {
            return;
        };
        if entry.is_in_turns {
            return;
        }
        if !entry.waiters.is_empty() {
            entry.is_in_turns = true;
            self.turns.push_back(key);
        } else if entry.held == 0 {
            self.keys.remove(&key);
        }
    }

    /// Grants waiters in order until the next one needs more than is free.
    pub fn grant(&mut self, bounds: &Bounds) -> Vec<Arc<Waiter>> {
        let mut granted = Vec::new();
        while let Some(&key) = self.turns.front()
            && let Some(entry) = self.keys.get_mut(&key)
        {
            let free = bounds.per_key.saturating_sub(entry.held);
            let Some(waiter) = entry.waiters.pop_front_if(|w| w.weight <= free) else {
                // The key has no waiters, or is at its own limit.
                self.turns.pop_front();
                entry.is_in_turns = false;
                if entry.held == 0 {
                    self.keys.remove(&key);
                }
                continue;
            };
            if waiter.weight > bounds.total.saturating_sub(self.used) {
                entry.waiters.push_front(waiter);
                break;
            }
            waiter.is_granted.store(true, Ordering::Release);
            self.queued -= 1;
            self.add(key, waiter.weight);
            self.turns.rotate_left(1);
            granted.push(waiter);
        }
        granted
    }
}

/// Waits for a permit; leaves the queue on drop.
pub struct Waiting<'a, K: Copy + Eq + Hash> {
    limiter: &'a Limiter<K>,
    key: K,
    /// `None` once the permit was taken.
    waiter: Option<Arc<Waiter>>,
}

impl<'a, K: Copy + Eq + Hash> Waiting<'a, K> {
    pub fn new(limiter: &'a Limiter<K>, key: K, waiter: Arc<Waiter>) -> Self {
        Self {
            limiter,
            key,
            waiter: Some(waiter),
        }
    }
}

impl<K: Copy + Eq + Hash> Unpin for Waiting<'_, K> {}

impl<K: Copy + Eq + Hash> Future for Waiting<'_, K> {
    type Output = Permit<K>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit<K>> {
        if let Some(waiter) = &self.waiter {
            waiter.waker.register(context.waker());
            if !waiter.is_granted.load(Ordering::Acquire) {
                return Poll::Pending;
            }
        }
        let weight = self.waiter.take().map_or(0, |waiter| waiter.weight);
        Poll::Ready(self.limiter.permit(self.key, weight))
    }
}

impl<K: Copy + Eq + Hash> Drop for Waiting<'_, K> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            self.limiter
                .update(|state, _| state.cancel(self.key, &waiter));
        }
    }
}
