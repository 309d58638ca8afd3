//! Counts of actions and findings.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write as _},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// Counts of the whole run.
#[derive(Default)]
pub struct Tally {
    requests: AtomicU64,
    kills: AtomicU64,
    faults: Mutex<BTreeMap<&'static str, u64>>,
    deeds: Mutex<BTreeMap<&'static str, u64>>,
    answers: Mutex<BTreeMap<u16, u64>>,
    violations: Mutex<BTreeMap<&'static str, BTreeSet<String>>>,
}

impl Tally {
    /// A client sent a request.
    pub fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// A client got an answer with that status.
    pub fn answer(&self, status: u16) {
        *self.answers.lock().unwrap().entry(status).or_default() += 1;
    }

    /// A fault was injected.
    pub fn fault(&self, name: &'static str) {
        *self.faults.lock().unwrap().entry(name).or_default() += 1;
    }

    /// A client or the operator did something that is allowed.
    pub fn deed(&self, name: &'static str) {
        *self.deeds.lock().unwrap().entry(name).or_default() += 1;
    }

    /// A process was killed with -9.
    pub fn kill(&self) {
        self.kills.fetch_add(1, Ordering::Relaxed);
    }

    /// A guarantee was violated. The same finding of a later round is not counted again.
    /// Also shown at once: what follows may end the trial.
    pub fn violation(&self, name: &'static str, detail: String) {
        let _ = writeln!(io::stderr(), "{name}: {detail}");
        self.violations
            .lock()
            .unwrap()
            .entry(name)
            .or_default()
            .insert(detail);
    }

    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub fn kills(&self) -> u64 {
        self.kills.load(Ordering::Relaxed)
    }

    pub fn faults(&self) -> BTreeMap<&'static str, u64> {
        self.faults.lock().unwrap().clone()
    }

    pub fn deeds(&self) -> BTreeMap<&'static str, u64> {
        self.deeds.lock().unwrap().clone()
    }

    pub fn answers(&self) -> BTreeMap<u16, u64> {
        self.answers.lock().unwrap().clone()
    }

    pub fn fault_count(&self) -> u64 {
        self.faults.lock().unwrap().values().sum()
    }

    pub fn violations(&self) -> BTreeMap<&'static str, BTreeSet<String>> {
        self.violations.lock().unwrap().clone()
    }

    pub fn violation_count(&self) -> usize {
        self.violations
            .lock()
            .unwrap()
            .values()
            .map(BTreeSet::len)
            .sum()
    }
}
