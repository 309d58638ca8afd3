//! The audit that a running server repeats. No check should find anything.
//!
//! The queries are in the store, and `gensvc ledger verify` audits the whole ledger.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use chrono::TimeDelta;

use crate::{
    domain::{clock::SharedClock, ids::GenerationId, lock::lock},
    observe::{AuditNumbers, Metrics},
    providers::http::MAX_CALL_TIME,
    store::{
        Store, StoreError,
        audit::{AuditScope, LiveAudit},
    },
};

/// Accounts per run that are compared with the ledger in addition to changed ones. The next run
/// continues with the following accounts.
const WINDOW: i64 = 5_000;
/// Tolerance after a deadline, for a last poll and the download of a large file.
const GRACE: TimeDelta = TimeDelta::seconds(120);
/// Maximum time without an owner, between the death of a process and the sweep.
const OWNERLESS: Duration = Duration::from_mins(1);
/// Tolerance after the end of a lease.
const SILENCE: Duration = Duration::from_mins(1);
/// Maximum ids in the log line of a check.
const LOGGED: usize = 5;

/// Cheap to clone.
#[derive(Clone)]
pub struct Auditor(Arc<Inner>);

struct Inner {
    store: Store,
    clock: SharedClock,
    metrics: Metrics,
    lease: Duration,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    after: i64,
    suspects: Vec<i64>,
    ownerless_since: BTreeMap<GenerationId, Duration>,
    logged: BTreeMap<&'static str, Vec<String>>,
}

impl Auditor {
    pub fn new(store: Store, clock: SharedClock, metrics: Metrics, lease: Duration) -> Self {
        Self(Arc::new(Inner {
            store,
            clock,
            metrics,
            lease,
            memory: Mutex::default(),
        }))
    }

    /// Runs all checks, updates the metrics and logs new findings.
    pub async fn step(&self) -> Result<(), StoreError> {
        let inner = &self.0;
        let (since, now) = (Instant::now(), inner.clock.now());
        let (after, suspects) = {
            let memory = lock(&self.0.memory);
            (memory.after, memory.suspects.clone())
        };
        let overdue_before = now - GRACE;
        let scope = AuditScope {
            after,
            window: WINDOW,
            suspects: &suspects,
            deadline_before: overdue_before,
            created_before: overdue_before - MAX_CALL_TIME,
            silence: inner.lease + SILENCE,
        };
        let found = match inner.store.live_audit(&scope).await {
            Ok(found) => found,
            Err(error) => {
                inner.metrics.audit_failed();
                return Err(error);
            }
        };
        let checks = lock(&self.0.memory).take_in(&found, inner.clock.monotonic());
        let differences = checks
            .iter()
            .map(|(check, ids)| (*check, ids.len()))
            .collect();
        for (check, ids) in checks {
            self.log(check, ids);
        }
        inner.metrics.audited(AuditNumbers {
            differences,
            balance: found.total_balance,
            at: now.timestamp(),
            took: since.elapsed(),
        });
        Ok(())
    }

    /// Logs the findings of a check if they have changed.
    fn log(&self, check: &'static str, ids: Vec<String>) {
        let mut memory = lock(&self.0.memory);
        let logged = memory.logged.entry(check).or_default();
        if *logged == ids {
            return;
        }
        let (found, first) = (ids.len(), ids.iter().take(LOGGED).collect::<Vec<_>>());
        if ids.is_empty() {
            tracing::info!(check, "the self-audit finds no differences any more");
        } else {
            tracing::error!(
                check,
                found,
                ?first,
                "the self-audit found differences; run: gensvc ledger verify"
            );
        }
        *logged = ids;
    }
}

impl Memory {
    /// Stores the findings of a run and returns them by check.
    fn take_in(&mut self, found: &LiveAudit, now: Duration) -> [(&'static str, Vec<String>); 5] {
        self.after = found.next_after;
        self.suspects.clone_from(&found.balance);
        let before = std::mem::take(&mut self.ownerless_since);
        self.ownerless_since = found
            .ownerless
            .iter()
            .map(|&id| (id, before.get(&id).copied().unwrap_or(now)))
            .collect();
        let left = self.ownerless_since.iter();
        let ownerless = left
            .filter(|(_, since)| now.saturating_sub(**since) >= OWNERLESS)
            .map(|(id, _)| id.to_string())
            .collect();
        let accounts = |ids: &[i64]| ids.iter().map(ToString::to_string).collect();
        [
            ("balance", accounts(&found.balance)),
            ("holds", accounts(&found.holds)),
            ("jobs", accounts(&found.jobs)),
            (
                "overdue",
                found.overdue.iter().map(ToString::to_string).collect(),
            ),
            ("ownerless", ownerless),
        ]
    }
}
