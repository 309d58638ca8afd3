//! The byte budget of this process for requests: bodies, conversations, answers and unread pieces
//! of streams. An account may use at most as much as remains free.
//!
//! Modules that keep bytes reserve them here; modules that accept work refuse it if the budget is
//! used up.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{task_local, time::Instant};

use crate::domain::{
    ids::AccountId,
    limiter::{Limiter, Permit},
    lock::lock,
};

/// Minimum interval of log lines about one account.
const LOG_PERIOD: Duration = Duration::from_mins(1);
/// Maximum bytes by which a reservation grows or shrinks at once.
const STEP: usize = 1 << 20;

/// `None` before a request is authenticated.
type Owner = Option<AccountId>;

task_local! {
    /// The reservation of the task's request.
    static REQUEST: Arc<Reservation>;
}

/// The budget of a process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limiter: Limiter<Owner>,
    refused: AtomicU64,
    logged: Mutex<HashMap<Owner, Instant>>,
}

impl Memory {
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Inner {
            limiter: Limiter::shared(bytes, 0),
            refused: AtomicU64::new(0),
            logged: Mutex::default(),
        }))
    }

    /// Runs the work of a new request or a job's step, which [`charge_to`] assigns to an account.
    pub async fn for_request<T>(&self, work: impl Future<Output = T>) -> T {
        let reservation = Reservation::new(self.clone(), None);
        REQUEST.scope(Arc::new(reservation), work).await
    }

    /// Returns the used bytes and the budget.
    pub fn usage(&self) -> (usize, usize) {
        let total = self.0.limiter.total();
        // Started generations may exceed the budget.
        let used = self.0.limiter.held().iter().map(|(_, bytes)| bytes).sum();
        (used, total)
    }

    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    fn refuse(&self, owner: Owner) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let mut logged = lock(&self.0.logged);
        logged.retain(|_, at| now.duration_since(*at) < LOG_PERIOD);
        if logged.contains_key(&owner) {
            return;
        }
        logged.insert(owner, now);
        drop(logged);
        let (used, budget) = self.usage();
        let account = owner.map(tracing::field::display);
        tracing::warn!(
            account,
            used,
            budget,
            "request refused: the memory budget, or the account's part of it, is used up"
        );
    }
}

/// Bytes that are reserved for one owner until it is dropped.
#[derive(Debug)]
pub struct Reservation {
    memory: Memory,
    state: Mutex<Reserved>,
}

#[derive(Debug)]
struct Reserved {
    owner: Owner,
    used: usize,
    /// Their total weight is at least `used`.
    permits: Vec<Permit<Owner>>,
}

impl Reservation {
    fn new(memory: Memory, owner: Owner) -> Self {
        let state = Mutex::new(Reserved {
            owner,
            used: 0,
            permits: Vec::new(),
        });
        Self { memory, state }
    }

    /// Reserves more bytes for a request. Returns `false` if the owner would then have more than
    /// remains free. So one owner gets at most half, and there is always room for another owner
    /// (the dynamic threshold of Choudhury and Hahne, 1998).
    pub fn try_add(&self, bytes: usize) -> bool {
        self.try_reserve(bytes, Limiter::try_acquire_leaving) || self.refuse()
    }

    /// As [`Self::try_add`], for the result of a job that is tried again if there is no room. A large
    /// one counts as half of the budget, and fits if this half is free.
    pub fn try_add_result(&self, bytes: usize) -> bool {
        let total = self.memory.0.limiter.total();
        let has_room = self.try_reserve(bytes.min(total / 4), Limiter::try_acquire_leaving);
        if has_room {
            self.add(bytes.min(total / 2).saturating_sub(total / 4));
        }
        has_room
    }

    /// Reserves more bytes for work that has started. Returns `false` if the budget or the owner's
    /// half of it is used up.
    pub fn try_add_to_started(&self, bytes: usize) -> bool {
        self.try_reserve(bytes, Limiter::try_acquire_many) || self.refuse()
    }

    /// Counts and logs a refusal. Returns `false`.
    fn refuse(&self) -> bool {
        let owner = lock(&self.state).owner;
        self.memory.refuse(owner);
        false
    }

    fn try_reserve(
        &self,
        bytes: usize,
        acquire: fn(&Limiter<Owner>, Owner, usize) -> Option<Permit<Owner>>,
    ) -> bool {
        let mut state = lock(&self.state);
        let missing = (state.used + bytes).saturating_sub(state.reserved());
        if missing > 0 {
            let limiter = &self.memory.0.limiter;
            // More than needed, so that a growing reservation has few permits.
            let step = missing.max(state.used.min(STEP));
            let permit = acquire(limiter, state.owner, step);
            let permit = permit.or_else(|| acquire(limiter, state.owner, missing));
            let Some(permit) = permit else {
                return false;
            };
            state.permits.push(permit);
        }
        state.used += bytes;
        true
    }

    /// Adds bytes for work that has started, unless the owner has used up its half of the budget.
    /// The use of others does not matter.
    pub fn add_within_share(&self, bytes: usize) -> bool {
        let limiter = &self.memory.0.limiter;
        let (owner, missing) = {
            let state = lock(&self.state);
            let missing = (state.used + bytes).saturating_sub(state.reserved());
            (state.owner, missing)
        };
        if missing > 0 && limiter.held_by(owner) + missing > limiter.per_key() {
            return self.refuse();
        }
        self.add(bytes);
        true
    }

