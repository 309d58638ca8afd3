//! The clock that is passed in: in a server the database's, so that all replicas agree, and in
//! a test one that it moves.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use chrono::{DateTime, DurationRound, TimeDelta, Utc};

/// How far the machine's clock may be off before the server is not well.
pub const MAX_SKEW: TimeDelta = TimeDelta::seconds(30);

pub trait Clock: Send + Sync {
    /// Now, in whole microseconds: what Postgres keeps, so that a stored time equals the one
    /// in memory.
    fn now(&self) -> DateTime<Utc>;

    /// Time since some moment. Unlike [`Self::now`] it never jumps: for how long something has
    /// lasted as seen by this process.
    fn monotonic(&self) -> Duration;

    /// Follows a reading of the database's clock, where this is it.
    fn follow(&self, _reading: &ClockReading) {}

    /// How far the machine's clock is ahead of this one.
    fn machine_ahead(&self) -> TimeDelta {
        TimeDelta::zero()
    }
}

/// A clock to be shared.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clock: for logs, and to be compared. Nothing that replicas share goes by it.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the time"
)]
pub fn machine_time() -> DateTime<Utc> {
    Utc::now()
}

/// What the database's clock showed at some moment between question and answer.
#[derive(Debug, Clone, Copy)]
pub struct ClockReading {
    asked: Instant,
    time: DateTime<Utc>,
    answered: Instant,
}

impl ClockReading {
    /// Notes when `reading` begins and ends.
    pub async fn of<E>(reading: impl Future<Output = Result<DateTime<Utc>, E>>) -> Result<Self, E> {
        let asked = Instant::now();
        let time = reading.await?;
        Ok(Self {
            asked,
            time,
            answered: Instant::now(),
        })
    }
}

/// The database's clock, carried on by the machine's monotonic one between readings.
#[derive(Debug)]
pub struct DatabaseClock {
    /// Only compared.
    machine: fn() -> DateTime<Utc>,
    origin: Instant,
    /// What the database's clock shows at `origin`, in microseconds since the epoch.
    at_origin: AtomicI64,
}

impl DatabaseClock {
    /// A clock that shows what was read, compared with the machine's.
    pub fn new(machine: fn() -> DateTime<Utc>, first: &ClockReading) -> Self {
        Self {
            machine,
            origin: first.answered,
            at_origin: AtomicI64::new(first.time.timestamp_micros()),
        }
    }

    fn micros_at(&self, at: Instant) -> i64 {
        let since = at.saturating_duration_since(self.origin).as_micros();
        i64::try_from(since).unwrap_or(i64::MAX)
    }
}

impl Clock for DatabaseClock {
    fn now(&self) -> DateTime<Utc> {
        let now = self.at_origin.load(Ordering::Relaxed) + self.micros_at(Instant::now());
        DateTime::from_timestamp_micros(now).unwrap_or_default()
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }

    /// The reading bounds the true time from both sides. What lies within the bounds stays, so
    /// that an answer that took long moves nothing.
    fn follow(&self, reading: &ClockReading) {
        let time = reading.time.timestamp_micros();
        let (asked, answered) = (
            self.micros_at(reading.asked),
            self.micros_at(reading.answered),
        );
        let within = |at: i64| Some(at.clamp(time - answered, time - asked));
        let moved = self
            .at_origin
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
        // `within` always answers.
        let _ = moved;
    }

    fn machine_ahead(&self) -> TimeDelta {
        (self.machine)() - self.now()
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct ManualClock(Mutex<DateTime<Utc>>);

impl ManualClock {
    /// A clock that stands at `now`.
    pub fn new(now: DateTime<Utc>) -> Self {
        let micros = now.duration_trunc(TimeDelta::microseconds(1));
        Self(Mutex::new(micros.unwrap_or(now)))
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

    fn monotonic(&self) -> Duration {
        let since = self.now() - DateTime::UNIX_EPOCH;
        since.to_std().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000 + seconds, 0).unwrap()
    }

    /// Asked and answered that many seconds after `start`.
    fn reading(start: Instant, asked: u64, seconds: i64, answered: u64) -> ClockReading {
        ClockReading {
            asked: start + Duration::from_secs(asked),
            time: time(seconds),
            answered: start + Duration::from_secs(answered),
        }
    }

    /// What the clock shows `at` seconds after `start`.
    fn shown(clock: &DatabaseClock, start: Instant, at: u64) -> DateTime<Utc> {
        let at = clock.micros_at(start + Duration::from_secs(at));
        DateTime::from_timestamp_micros(clock.at_origin.load(Ordering::Relaxed) + at).unwrap()
    }

    #[test]
    fn it_moves_only_as_far_as_a_reading_proves_it_wrong() {
        let start = Instant::now();
        let clock = DatabaseClock::new(machine_time, &reading(start, 0, 0, 0));
        assert_eq!(shown(&clock, start, 100), time(100));
        // Slow answers, read at their beginning, at their end, or in between.
        for read in [100, 105, 110] {
            clock.follow(&reading(start, 100, read, 110));
            assert_eq!(shown(&clock, start, 200), time(200), "{read}");
        }
        // The database was 5 s ahead at least, and then 2 s behind that.
        clock.follow(&reading(start, 200, 215, 210));
        assert_eq!(shown(&clock, start, 300), time(305));
        clock.follow(&reading(start, 300, 303, 300));
        assert_eq!(shown(&clock, start, 400), time(403));
        // Jumps.
        clock.follow(&reading(start, 400, 4_000, 401));
        assert_eq!(shown(&clock, start, 500), time(4_099));
        clock.follow(&reading(start, 500, -4_000, 501));
        assert_eq!(shown(&clock, start, 600), time(-3_900));
    }

    #[test]
    fn the_machine_is_compared_and_nothing_else() {
        let start = Instant::now();
        let clock = DatabaseClock::new(|| time(2_400), &reading(start, 0, 0, 0));
        let passed = start.elapsed() + Duration::from_secs(9);
        assert!(clock.now() >= time(0) && clock.now() < time(0) + passed);
        let ahead = clock.machine_ahead();
        assert!(ahead <= TimeDelta::seconds(2_400) && ahead > TimeDelta::seconds(2_300));
        let slow = reading(start, 0, 0, 100);
        let late = DatabaseClock::new(machine_time, &slow);
        // Not known better yet: what was read is shown at the answer.
        assert_eq!(shown(&late, start, 100), time(0));
    }
}
