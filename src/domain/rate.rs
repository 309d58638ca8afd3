//! The rate limit's arithmetic: GCRA in nanoseconds.
//!
//! A key may make `limit` requests at once and is refilled evenly, one each `emission`. The
//! state is one number, the theoretical arrival time (`tat`); the database decides in one
//! statement, with [`Gcra::emission_nanos`] and [`Gcra::burst_nanos`], and this module explains the decision.

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

/// What a response's rate headers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateState {
    /// Requests per minute.
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
    pub fn emission_nanos(self) -> i64 {
        MINUTE_NANOS / self.limit + i64::from(MINUTE_NANOS % self.limit != 0)
    }

    /// How far `tat` may lie ahead of now: the whole burst.
    pub fn burst_nanos(self) -> i64 {
        self.emission_nanos() * self.limit
    }

    /// Explains a decision. `tat` is the stored value after it.
    pub fn state(self, now: i64, tat: i64, admitted: bool) -> RateState {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The decision as the database makes it.
    fn admit(gcra: Gcra, tat: &mut i64, now: i64) -> bool {
        let next = (*tat).max(now) + gcra.emission_nanos();
        let admitted = next - now <= gcra.burst_nanos();
        if admitted {
            *tat = next;
        }
        admitted
    }

    #[test]
    fn the_burst_is_exact_for_every_limit() {
        for limit in [1, 2, 3, 7, 59, 60, 61, 600, 999, 1_000_000] {
            let gcra = Gcra::per_minute(limit);
            let mut tat = 0;
            let now = 1_000_000;
            let admitted = (0..limit + 5)
                .filter(|_| admit(gcra, &mut tat, now))
                .count();
            assert_eq!(admitted, limit as usize);
            assert_eq!(gcra.state(now, tat, false).remaining, 0);
        }
    }

    proptest! {
        #[test]
        fn what_the_headers_promise_is_kept(
            limit in 1..2000_u32, gaps in prop::collection::vec(0..2_000_000_000_i64, 1..60)
        ) {
            let gcra = Gcra::per_minute(limit);
            let (mut tat, mut now) = (0, 1_700_000_000_000_000_000);
            for gap in gaps {
                now += gap;
                let admitted = admit(gcra, &mut tat, now);
                let state = gcra.state(now, tat, admitted);
                let mut probe = tat;
                let more = (0..=state.remaining).filter(|_| admit(gcra, &mut probe, now)).count();
                prop_assert_eq!(more, state.remaining as usize);
                if let Some(wait) = state.retry_after_seconds {
                    let mut probe = tat;
                    prop_assert!(admit(gcra, &mut probe, now + wait.cast_signed() * SECOND_NANOS));
                }
            }
        }
    }
}
