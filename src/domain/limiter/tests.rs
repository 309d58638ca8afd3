use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use proptest::prelude::*;

use super::*;

type Acquiring<'a> = Pin<Box<dyn Future<Output = Option<Permit<u8>>> + 'a>>;

fn poll(acquiring: &mut Acquiring<'_>) -> Poll<Option<Permit<u8>>> {
    let mut context = Context::from_waker(Waker::noop());
    acquiring.as_mut().poll(&mut context)
}

#[derive(Debug, Clone)]
enum Step {
    TryAcquire(u8, usize),
    Acquire(u8, usize),
    Admit(u8),
    /// Permits and waiters are identified by index.
    Release(usize),
    Reacquire(usize),
    Drop(usize),
    Cancel(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_u8, 1..4_usize).prop_map(|(key, weight)| Step::TryAcquire(key, weight)),
        1 => (0..4_u8).prop_map(Step::Admit),
        1 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::Reacquire),
        2 => any::<usize>().prop_map(Step::Drop),
    ]
}

fn queue_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0..4_u8, 1..5_usize).prop_map(|(key, weight)| Step::TryAcquire(key, weight)),
        6 => (0..4_u8, 1..5_usize).prop_map(|(key, weight)| Step::Acquire(key, weight)),
        4 => any::<usize>().prop_map(Step::Drop),
        1 => any::<usize>().prop_map(Step::Cancel),
    ]
}

/// A waiter of the model.
struct Pending<'a> {
    key: u8,
    weight: usize,
    acquiring: Acquiring<'a>,
    /// Grants to other keys since this waiter lacked only room in the total.
    overtaken_by: HashMap<u8, usize>,
}

/// The expected state of the limiter: permits and waiters, in order.
struct Model<'a> {
    limiter: &'a Limiter<u8>,
    permits: Vec<Permit<u8>>,
    pending: Vec<Pending<'a>>,
}

impl Model<'_> {
    fn used(&self, key: Option<u8>) -> usize {
        let of_key = |permit: &&Permit<u8>| key.is_none_or(|key| permit.key() == key);
        self.permits.iter().filter(of_key).map(Permit::weight).sum()
    }

    fn fits_key(&self, key: u8, weight: usize) -> bool {
        self.used(Some(key)) + weight <= self.limiter.per_key()
    }

    fn fits_total(&self, weight: usize) -> bool {
        self.used(None) + weight <= self.limiter.total()
    }

    /// Returns the indices of the waiters that are the first of their key and fit its limit.
    fn eligible(&self) -> Vec<usize> {
        let is_first = |i: &usize| {
            let key = self.pending[*i].key;
            !self.pending[..*i].iter().any(|other| other.key == key)
        };
        let fits = |i: &usize| self.fits_key(self.pending[*i].key, self.pending[*i].weight);
        (0..self.pending.len())
            .filter(is_first)
            .filter(fits)
            .collect()
    }

    /// Takes the granted permits and checks the rest.
    fn settle(&mut self, eligible_keys: &[u8]) {
        let mut granted = Vec::new();
        let mut waits = Vec::new();
        let mut i = 0;
        while i < self.pending.len() {
            let key = self.pending[i].key;
            match poll(&mut self.pending[i].acquiring) {
                Poll::Pending => {
                    waits.push(key);
                    i += 1;
                }
                Poll::Ready(permit) => {
                    assert!(!waits.contains(&key), "a waiter overtook one of its key");
                    let permit = permit.unwrap();
                    assert_eq!(
                        (permit.key(), permit.weight()),
                        (key, self.pending[i].weight)
                    );
                    self.pending.remove(i);
                    self.permits.push(permit);
                    granted.push(key);
                }
            }
        }
        let eligible = self.eligible();
        for i in &eligible {
            let waiter = &mut self.pending[*i];
            if !eligible_keys.contains(&waiter.key) || granted.contains(&waiter.key) {
                waiter.overtaken_by.clear();
                continue;
            }
            for key in &granted {
                let times = waiter.overtaken_by.entry(*key).or_default();
                *times += 1;
                assert!(
                    *times <= 1,
                    "key {key} was served twice before {}",
                    waiter.key
                );
            }
        }
        assert!(self.used(None) <= self.limiter.total());
        assert!((0..4).all(|key| self.used(Some(key)) <= self.limiter.per_key()));
        assert_eq!(self.limiter.total() - self.limiter.free(), self.used(None));
        assert_eq!(self.limiter.queued(), self.pending.len());
        let must_wait = |i: &usize| !self.fits_total(self.pending[*i].weight);
        assert!(eligible.is_empty() || eligible.iter().any(must_wait));
    }
}

