//! The order in which requests of one account that wait for credits on hold try again.
//!
//! Each API key, and the sessions together, have a queue in order of arrival; the queues are served
//! round robin, and one request tries at a time. A pass lets each request that may try do so once;
//! a settlement or a timer starts the next pass. A request that was refused does not keep smaller
//! ones waiting, except for two things: those of its own key let it go first for [`PATIENCE`], and
//! the one that has waited longest gets all credits that become free for [`RESERVATION`], so that
//! large holds do not starve. These do not add up: one that has let others go first for [`PATIENCE`]
//! may try once during a reservation.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::domain::{credits::Credits, ids::ApiKeyId};

/// How long a request lets those of its own key go first, and waits before it gets a reservation.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long one request alone may try.
const RESERVATION: Duration = Duration::from_secs(2);
/// Between two reservations of an account.
const RESERVATION_PAUSE: Duration = Duration::from_secs(8);
/// Between two passes without a settlement in this process: shorter, the shorter the wait so far.
const PASS_INTERVAL: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(2)];

/// An API key; `None`: the sessions.
pub(super) type QueueKey = Option<ApiKeyId>;

#[derive(Debug)]
pub(super) struct WaitQueue {
    /// In order of arrival.
    waiting: Vec<Waiting>,
    /// The keys that wait, the one to be served next first.
    keys: VecDeque<QueueKey>,
    /// The request that is trying now.
    trying: Option<u64>,
    pass: u64,
    pass_began: Instant,
    /// In this pass: no hold of this amount or more fits the account.
    too_large: Option<Credits>,
    reservation: Option<(u64, Instant)>,
    no_reservation_before: Instant,
    next_ticket: u64,
}

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    key: QueueKey,
    since: Instant,
    /// The required hold; `None` before the first try if it depends on the free credits.
    required: Option<Credits>,
    /// Whether the account's balance was on hold, not only the limit of its key.
    lacks_balance: bool,
    /// The pass in which it last tried.
    tried_in: u64,
    turn: Arc<Notify>,
}

impl WaitQueue {
    pub fn new(now: Instant) -> Self {
        Self {
            waiting: Vec::new(),
            keys: VecDeque::new(),
            trying: None,
            pass: 1,
            pass_began: now,
            too_large: None,
            reservation: None,
            no_reservation_before: now,
            next_ticket: 0,
        }
    }

    /// Whether a request that arrives now must wait before its first try.
    pub fn must_wait(&self, key: QueueKey, now: Instant) -> bool {
        self.keys.contains(&key) || self.reservation.is_some_and(|(_, until)| now < until)
    }

    /// Adds a request. `turn` is notified when it may try.
    pub fn enter(
        &mut self,
        key: QueueKey,
        required: Option<Credits>,
        turn: Arc<Notify>,
        now: Instant,
    ) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        if !self.keys.contains(&key) {
            self.keys.push_back(key);
        }
        self.waiting.push(Waiting {
            ticket,
            key,
            since: now,
            required,
            lacks_balance: false,
            tried_in: 0,
            turn,
        });
        self.advance(now);
        ticket
    }

    /// Removes a request: it was placed, or its caller waits no longer.
    pub fn leave(&mut self, ticket: u64, now: Instant) {
        let Some(at) = self.waiting.iter().position(|one| one.ticket == ticket) else {
            return;
        };
        let left = self.waiting.remove(at);
        if self.trying == Some(ticket) {
            self.trying = None;
            // The key is served again after the others.
            self.keys.retain(|key| *key != left.key);
            self.keys.push_back(left.key);
        }
        if !self.waiting.iter().any(|one| one.key == left.key) {
            self.keys.retain(|key| *key != left.key);
        }
        self.advance(now);
    }

    /// Records a failed try. `of_account`: credits of the account were on hold, not only of the
    /// key's limit.
    pub fn refused(&mut self, ticket: u64, required: Credits, of_account: bool, now: Instant) {
        let pass = self.pass;
        let Some(one) = self.waiting.iter_mut().find(|one| one.ticket == ticket) else {
            return;
        };
        one.required = Some(required);
        one.lacks_balance = of_account;
        one.tried_in = pass;
        if of_account {
            self.too_large = Some(self.too_large.map_or(required, |least| least.min(required)));
        }
        if self.trying == Some(ticket) {
            self.trying = None;
        }
        self.advance(now);
    }

    /// Starts a pass after a settlement.
    pub fn credits_freed(&mut self, now: Instant) {
        self.begin_pass(now);
        self.advance(now);
    }

    /// Whether it is this request's turn to try.
    pub fn is_trying(&self, ticket: u64) -> bool {
        self.trying == Some(ticket)
    }

    /// Lets the next request try, if any may. Call this periodically, because the passage of time
    /// alone may allow a try.
    pub fn advance(&mut self, now: Instant) {
        self.reserve(now);
        if self.trying.is_some() {
            return;
        }
        let next = self.next(now).or_else(|| {
            let oldest = self.waiting.first()?;
            let [least, most] = PASS_INTERVAL;
            let interval = (now.duration_since(oldest.since) / 8).clamp(least, most);
            if now < self.pass_began + interval {
                return None;
            }
            self.begin_pass(now);
            self.next(now)
        });
        if let Some(next) = next.and_then(|at| self.waiting.get(at)) {
            self.trying = Some(next.ticket);
            next.turn.notify_one();
        }
    }

    fn begin_pass(&mut self, now: Instant) {
        self.pass += 1;
        self.pass_began = now;
        self.too_large = None;
    }

    /// Ends a reservation, or gives one to the request that has waited longest.
    fn reserve(&mut self, now: Instant) {
        if let Some((ticket, until)) = self.reservation {
            if now < until && self.waiting.iter().any(|one| one.ticket == ticket) {
                return;
            }
            self.reservation = None;
            self.no_reservation_before = now + RESERVATION_PAUSE;
        }
        let is_due = |one: &&Waiting| one.lacks_balance && now >= one.since + PATIENCE;
        if let Some(oldest) = self.waiting.iter().find(is_due)
            && now >= self.no_reservation_before
        {
            self.reservation = Some((oldest.ticket, now + RESERVATION));
        }
    }

    /// The place of the request that tries next.
    fn next(&self, now: Instant) -> Option<usize> {
        self.keys.iter().find_map(|key| {
            let own = || self.waiting.iter().filter(|one| one.key == *key);
            let first = own().next()?.ticket;
            self.waiting.iter().position(|one| {
                let is_its_turn = one.ticket == first || now >= one.since + PATIENCE;
                one.key == *key && is_its_turn && self.may_try(one, now)
            })
        })
    }

    fn may_try(&self, one: &Waiting, now: Instant) -> bool {
        let has_only_waited = one.tried_in == 0 && now >= one.since + PATIENCE;
        let is_held_back = self
            .reservation
            .is_some_and(|(ticket, _)| ticket != one.ticket && !has_only_waited);
        let cannot_fit = (self.too_large.zip(one.required))
            .is_some_and(|(too_large, required)| required >= too_large);
        !is_held_back && !cannot_fit && one.tried_in < self.pass
    }
}

#[cfg(test)]
mod tests;
