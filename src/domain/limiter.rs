//! At most so many at once, of which at most so many of one key.
//!
//! Here: counting, in this process. Nothing queues: who finds no room is refused at once, and
//! the caller says what that means.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The counts and their bounds. Cheap to clone. Without a key only the total is bounded.
#[derive(Debug)]
pub struct Limiter<K: Copy + Eq + Hash = ()>(Arc<Inner<K>>);

#[derive(Debug)]
struct Inner<K> {
    total: usize,
    per_key: usize,
    counts: Mutex<Counts<K>>,
}

#[derive(Debug)]
struct Counts<K> {
    total: usize,
    /// Keys that hold at least one.
    by_key: HashMap<K, usize>,
}

/// One of those that are counted. Freed when it is dropped, also by a panic.
#[derive(Debug)]
pub struct Permit<K: Copy + Eq + Hash = ()> {
    limiter: Limiter<K>,
    key: K,
    /// Locked before the counts.
    held: Mutex<bool>,
}

impl Limiter {
    /// At most `total` at once.
    pub fn of(total: usize) -> Self {
        Self::new(total, total)
    }
}

impl<K: Copy + Eq + Hash> Limiter<K> {
    /// At most `total` at once, of which at most `per_key` of one key.
    pub fn new(total: usize, per_key: usize) -> Self {
        Self(Arc::new(Inner {
            total,
            per_key,
            counts: Mutex::new(Counts {
                total: 0,
                by_key: HashMap::new(),
            }),
        }))
    }

    /// A permit for `key`, or `None` where a bound is reached.
    pub fn try_acquire(&self, key: K) -> Option<Permit<K>> {
        self.enter(key).then(|| self.permit(key))
    }

    /// A permit for `key` whatever the bounds, for what something else has admitted.
    pub fn admit(&self, key: K) -> Permit<K> {
        self.counts().add(key);
        self.permit(key)
    }

    /// How many more there may be, of any keys.
    pub fn free(&self) -> usize {
        self.0.total.saturating_sub(self.counts().total)
    }

    /// At most how many of all keys.
    pub fn total(&self) -> usize {
        self.0.total
    }

    /// At most how many of one key.
    pub fn per_key(&self) -> usize {
        self.0.per_key
    }

    /// How many each key holds; none that holds nothing.
    pub fn held(&self) -> Vec<(K, usize)> {
        let counts = self.counts();
        counts.by_key.iter().map(|(&key, &n)| (key, n)).collect()
    }

    fn enter(&self, key: K) -> bool {
        let mut counts = self.counts();
        let own = counts.by_key.get(&key).copied().unwrap_or(0);
        let room = counts.total < self.0.total && own < self.0.per_key;
        if room {
            counts.add(key);
        }
        room
    }

