//! The rate limit's arithmetic: GCRA in nanoseconds.
//!
//! A key may make `limit` requests at once and is refilled evenly, one each `emission`. The
//! state is one number, the theoretical arrival time (`tat`); the database decides
//! (`count_requests`), and this module explains the decision.

use chrono::{DateTime, Utc};

/// Requests per minute when a key names none; also each session's.
pub const DEFAULT_PER_MINUTE: u32 = 600;
/// The largest limit of a key.
pub const MAX_PER_MINUTE: u32 = 1_000_000;

const MINUTE_NANOS: i64 = 60_000_000_000;
const SECOND_NANOS: i64 = 1_000_000_000;

/// A limit of requests per minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gcra {
    limit: i64,
}

/// The state of a rate limit, for response headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateState {
    pub limit: u32,
    /// Requests that would be let through now.
    pub remaining: u32,
    /// Seconds until the whole burst is there again, rounded up.
    pub reset_seconds: u64,
    /// Seconds until one request will be let through; `None` when this one was.
    pub retry_after_seconds: Option<u64>,
}

/// Nanoseconds since the epoch: what `tat` is counted in (until the year 2262).
pub fn nanos(time: DateTime<Utc>) -> i64 {
    time.timestamp_nanos_opt().unwrap_or(i64::MAX)
}

impl Gcra {
    /// A limit; 0 counts as 1.
    pub fn per_minute(limit: u32) -> Self {
        Self {
            limit: i64::from(limit.clamp(1, MAX_PER_MINUTE)),
        }
    }

    /// Nanoseconds per request, rounded up, so that never more than the limit get through.
    fn emission_nanos(self) -> i64 {
        MINUTE_NANOS / self.limit + i64::from(MINUTE_NANOS % self.limit != 0)
    }

    /// How far `tat` may lie ahead of now: the whole burst.
    fn burst_nanos(self) -> i64 {
        self.emission_nanos() * self.limit
    }

    /// Explains the decision on one of several requests that were counted together: `place` is
    /// its place among them, from 0; `admitted` of them were let through, and `tat` is the stored
    /// value after them.
    pub fn counted(self, now: DateTime<Utc>, tat: i64, admitted: i32, place: usize) -> RateState {
        let after = usize::try_from(admitted)
            .unwrap_or(0)
            .checked_sub(place + 1);
        match after.and_then(|after| i64::try_from(after).ok()) {
            Some(after) => self.state(now, tat - after * self.emission_nanos(), true),
            None => self.state(now, tat, false),
        }
    }

    /// Explains a decision. `tat` is the stored value after it.
    pub fn state(self, now: DateTime<Utc>, tat: i64, admitted: bool) -> RateState {
        let now = nanos(now);
        let ahead = (tat - now).max(0);
        let room = (self.burst_nanos() - ahead).max(0);
        let seconds = |nanos: i64| {
            u64::try_from(nanos.max(0))
                .unwrap_or(0)
                .div_ceil(SECOND_NANOS.unsigned_abs())
        };
        let next = ahead + self.emission_nanos() - self.burst_nanos();
        RateState {
            limit: u32::try_from(self.limit).unwrap_or(u32::MAX),
            remaining: u32::try_from(room / self.emission_nanos()).unwrap_or(u32::MAX),
            reset_seconds: seconds(ahead),
            retry_after_seconds: (!admitted).then(|| seconds(next).max(1)),
        }
    }
}
