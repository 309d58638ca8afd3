//! The outcome of each request, and the availability of the service.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crate::AIM;

/// A request.
pub struct Sample {
    pub server: usize,
    pub begun: Instant,
    pub ended: Instant,
    /// Whether it creates a generation, rather than polls one.
    pub makes: bool,
    /// Whether it is not a retry, whose response may be the failure of the first.
    pub is_first: bool,
    /// Why it failed.
    pub failure: Option<String>,
}

/// All requests of a round.
#[derive(Clone, Default)]
pub struct Samples(Arc<Mutex<Vec<Sample>>>);

/// Failed requests by reason: sent before the loss, between that and the switch, and after it.
pub type Failures = BTreeMap<String, [usize; 3]>;

/// When a server served again, counted from the switch.
#[derive(Debug, Clone, Copy)]
pub struct Service {
    /// The first generation succeeded.
    pub first: Option<Duration>,
    /// The end of the last request that was sent after the switch and failed, or took longer than
    /// the target. `None`: that was one of the last of all.
    pub steady: Option<Duration>,
}

impl Samples {
    pub fn note(&self, sample: Sample) {
        self.0.lock().unwrap().push(sample);
    }

    pub fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub fn failures(&self, lost: Instant, switched: Instant) -> Failures {
        let mut failures = Failures::new();
        for sample in self.0.lock().unwrap().iter() {
            if let Some(failure) = &sample.failure {
                let phase =
                    usize::from(sample.begun >= lost) + usize::from(sample.begun >= switched);
                failures.entry(failure.clone()).or_default()[phase] += 1;
            }
        }
        failures
    }

    /// Of both servers.
    pub fn services(&self, switched: Instant) -> [Service; 2] {
        [0, 1].map(|server| self.service(server, switched))
    }

    fn service(&self, server: usize, switched: Instant) -> Service {
        let samples = self.0.lock().unwrap();
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
        Service { first, steady }
    }
}
