//! Requests that wait for credits on hold, in the order in which they came.
//!
//! The first of a line tries again whenever a generation of its account is settled in this process,
//! and now and then, for what other servers settle; the others wait behind it. Whoever waits has
//! given back every seat that others need.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    sync::OwnedMutexGuard,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    domain::{
        ids::{AccountId, ApiKeyId},
        limiter::Permit,
    },
    jobs::Waiter,
    service::{CreditsShort, Service, ServiceError, ShortOf, auth::Caller},
    store::generations::Credential,
};

/// When the first of a line tries again at the latest: the sooner, the shorter it has waited.
const AGAIN: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(2)];

/// What is waited for: a key that only its own cap stops stands in nobody's way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Line {
    Account(AccountId),
    Key(ApiKeyId),
}

type Turns = tokio::sync::Mutex<()>;

/// The lines in which anybody waits.
#[derive(Debug, Default)]
pub struct Lines(Mutex<HashMap<Line, Weak<Turns>>>);

impl Lines {
    fn join(&self, line: Line) -> Arc<Turns> {
        let mut lines = self.lock();
        if let Some(turns) = lines.get(&line).and_then(Weak::upgrade) {
            return turns;
        }
        lines.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::default();
        lines.insert(line, Arc::downgrade(&turns));
        turns
    }

    fn is_empty(&self, line: Line) -> bool {
        let turns = self.lock().get(&line).map_or(0, Weak::strong_count);
        turns == 0
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Line, Weak<Turns>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that may wait, for a time.
pub(super) struct Queue<'a, F> {
    service: &'a Service,
    caller: &'a Caller,
    begun: Instant,
    until: Instant,
    /// Called before it waits.
    waiting: F,
    permit: Option<Permit<AccountId>>,
    first: Option<First>,
}

/// The first of a line.
struct First {
    line: Line,
    /// Of settlements, from before the next try on.
    freed: Waiter<AccountId>,
    #[expect(dead_code, reason = "held, not read")]
    turn: OwnedMutexGuard<()>,
}

impl<'a, F: Fn() + Send> Queue<'a, F> {
    /// For a caller who waits at most as long as the settings say.
    pub fn new(service: &'a Service, caller: &'a Caller, waiting: F) -> Self {
        let begun = Instant::now();
        Self {
            service,
            caller,
            begun,
            until: begun + service.0.settings.hold_wait,
            waiting,
            permit: None,
            first: None,
        }
    }

    /// Lets those go first who wait already; whether there were any.
    pub async fn line_up(&mut self) -> Result<bool, ServiceError> {
        let lines = &self.service.0.lines;
        let own = [Some(Line::Account(self.caller.account_id)), self.key()];
        let mut own = own.into_iter().flatten();
        match own.find(|line| !lines.is_empty(*line)) {
            Some(line) => {
                self.wait_in(line).await?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Waits until another try is worth it. `false`: it is not, or the time is over.
    pub async fn may_try_again(&mut self, short: &CreditsShort) -> Result<bool, ServiceError> {
        let line = match short.of {
            ShortOf::Holds => Some(Line::Account(self.caller.account_id)),
            ShortOf::HoldsOfKey(_) => self.key(),
            ShortOf::MaxCost | ShortOf::SpendLimit(_) | ShortOf::Balance => None,
        };
        match line {
            Some(line) => self.wait_in(line).await,
            None => Ok(false),
        }
    }

    fn key(&self) -> Option<Line> {
        match self.caller.credential {
            Credential::ApiKey(id) => Some(Line::Key(id)),
            Credential::Session(_) => None,
        }
    }

    async fn wait_in(&mut self, line: Line) -> Result<bool, ServiceError> {
        let inner = &self.service.0;
        if self.caller.is_open() {
            // Nobody waits whose key may have ended, or who may be over the limit.
            return Err(ServiceError::NotAsPresumed);
        }
        if Instant::now() >= self.until {
            return Ok(false);
        }
        if self.permit.is_none() {
            self.permit = inner.waits.try_acquire(self.caller.account_id);
            if self.permit.is_none() {
                return Ok(false);
            }
        }
        (self.waiting)();
        let account = self.caller.account_id;
        // Whoever stands behind need not wait for another line.
        self.first.take_if(|first| first.line != line);
        let (first, waited) = (&self.first, self.begun.elapsed());
        let turn = async {
            match first {
                Some(first) => {
                    let [soon, late] = AGAIN;
                    let pause = (waited / 8).clamp(soon, late);
                    let _elapsed = timeout(pause, first.freed.woken()).await;
                    None
                }
                None => Some(inner.lines.join(line).lock_owned().await),
            }
        };
        let turn = timeout_at(self.until, turn);
        let turn = inner.runner.stopping().run_until_cancelled(turn).await;
        let Some(Ok(turn)) = turn else {
            return Ok(false);
        };
        if let Some(turn) = turn {
            self.first = Some(First {
                line,
                freed: inner.runner.freed(account),
                turn,
            });
        }
        Ok(true)
    }
}