    fn permit(&self, key: K) -> Permit<K> {
        Permit {
            limiter: self.clone(),
            key,
            held: Mutex::new(true),
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts<K>> {
        lock(&self.0.counts)
    }
}

impl<K: Copy + Eq + Hash> Clone for Limiter<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Copy + Eq + Hash> Counts<K> {
    fn add(&mut self, key: K) {
        self.total += 1;
        *self.by_key.entry(key).or_default() += 1;
    }

    fn remove(&mut self, key: K) {
        self.total -= 1;
        if let Some(own) = self.by_key.get_mut(&key) {
            *own -= 1;
            if *own == 0 {
                self.by_key.remove(&key);
            }
        }
    }
}

impl<K: Copy + Eq + Hash> Permit<K> {
    pub fn key(&self) -> K {
        self.key
    }

    /// Frees it before it is dropped.
    pub fn release(&self) {
        let mut held = lock(&self.held);
        if std::mem::take(&mut *held) {
            self.limiter.counts().remove(self.key);
        }
    }

    /// Takes it again after [`Self::release`]; `false` where there is no room.
    pub fn reacquire(&self) -> bool {
        let mut held = lock(&self.held);
        *held = *held || self.limiter.enter(self.key);
        *held
    }
}

impl<K: Copy + Eq + Hash> Drop for Permit<K> {
    fn drop(&mut self) {
        self.release();
    }
}

/// No panic can happen while a count is half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::{
            Barrier,
            atomic::{AtomicUsize, Ordering},
        },
        thread,
    };

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Acquire(u8),
        Admit(u8),
        /// Of the permits there are, by their place.
        Release(usize),
        Reacquire(usize),
        Drop(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..4_u8).prop_map(Step::Acquire),
            1 => (0..4_u8).prop_map(Step::Admit),
            1 => any::<usize>().prop_map(Step::Release),
            1 => any::<usize>().prop_map(Step::Reacquire),
            2 => any::<usize>().prop_map(Step::Drop),
        ]
    }

    proptest! {
        /// Beside a list of who holds what.
        #[test]
        fn it_counts_exactly(
            total in 0..8_usize,
            per_key in 0..4_usize,
            steps in prop::collection::vec(step(), 0..80),
        ) {
            let limiter = Limiter::new(total, per_key);
            let mut permits: Vec<(Permit<u8>, bool)> = Vec::new();
            for step in steps {
                let holds = |key| permits.iter().filter(|(p, held)| *held && p.key() == key).count();
                let all = permits.iter().filter(|(_, held)| *held).count();
                let has_room = |key| all < total && holds(key) < per_key;
                match step {
                    Step::Acquire(key) => {
                        let room = has_room(key);
                        let permit = limiter.try_acquire(key);
                        prop_assert_eq!(permit.is_some(), room);
                        permits.extend(permit.map(|permit| (permit, true)));
                    }
                    Step::Admit(key) => permits.push((limiter.admit(key), true)),
                    Step::Release(_) | Step::Reacquire(_) | Step::Drop(_) if permits.is_empty() => {}
                    Step::Release(at) => {
                        let at = at % permits.len();
                        permits[at].0.release();
                        permits[at].1 = false;
                    }
                    Step::Reacquire(at) => {
                        let at = at % permits.len();
                        let held = permits[at].1 || has_room(permits[at].0.key());
                        prop_assert_eq!(permits[at].0.reacquire(), held);
                        permits[at].1 = held;
                    }
                    Step::Drop(at) => drop(permits.swap_remove(at % permits.len())),
                }
                let mut expected = HashMap::new();
                for (permit, _) in permits.iter().filter(|(_, held)| *held) {
                    *expected.entry(permit.key()).or_insert(0) += 1;
                }
                prop_assert_eq!(limiter.free(), total.saturating_sub(expected.values().sum()));
                prop_assert_eq!(limiter.held().into_iter().collect::<HashMap<_, _>>(), expected);
            }
            drop(permits);
            prop_assert_eq!(limiter.held(), []);
        }
    }

    #[test]
    fn many_threads_never_hold_more_than_the_bounds() {
        const THREADS: usize = 8;
        let limiter = Limiter::new(5, 2);
        let running: [AtomicUsize; 4] = Default::default();
        let (all, got, start) = (
            AtomicUsize::new(0),
            AtomicUsize::new(0),
            Barrier::new(THREADS),
        );
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (limiter, running, all, got, start) = (&limiter, &running, &all, &got, &start);
                scope.spawn(move || {
                    start.wait();
                    for round in 0..2_000 {
                        let key = (thread + round) % running.len();
                        let Some(permit) = limiter.try_acquire(key) else {
                            continue;
                        };
                        got.fetch_add(1, Ordering::SeqCst);
                        assert!(running[key].fetch_add(1, Ordering::SeqCst) < 2);
                        assert!(all.fetch_add(1, Ordering::SeqCst) < 5);
                        thread::yield_now();
                        all.fetch_sub(1, Ordering::SeqCst);
                        running[key].fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    }
                });
            }
        });
        assert!(got.into_inner() > 0);
        assert_eq!(limiter.held(), []);
    }

    #[test]
    fn a_panic_frees_a_permit() {
        let limiter = Limiter::of(1);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let _permit = limiter.try_acquire(()).unwrap();
            panic!("on purpose");
        }));
        assert!(panic.is_err());
        assert!(limiter.try_acquire(()).is_some());
    }
}
