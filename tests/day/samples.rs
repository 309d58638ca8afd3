//! The outcome of each request.

use std::{
    collections::BTreeMap,
    sync::Mutex,
    time::{Duration, Instant},
};

#[derive(Default)]
pub struct Samples(Mutex<State>);

#[derive(Default)]
struct State {
    requests: usize,
    slowest: Duration,
    failed: Vec<Failed>,
    /// Times in which requests may fail.
    faults: Vec<[Instant; 2]>,
}

struct Failed {
    begun: Instant,
    ended: Instant,
    why: String,
}

/// Failed requests by reason: those that a fault explains, and the others.
pub type Failures = BTreeMap<String, [usize; 2]>;

impl Samples {
    /// A request has ended.
    pub fn note(&self, begun: Instant, failure: Option<String>) {
        let mut state = self.0.lock().unwrap();
        let ended = Instant::now();
        state.requests += 1;
        state.slowest = state.slowest.max(ended - begun);
        state
            .failed
            .extend(failure.map(|why| Failed { begun, ended, why }));
    }

    /// A fault that lasted from then until now.
    pub fn fault(&self, from: Instant) {
        let mut state = self.0.lock().unwrap();
        state.faults.push([from, Instant::now()]);
    }

    /// How many requests there were, how many of them failed, and how long the slowest took.
    pub fn counts(&self) -> (usize, usize, Duration) {
        let state = self.0.lock().unwrap();
        (state.requests, state.failed.len(), state.slowest)
    }

    pub fn failures(&self) -> Failures {
        let state = self.0.lock().unwrap();
        let mut failures = Failures::new();
        for failed in &state.failed {
            let during = |[from, to]: &[Instant; 2]| failed.ended >= *from && failed.begun <= *to;
            let place = usize::from(!state.faults.iter().any(during));
            failures.entry(failed.why.clone()).or_default()[place] += 1;
        }
        failures
    }
}
