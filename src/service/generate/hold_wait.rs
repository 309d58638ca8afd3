//! Requests of SDKs that wait for credits on hold, in the order of [`WaitQueue`].
//!
//! A waiting request holds no permit that others need.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
    time::{Duration, Instant},
};

use tokio::{sync::Notify, time::sleep};

use super::wait_queue::{QueueKey, WaitQueue};
use crate::{
    domain::{credits::Credits, ids::AccountId, lock::lock},
    jobs::Waiter,
    service::{CreditsShort, Result, Service, ServiceError, ShortOf, WaitPlace, auth::Caller},
    store::generations::Credential,
};

/// Interval at which a waiting request checks the queue when nothing wakes it.
const LOOK: Duration = Duration::from_millis(100);

/// Queues of the accounts whose requests wait.
#[derive(Debug, Default)]
pub struct HoldQueues(Mutex<HashMap<AccountId, Weak<AccountQueue>>>);

#[derive(Debug)]
struct AccountQueue {
    queue: Mutex<WaitQueue>,
    /// Woken by settlements of the account in this process.
    freed: Waiter<AccountId>,
}

impl HoldQueues {
    fn get(&self, account: AccountId) -> Option<Arc<AccountQueue>> {
        lock(&self.0).get(&account).and_then(Weak::upgrade)
    }

    fn get_or_insert(
        &self,
        account: AccountId,
        freed: impl FnOnce() -> Waiter<AccountId>,
    ) -> Arc<AccountQueue> {
        let mut queues = lock(&self.0);
        if let Some(queue) = queues.get(&account).and_then(Weak::upgrade) {
            return queue;
        }
        queues.retain(|_, queue| queue.strong_count() > 0);
        let queue = Arc::new(AccountQueue {
            queue: Mutex::new(WaitQueue::new(Instant::now())),
            freed: freed(),
        });
        queues.insert(account, Arc::downgrade(&queue));
        queue
    }
}

/// A request's wait for credits.
pub(super) struct HoldWait<'a, F> {
    service: &'a Service,
    caller: &'a Caller,
    until: Instant,
    /// Whether it may wait for credits on hold.
    pub is_for_credits: bool,
    /// Called before it waits.
    waiting: F,
    /// The permit to wait.
    pub place: Option<WaitPlace>,
    /// The required hold, unless it depends on the free credits.
    required: Option<Credits>,
    ticket: Option<Ticket>,
}

/// A place in an account's queue, left on drop.
struct Ticket {
    account: Arc<AccountQueue>,
    number: u64,
    turn: Arc<Notify>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        lock(&self.account.queue).leave(self.number, Instant::now());
    }
}

impl<'a, F: Fn() + Send> HoldWait<'a, F> {
    pub fn new(service: &'a Service, caller: &'a Caller, is_for_credits: bool, waiting: F) -> Self {
        Self {
            service,
            caller,
            until: Instant::now() + service.0.settings.hold_wait,
            is_for_credits,
            waiting,
            place: None,
            required: None,
            ticket: None,
        }
    }

    /// Takes a permit to wait, if it has none.
    pub fn take_place(&mut self) -> bool {
        let waits = &self.service.0.waits;
        if self.place.is_none() {
            self.place = waits.try_acquire(self.caller.account_id);
        }
        self.place.is_some()
    }

    /// Leaves the queue to wait for something else, so that the account's other requests may try.
    /// Returns `false` if there is no permit to wait.
    pub fn step_aside(&mut self) -> bool {
        self.ticket = None;
        let has_place = self.take_place();
        if has_place {
            (self.waiting)();
        }
        has_place
    }

    /// Waits before the first try if other requests come first. Returns whether it has waited.
    /// `required`: the required hold, unless it depends on the free credits.
    pub async fn enter(&mut self, required: Option<Credits>) -> Result<bool> {
        self.required = required;
        let account = self.service.0.hold_queues.get(self.caller.account_id);
        let is_queued = account.is_some_and(|account| {
            let queue = lock(&account.queue);
            queue.must_wait(self.key(), Instant::now())
        });
        if is_queued {
            self.wait().await?;
        }
        Ok(is_queued)
    }

    /// Waits until another try may succeed. Returns `false` if it cannot, or the time is over.
    pub async fn may_try_again(&mut self, short: &CreditsShort) -> Result<bool> {
        let of_account = match short.of {
            _ if !self.is_for_credits => return Ok(false),
            ShortOf::Holds => true,
            ShortOf::HoldsOfKey(_) => false,
            ShortOf::MaxCost | ShortOf::SpendLimit(_) | ShortOf::Balance => return Ok(false),
        };
        if let Some(ticket) = &self.ticket {
            let mut queue = lock(&ticket.account.queue);
            queue.refused(ticket.number, short.required, of_account, Instant::now());
        }
        self.wait().await
    }

    fn key(&self) -> QueueKey {
        match self.caller.credential {
            Credential::ApiKey(id) => Some(id),
            Credential::Session(_) => None,
        }
    }

    /// Waits for its turn to try.
    async fn wait(&mut self) -> Result<bool> {
        let inner = &self.service.0;
        if self.caller.is_unconfirmed() {
            // The key may have been revoked, or be over its rate limit.
            return Err(ServiceError::NotAsPresumed);
        }
        if Instant::now() >= self.until || !self.take_place() {
            return Ok(false);
        }
        (self.waiting)();
        let (account, key, required) = (self.caller.account_id, self.key(), self.required);
        let ticket = self.ticket.get_or_insert_with(|| {
            let freed = || inner.runner.freed(account);
            let account = inner.hold_queues.get_or_insert(account, freed);
            let turn = Arc::<Notify>::default();
            let number =
                lock(&account.queue).enter(key, required, Arc::clone(&turn), Instant::now());
            Ticket {
                account,
                number,
                turn,
            }
        });
        let stopping = inner.runner.stopping();
        loop {
            if lock(&ticket.account.queue).is_trying(ticket.number) {
                return Ok(true);
            }
            let rest = self.until.saturating_duration_since(Instant::now());
            if rest.is_zero() || stopping.is_cancelled() {
                return Ok(false);
            }
            tokio::select! {
                () = ticket.turn.notified() => {}
                () = ticket.account.freed.woken() => {
                    lock(&ticket.account.queue).credits_freed(Instant::now());
                }
                () = sleep(rest.min(LOOK)) => lock(&ticket.account.queue).advance(Instant::now()),
                () = stopping.cancelled() => {}
            }
        }
    }
}