proptest! {
    /// Compares with a list of permits, without a queue.
    #[test]
    fn permits_are_counted_exactly(
        total in 0..12_usize,
        per_key in 0..6_usize,
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let limiter = Limiter::new(total, per_key);
        let mut permits: Vec<(Permit<u8>, bool)> = Vec::new();
        for step in steps {
            let used = |key: Option<u8>| -> usize {
                let held = permits.iter().filter(|(p, held)| *held && key.is_none_or(|k| k == p.key()));
                held.map(|(permit, _)| permit.weight()).sum()
            };
            let has_room = |key, weight| {
                used(None) + weight <= total && used(Some(key)) + weight <= per_key
            };
            match step {
                Step::TryAcquire(key, weight) => {
                    let room = has_room(key, weight);
                    let permit = limiter.try_acquire_many(key, weight);
                    prop_assert_eq!(permit.is_some(), room);
                    permits.extend(permit.map(|permit| (permit, true)));
                }
                Step::Admit(key) => permits.push((limiter.admit(key), true)),
                _ if permits.is_empty() => {}
                Step::Release(at) => {
                    let at = at % permits.len();
                    permits[at].0.release();
                    permits[at].1 = false;
                }
                Step::Reacquire(at) => {
                    let at = at % permits.len();
                    let permit = &permits[at].0;
                    let held = permits[at].1 || has_room(permit.key(), permit.weight());
                    prop_assert_eq!(permit.reacquire(), held);
                    permits[at].1 = held;
                }
                Step::Drop(at) => drop(permits.swap_remove(at % permits.len())),
                Step::Acquire(..) | Step::Cancel(_) => unreachable!(),
            }
            let mut expected = HashMap::new();
            for (permit, _) in permits.iter().filter(|(_, held)| *held) {
                *expected.entry(permit.key()).or_insert(0) += permit.weight();
            }
            prop_assert_eq!(limiter.free(), total.saturating_sub(expected.values().sum()));
            prop_assert_eq!(limiter.held().into_iter().collect::<HashMap<_, _>>(), expected);
        }
        drop(permits);
        prop_assert_eq!(limiter.held(), []);
    }

    /// Limits hold, no room is left unused, a key's waiters are served in order, no key is served
    /// twice before another that could be, and finally all are served.
    #[test]
    fn waiters_are_served_in_turn(
        total in 1..9_usize,
        per_key in 1..6_usize,
        waiters in (0..9_usize, 0..5_usize),
        steps in prop::collection::vec(queue_step(), 0..80),
    ) {
        let limiter = Limiter::with_queue((total, per_key), waiters);
        let mut model = Model { limiter: &limiter, permits: Vec::new(), pending: Vec::new() };
        for step in steps {
            let eligible = model.eligible();
            let eligible: Vec<u8> = eligible.iter().map(|i| model.pending[*i].key).collect();
            let own = |key| model.pending.iter().filter(|waiter| waiter.key == key).count();
            let may_enter = |key, weight| {
                eligible.is_empty() && own(key) == 0
                    && model.fits_key(key, weight) && model.fits_total(weight)
            };
            match step {
                Step::TryAcquire(key, weight) => {
                    let room = may_enter(key, weight);
                    let permit = limiter.try_acquire_many(key, weight);
                    prop_assert_eq!(permit.is_some(), room);
                    model.permits.extend(permit);
                }
                Step::Acquire(key, weight) => {
                    let room = may_enter(key, weight);
                    let left = waiters.0 - (model.pending.len() - own(key));
                    let share = waiters.1.min((left / 2).max(1));
                    let can_wait = weight <= per_key.min(total)
                        && model.pending.len() < waiters.0 && own(key) < share;
                    let mut acquiring: Acquiring<'_> = Box::pin(limiter.acquire(key, weight));
                    match poll(&mut acquiring) {
                        Poll::Ready(permit) => {
                            prop_assert_eq!(permit.is_some(), room);
                            prop_assert!(room || !can_wait);
                            model.permits.extend(permit);
                        }
                        Poll::Pending => {
                            prop_assert!(!room && can_wait);
                            let overtaken_by = HashMap::new();
                            model.pending.push(Pending { key, weight, acquiring, overtaken_by });
                        }
                    }
                }
                Step::Drop(at) if !model.permits.is_empty() => {
                    drop(model.permits.remove(at % model.permits.len()));
                }
                Step::Cancel(at) if !model.pending.is_empty() => {
                    drop(model.pending.remove(at % model.pending.len()));
                }
                _ => {}
            }
            model.settle(&eligible);
        }
        while !model.pending.is_empty() {
            prop_assert!(!model.permits.is_empty());
            let eligible = model.eligible();
            let eligible: Vec<u8> = eligible.iter().map(|i| model.pending[*i].key).collect();
            drop(model.permits.remove(0));
            model.settle(&eligible);
        }
        drop(model);
        prop_assert_eq!(limiter.held(), []);
    }
}

