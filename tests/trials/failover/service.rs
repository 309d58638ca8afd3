//! When callers are served again.

use std::time::{Duration, Instant};

use super::AIM;
use crate::samples::Sample;

/// When a server served again, counted from the switch.
#[derive(Debug, Clone, Copy)]
pub struct Service {
    /// The first generation succeeded.
    pub first: Option<Duration>,
    /// The end of the last request that was sent after the switch and failed, or took longer than
    /// the target. `None`: that was one of the last of all.
    pub steady: Option<Duration>,
}

impl Service {
    pub fn of(samples: &[Sample], server: usize, switched: Instant) -> Self {
        let of_server = samples.iter().filter(|sample| sample.server == server);
        let after: Vec<&Sample> = of_server.filter(|s| s.begun >= switched).collect();
        let good = |sample: &Sample| sample.failure.is_none();
        let first = after.iter().filter(|s| s.makes && good(s));
        let first = first.map(|s| s.ended - switched).min();
        let first_tries = after.iter().filter(|s| s.is_first);
        let bad = first_tries.filter(|s| !good(s) || s.ended - s.begun > AIM);
        let steady = match bad.max_by_key(|sample| sample.ended) {
            Some(bad) => after
                .iter()
                .any(|s| good(s) && s.begun >= bad.ended)
                .then(|| bad.ended - switched),
            None => first,
        };
        Self { first, steady }
    }
}
