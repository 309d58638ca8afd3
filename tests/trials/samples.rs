//! The outcome of each request.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

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

/// All requests.
#[derive(Clone, Default)]
pub struct Samples(Arc<Mutex<Vec<Sample>>>);

/// Failed requests by reason, in phases.
pub type Failures<const N: usize> = BTreeMap<String, [usize; N]>;

impl Samples {
    pub fn note(&self, sample: Sample) {
        self.all().push(sample);
    }

    pub fn all(&self) -> MutexGuard<'_, Vec<Sample>> {
        self.0.lock().unwrap()
    }

    pub fn failures<const N: usize>(&self, phase: impl Fn(&Sample) -> usize) -> Failures<N> {
        let mut failures = Failures::new();
        for sample in self.all().iter() {
            if let Some(failure) = &sample.failure {
                failures.entry(failure.clone()).or_insert([0; N])[phase(sample)] += 1;
            }
        }
        failures
    }
}
