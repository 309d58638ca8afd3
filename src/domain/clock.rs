//! The injected clock: in production the database's time, so that all replicas agree; in tests a
//! manual clock.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use chrono::{DateTime, DurationRound, SecondsFormat, TimeDelta, Utc};
use serde::{Serialize as _, Serializer};

use super::lock::lock;

/// Clock skew of this machine from which the server reports itself as degraded.
pub const MAX_SKEW: TimeDelta = TimeDelta::seconds(30);

pub trait Clock: Send + Sync {
    /// Returns the time in whole microseconds, the precision of Postgres, so that a stored time
    /// equals the one in memory.
    fn now(&self) -> DateTime<Utc>;

    /// Returns the monotonic time since an arbitrary origin, to measure durations in this process.
    fn monotonic(&self) -> Duration;

    /// Adjusts to a reading of the database's clock; only [`DatabaseClock`] does.
    fn follow(&self, _reading: &ClockReading) {}

    /// Returns by how much the machine's clock is ahead of this one.
    fn machine_ahead(&self) -> TimeDelta {
        TimeDelta::zero()
    }
}

pub type SharedClock = Arc<dyn Clock>;

/// Serializes times with six fractional digits, so that their texts sort like the times and filters
/// by them are exact.
pub fn rfc3339<T, S>(time: &T, serializer: S) -> Result<S::Ok, S::Error>
where
    T: Copy + Into<Option<DateTime<Utc>>>,
    S: Serializer,
{
    let time: Option<DateTime<Utc>> = (*time).into();
    let text = time.map(|time| time.to_rfc3339_opts(SecondsFormat::Micros, true));
    text.serialize(serializer)
}

/// Reads the machine's clock, only for logs and to measure skew. Nothing shared between replicas
/// may use it.
#[expect(
    clippy::disallowed_methods,
    reason = "the only place that reads the system time"
)]
pub fn machine_time() -> DateTime<Utc> {
    Utc::now()
}

/// A reading of the database's clock, with the monotonic time before and after the query.
#[derive(Debug, Clone, Copy)]
pub struct ClockReading {
    sent: Instant,
    time: DateTime<Utc>,
    received: Instant,
}

impl ClockReading {
    /// Takes a reading, measuring the time around the query `reading`.
    pub async fn of<E>(reading: impl Future<Output = Result<DateTime<Utc>, E>>) -> Result<Self, E> {
        let sent = Instant::now();
        let time = reading.await?;
        Ok(Self {
            sent,
            time,
            received: Instant::now(),
        })
    }
}

/// The database's clock, advanced by the machine's monotonic clock between readings.
#[derive(Debug)]
pub struct DatabaseClock {
    /// Used only to measure skew.
    machine: fn() -> DateTime<Utc>,
    origin: Instant,
    /// The database's time at `origin`, in microseconds since the epoch.
    at_origin: AtomicI64,
}

impl DatabaseClock {
    /// Starts from a first reading.
    pub fn new(machine: fn() -> DateTime<Utc>, first: &ClockReading) -> Self {
        Self {
            machine,
            origin: first.received,
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

    /// Adjusts to a reading, which bounds the true offset from both sides. An offset within the
    /// bounds is kept, so that a slow response changes nothing.
    fn follow(&self, reading: &ClockReading) {
        let time = reading.time.timestamp_micros();
        let (sent, received) = (
            self.micros_at(reading.sent),
            self.micros_at(reading.received),
        );
        let order = Ordering::Relaxed;
        self.at_origin.fetch_max(time - received, order);
        self.at_origin.fetch_min(time - sent, order);
    }

    fn machine_ahead(&self) -> TimeDelta {
        (self.machine)() - self.now()
    }
}

/// A clock that only moves when it is advanced.
#[derive(Debug)]
pub struct ManualClock(Mutex<DateTime<Utc>>);

impl ManualClock {
    pub fn new(now: DateTime<Utc>) -> Self {
        let micros = now.duration_trunc(TimeDelta::microseconds(1));
        Self(Mutex::new(micros.unwrap_or(now)))
    }

    pub fn advance(&self, by: TimeDelta) {
        *lock(&self.0) += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        *lock(&self.0)
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

    /// Returns a reading of `seconds` after `start`, measured between `sent` and `received`.
    fn reading(start: Instant, sent: u64, seconds: i64, received: u64) -> ClockReading {
        ClockReading {
            sent: start + Duration::from_secs(sent),
            time: time(seconds),
            received: start + Duration::from_secs(received),
        }
    }

    /// Returns the clock's time `at` seconds after `start`.
    fn shown(clock: &DatabaseClock, start: Instant, at: u64) -> DateTime<Utc> {
        let at = clock.micros_at(start + Duration::from_secs(at));
        DateTime::from_timestamp_micros(clock.at_origin.load(Ordering::Relaxed) + at).unwrap()
    }

    #[test]
    fn it_moves_only_as_far_as_a_reading_proves_it_wrong() {
        let start = Instant::now();
        let clock = DatabaseClock::new(machine_time, &reading(start, 0, 0, 0));
        assert_eq!(shown(&clock, start, 100), time(100));
        // Slow responses, read at the beginning, the end, or in between.
        for read in [100, 105, 110] {
            clock.follow(&reading(start, 100, read, 110));
            assert_eq!(shown(&clock, start, 200), time(200), "{read}");
        }
        // The database was at least 5 s ahead, and then 2 s behind.
        clock.follow(&reading(start, 200, 215, 210));
        assert_eq!(shown(&clock, start, 300), time(305));
        clock.follow(&reading(start, 300, 303, 300));
        assert_eq!(shown(&clock, start, 400), time(403));
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
        // No better bound is known: the reading applies at the time of the response.
        assert_eq!(shown(&late, start, 100), time(0));
    }
}