    /// Adds bytes regardless of the budget, for work that has started.
    pub fn add(&self, bytes: usize) {
        let mut state = lock(&self.state);
        let missing = (state.used + bytes).saturating_sub(state.reserved());
        if missing > 0 {
            let step = missing.max(state.used.min(STEP));
            let permit = self.memory.0.limiter.admit_many(state.owner, step);
            state.permits.push(permit);
        }
        state.used += bytes;
    }

    pub fn remove(&self, bytes: usize) {
        let mut state = lock(&self.state);
        state.used = state.used.saturating_sub(bytes);
        if state.used == 0 {
            state.permits.clear();
        } else if state.reserved() - state.used >= 2 * STEP {
            self.fit(&mut state);
        }
    }

    /// Returns all reserved bytes except `bytes`.
    pub fn shrink_to(&self, bytes: usize) {
        let mut state = lock(&self.state);
        state.used = state.used.min(bytes);
        self.fit(&mut state);
    }

    fn fit(&self, state: &mut Reserved) {
        // Released first, so that no other request is refused for bytes that are counted twice.
        state.permits.clear();
        if state.used > 0 {
            let permit = self.memory.0.limiter.admit_many(state.owner, state.used);
            state.permits.push(permit);
        }
    }
}

impl Reserved {
    fn reserved(&self) -> usize {
        self.permits.iter().map(Permit::weight).sum()
    }
}

pub fn current() -> Option<Arc<Reservation>> {
    REQUEST.try_with(Arc::clone).ok()
}

/// Returns a new reservation for the account of the current task.
pub fn reservation() -> Option<Reservation> {
    let current = current()?;
    let owner = lock(&current.state).owner;
    Some(Reservation::new(current.memory.clone(), owner))
}

/// Assigns the current request to an account.
pub fn charge_to(account: AccountId) {
    let Some(current) = current() else { return };
    let mut state = lock(&current.state);
    state.owner = Some(account);
    if state.used > 0 {
        current.fit(&mut state);
    }
}

pub async fn continued<T>(request: Option<Arc<Reservation>>, work: impl Future<Output = T>) -> T {
    match request {
        Some(request) => REQUEST.scope(request, work).await,
        None => work.await,
    }
}

/// Adds bytes that the current request keeps until its generation is stored.
pub fn keep(bytes: usize) {
    if let Some(current) = current() {
        current.add(bytes);
    }
}

/// Returns the reservation of the current request.
pub fn release() {
    if let Some(current) = current() {
        current.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_account_gets_half_and_started_work_is_counted() {
        let memory = Memory::new(1_000);
        let request = async {
            charge_to(AccountId(1));
            let body = current().unwrap();
            assert!(body.try_add(300));
            let answer = reservation().unwrap();
            assert!(!answer.try_add(201));
            assert_eq!(memory.refused(), 1);
            answer.add(900);
            assert_eq!(memory.usage(), (1_200, 1_000));
            assert!(!body.try_add(1));
            assert!(!answer.add_within_share(1));
            answer.remove(899);
            assert!(answer.add_within_share(10));
            answer.remove(10);
            assert!(answer.try_add(10));
            answer
        };
        let answer = memory.for_request(request).await;
        drop(answer);
        assert_eq!(memory.usage(), (0, 1_000));
        let others = async { current().unwrap().try_add(500) };
        assert!(memory.for_request(others).await);
    }

    #[tokio::test]
    async fn what_is_charged_to_an_account_later_moves_to_it() {
        let memory = Memory::new(1_000);
        let request = async {
            assert!(current().unwrap().try_add(400));
            charge_to(AccountId(1));
            assert!(!current().unwrap().try_add(101));
            let task = continued(current(), async { release() });
            task.await;
            assert_eq!(memory.usage().0, 0);
        };
        memory.for_request(request).await;
        assert_eq!(current().map(drop), None);
    }

    #[test]
    fn owners_that_take_what_they_can_leave_room_for_another() {
        let memory = Memory::new(1_200);
        let reservation = |n| Reservation::new(memory.clone(), Some(AccountId(n)));
        let reservations: Vec<_> = (1..=4).map(reservation).collect();
        let mut taken = [0; 4];
        for (reservation, taken) in reservations.iter().zip(&mut taken) {
            while reservation.try_add(10) {
                *taken += 10;
            }
        }
        assert_eq!(taken, [600, 300, 150, 70]);
        drop(reservations);
        assert_eq!(memory.usage().0, 0);
    }

    #[test]
    fn started_work_of_an_owner_above_its_part_gets_what_is_free() {
        let memory = Memory::new(1_000);
        let reservation = |n| Reservation::new(memory.clone(), Some(AccountId(n)));
        let (started, other) = (reservation(1), reservation(2));
        assert!(started.try_add(400));
        assert!(other.try_add(250));
        assert!(!started.try_add(1));
        assert!(started.try_add_to_started(100));
        // Its half is used up.
        assert!(!started.try_add_to_started(1));
        assert!(other.try_add_to_started(250));
        assert!(!other.try_add_to_started(1));
    }

    #[test]
    fn few_permits_hold_a_growing_reservation() {
        let reservation = Reservation::new(Memory::new(1 << 30), None);
        for _ in 0..10_000 {
            assert!(reservation.try_add(2_000));
        }
        let permits = lock(&reservation.state).permits.len();
        assert!(permits < 40, "{permits}");
        let (used, _) = reservation.memory.usage();
        assert!((20_000_000..20_000_000 + STEP).contains(&used));
        reservation.remove(19_000_000);
        assert!(reservation.memory.usage().0 < 1_000_000 + 2 * STEP);
    }
}
