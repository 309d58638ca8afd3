//! The clock that is passed in, so that a test can move time.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, DurationRound, TimeDelta, Utc};

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Now, in whole microseconds: what Postgres keeps, so that a stored time equals the one
    /// in memory.
    fn now(&self) -> DateTime<Utc>;

    /// Whether the database's own clock stands for the same time. It then decides where
    /// replicas must agree.
    fn is_real(&self) -> bool {
        false
    }
}

/// A clock to be shared.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the time"
    )]
    fn now(&self) -> DateTime<Utc> {
        truncate(Utc::now())
    }

    fn is_real(&self) -> bool {
        true
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct ManualClock(Mutex<DateTime<Utc>>);

impl ManualClock {
    /// A clock that stands at `now`.
    pub fn new(now: DateTime<Utc>) -> Self {
        Self(Mutex::new(truncate(now)))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: TimeDelta) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn truncate(time: DateTime<Utc>) -> DateTime<Utc> {
    time.duration_trunc(TimeDelta::microseconds(1))
        .unwrap_or(time)
}
