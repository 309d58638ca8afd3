//! The rate limit's arithmetic: GCRA in nanoseconds.
//!
//! A key may make `limit` requests at once and regains one each `emission`. The state is one
//! number, the theoretical arrival time (`tat`). The database decides (`count_requests`), and this
//! module explains the decision.

use chrono::{DateTime, Utc};

/// Default requests per minute of a key; also each session's limit.
pub const DEFAULT_PER_MINUTE: u32 = 600;
/// Maximum limit of a key.
pub const MAX_PER_MINUTE: u32 = 1_000_000;

const MINUTE_NANOS: u64 = 60_000_000_000;
const SECOND_NANOS: u64 = 1_000_000_000;

/// A limit of requests per minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gcra {
    limit: u32,
}

/// The state of a rate limit, for response headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateState {
    pub limit: u32,
    /// Requests that would be admitted now.
    pub remaining: u32,
    /// Seconds until all requests are available again, rounded up.
    pub reset_seconds: u64,
    /// Seconds until one request will be admitted; `None` if this one was.
    pub retry_after_seconds: Option<u64>,
}

/// Returns nanoseconds since the epoch, the unit of `tat` (until the year 2262).
pub fn nanos(time: DateTime<Utc>) -> i64 {
    time.timestamp_nanos_opt().unwrap_or(i64::MAX)
}

impl Gcra {
    /// Creates a limit; 0 counts as 1.
    pub fn per_minute(limit: u32) -> Self {
        Self {
            limit: limit.clamp(1, MAX_PER_MINUTE),
        }
    }

    /// Returns the nanoseconds per request, rounded up to admit no more than the limit.
    fn emission_nanos(self) -> u64 {
        MINUTE_NANOS.div_ceil(self.limit.into())
    }

    /// Returns how far `tat` may be ahead of now: the whole burst.
    fn burst_nanos(self) -> u64 {
        self.emission_nanos() * u64::from(self.limit)
    }

    /// Explains the decision on one of several requests that were counted together. `place`: its
    /// place among them, from 0. `admitted`: how many were admitted. `tat`: the stored value after
    /// them.
    pub fn counted(self, now: DateTime<Utc>, tat: i64, admitted: i32, place: usize) -> RateState {
        let after = usize::try_from(admitted)
            .unwrap_or(0)
            .checked_sub(place + 1);
        let after = after.map(|after| after as u64 * self.emission_nanos());
        match after.and_then(|nanos| i64::try_from(nanos).ok()) {
            Some(nanos) => self.state(now, tat - nanos, true),
            None => self.state(now, tat, false),
        }
    }

    /// Explains a decision. `tat`: the stored value after it.
    pub fn state(self, now: DateTime<Utc>, tat: i64, admitted: bool) -> RateState {
        let ahead = u64::try_from(tat - nanos(now)).unwrap_or(0);
        let room = self.burst_nanos().saturating_sub(ahead);
        let next = (ahead + self.emission_nanos()).saturating_sub(self.burst_nanos());
        let seconds = |nanos: u64| nanos.div_ceil(SECOND_NANOS);
        RateState {
            limit: self.limit,
            remaining: u32::try_from(room / self.emission_nanos()).unwrap_or(u32::MAX),
            reset_seconds: seconds(ahead),
            retry_after_seconds: (!admitted).then(|| seconds(next).max(1)),
        }
    }
}
