//! Named limiters for resources that accounts and addresses share.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, timeout};

use crate::domain::{
    limiter::{Limiter, Permit},
    party::Party,
};

/// Minimum interval of log lines about one party.
const LOG_PERIOD: Duration = Duration::from_mins(1);
/// Maximum parties in the log's rate limiter; refusals of further ones are not logged.
const MAX_LOGGED: usize = 1_024;

/// A limiter that gives one party at most half of its permits, and serves waiting parties round
/// robin.
#[derive(Debug)]
pub struct Resource {
    limiter: Limiter<Party>,
    max_wait: Duration,
    refusals: Refusals,
}

impl Resource {
    /// Creates a limiter. `name`: for the log. At most `queue` callers wait, each at most
    /// `max_wait`.
    pub fn new(name: &'static str, places: usize, queue: usize, max_wait: Duration) -> Self {
        Self {
            limiter: Limiter::shared(places, queue),
            max_wait,
            refusals: Refusals::new(name),
        }
    }

    /// Waits for a permit. Returns `None`, and logs it, if the queue is full or the wait too long.
    pub async fn acquire(&self, party: impl Into<Party>) -> Option<Permit<Party>> {
        let party = party.into();
        let permit = timeout(self.max_wait, self.limiter.acquire(party, 1)).await;
        let permit = permit.ok().flatten();
        if permit.is_none() {
            self.refusals.log(party);
        }
        permit
    }

    /// Returns a permit without waiting, or `None`, which is logged.
    pub fn try_acquire(&self, party: impl Into<Party>) -> Option<Permit<Party>> {
        let party = party.into();
        let permit = self.limiter.try_acquire(party);
        if permit.is_none() {
            self.refusals.log(party);
        }
        permit
    }
}

/// Logs refusals, at most once a minute for each party.
#[derive(Debug)]
pub struct Refusals {
    name: &'static str,
    logged: Mutex<HashMap<Party, Instant>>,
}

impl Refusals {
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            logged: Mutex::default(),
        }
    }

    pub fn log(&self, party: Party) {
        if self.is_due(party, Instant::now()) {
            tracing::warn!(resource = self.name, %party, "resource is fully used; requests are refused");
        }
    }

    fn is_due(&self, party: Party, now: Instant) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: &Instant| now.duration_since(*at) < LOG_PERIOD;
        if logged.get(&party).is_some_and(is_recent) {
            return false;
        }
        if logged.len() >= MAX_LOGGED {
            logged.retain(|_, at| is_recent(at));
        }
        let has_room = logged.len() < MAX_LOGGED;
        if has_room {
            logged.insert(party, now);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::AccountId;

    #[test]
    fn a_party_is_logged_once_a_minute() {
        let refusals = Refusals::new("test");
        let (one, other) = (Party::from(AccountId(1)), Party::from(AccountId(2)));
        let now = Instant::now();
        let due = [one, other, one].map(|party| refusals.is_due(party, now));
        assert_eq!(due, [true, true, false]);
        let later = now + LOG_PERIOD;
        assert!(refusals.is_due(one, later) && !refusals.is_due(one, later));
    }

    #[tokio::test]
    async fn a_party_at_its_share_leaves_the_rest_to_others() {
        let resource = Resource::new("test", 2, 4, Duration::ZERO);
        let (one, other) = (AccountId(1), AccountId(2));
        let held = resource.acquire(one).await.unwrap();
        assert!(resource.acquire(one).await.is_none());
        assert!(resource.try_acquire(one).is_none());
        assert!(resource.acquire(other).await.is_some());
        drop(held);
        assert!(resource.acquire(one).await.is_some());
    }
}