/// Blocks the thread until the future is ready.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn keys_that_queue_as_often_as_they_can_leave_room_for_another() {
    let limiter = Limiter::shared(1, 64);
    let _permit = limiter.try_acquire(0).unwrap();
    let mut waiting = Vec::new();
    let queued = [1, 2, 3, 4].map(|key| {
        let before = limiter.queued();
        loop {
            let mut acquiring: Acquiring<'_> = Box::pin(limiter.acquire(key, 1));
            match poll(&mut acquiring) {
                Poll::Pending => waiting.push(acquiring),
                Poll::Ready(permit) => {
                    assert!(permit.is_none());
                    break limiter.queued() - before;
                }
            }
        }
    });
    assert_eq!(queued, [32, 16, 8, 4]);
}

/// Terminates only if no wake-up is lost, even if waiters give up.
#[test]
fn many_threads_keep_the_bounds_and_are_all_served() {
    const THREADS: usize = 8;
    let limiter = Limiter::with_queue((5, 3), (usize::MAX, usize::MAX));
    let running: [AtomicUsize; 4] = Default::default();
    let (all, start) = (AtomicUsize::new(0), Barrier::new(THREADS));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (limiter, running, all, start) = (&limiter, &running, &all, &start);
            scope.spawn(move || {
                start.wait();
                for round in 0..2_000 {
                    let key = (thread + round) % running.len();
                    let weight = 1 + round % 3;
                    if round % 5 == 0 {
                        let mut gives_up = Box::pin(limiter.acquire(key, weight));
                        let _ = gives_up
                            .as_mut()
                            .poll(&mut Context::from_waker(Waker::noop()));
                    }
                    let permit = block_on(limiter.acquire(key, weight)).unwrap();
                    assert!(running[key].fetch_add(weight, Ordering::SeqCst) + weight <= 3);
                    assert!(all.fetch_add(weight, Ordering::SeqCst) + weight <= 5);
                    thread::yield_now();
                    all.fetch_sub(weight, Ordering::SeqCst);
                    running[key].fetch_sub(weight, Ordering::SeqCst);
                    drop(permit);
                }
            });
        }
    });
    assert_eq!((limiter.held(), limiter.queued()), (vec![], 0));
}

#[test]
fn a_panic_releases_a_permit() {
    let limiter = Limiter::of(1);
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let _permit = limiter.try_acquire(()).unwrap();
        panic!("on purpose");
    }));
    assert!(panic.is_err());
    assert!(limiter.try_acquire(()).is_some());
}

#[test]
fn a_heavy_waiter_is_served_before_later_light_ones() {
    let limiter = Limiter::with_queue((4, 4), (8, 8));
    let first = limiter.try_acquire_many(0, 3).unwrap();
    let second = limiter.try_acquire(1).unwrap();
    let mut heavy: Acquiring<'_> = Box::pin(limiter.acquire(2, 4));
    let mut light: Acquiring<'_> = Box::pin(limiter.acquire(3, 1));
    assert!(poll(&mut heavy).is_pending() && poll(&mut light).is_pending());
    drop(first);
    assert!(limiter.try_acquire(4).is_none() && poll(&mut light).is_pending());
    drop(second);
    let Poll::Ready(Some(permit)) = poll(&mut heavy) else {
        panic!("the heavy waiter is served first");
    };
    drop(permit);
    assert!(poll(&mut light).is_ready());
}

#[test]
fn a_waiter_that_gives_up_ends_the_turn_of_its_key() {
    let limiter = Limiter::with_queue((2, 2), (8, 8));
    let held = limiter.try_acquire(0).unwrap();
    let mut gives_up: Acquiring<'_> = Box::pin(limiter.acquire(1, 2));
    let mut next: Acquiring<'_> = Box::pin(limiter.acquire(1, 2));
    let mut other: Acquiring<'_> = Box::pin(limiter.acquire(2, 1));
    for waiter in [&mut gives_up, &mut next, &mut other] {
        assert!(poll(waiter).is_pending());
    }
    drop(gives_up);
    assert!(poll(&mut other).is_ready() && poll(&mut next).is_pending());
    drop(held);
    assert!(poll(&mut next).is_ready());
}
