//! Gauges that are read from the database at each scrape.

use std::time::Duration;

use prometheus_client::{
    metrics::{
        counter::ConstCounter,
        family::Family,
        gauge::{ConstGauge, Gauge},
    },
    registry::Registry,
};

use super::Labels;
use crate::domain::generation::{Modality, Status};

/// Unfinished generations of one type and status.
#[derive(Debug, Clone, Copy)]
pub struct Unfinished {
    pub modality: Modality,
    pub status: Status,
    pub count: i64,
    /// Sum of their holds, in micro-credits.
    pub held: i64,
    /// Age of the oldest in seconds.
    pub oldest_seconds: f64,
}

/// A pool's name, and its numbers of busy and idle connections.
pub type PoolState = (&'static str, u32, u32);

/// The byte budget of requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryUse {
    pub used: usize,
    pub budget: usize,
    pub refused: u64,
}

/// The result of a self-audit.
#[derive(Debug, Clone)]
pub struct AuditNumbers {
    pub differences: Vec<(&'static str, usize)>,
    /// Sum of all balances, in micro-credits.
    pub balance: f64,
    /// Unix time in seconds.
    pub at: i64,
    pub took: Duration,
}

/// Values that are read at a scrape.
#[derive(Debug, Clone, Copy)]
pub struct Gauges<'a> {
    /// `None` if the database did not respond.
    pub unfinished: Option<&'a [Unfinished]>,
    pub pools: &'a [PoolState],
    /// Number of requests that wait for another generation.
    pub waiting: usize,
    pub memory: MemoryUse,
}

/// Builds all gauges. Those of the database are missing if it did not respond.
pub(super) fn registry(gauges: Gauges<'_>, audit: Option<&AuditNumbers>) -> Registry {
    let mut registry = Registry::with_prefix("gensvc");
    if let Some(audit) = audit {
        add_audit(&mut registry, audit);
    }
    let connections = Family::<Labels<2, &str>, Gauge>::default();
    for &(pool, in_use, idle) in gauges.pools {
        for (state, count) in [("in_use", in_use), ("idle", idle)] {
            let label = [("pool", pool), ("state", state)];
            connections.get_or_create(&label).set(count.into());
        }
    }
    registry.register(
        "database_connections",
        "Connections to the database",
        connections,
    );
    let waits = "Requests that wait for another generation, to end or to free its hold";
    let is_up = usize::from(gauges.unfinished.is_some());
    for (name, help, number) in [
        ("waiting", waits, gauges.waiting),
        (
            "memory_used_bytes",
            "Memory that is kept for requests",
            gauges.memory.used,
        ),
        (
            "memory_budget_bytes",
            "Memory that may be kept for requests",
            gauges.memory.budget,
        ),
        ("database_up", "Whether the database answered", is_up),
    ] {
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        registry.register(name, help, ConstGauge::new(number));
    }
    registry.register(
        "memory_refusals",
        "Reservations of memory that were refused",
        ConstCounter::new(gauges.memory.refused),
    );
    let Some(unfinished) = gauges.unfinished else {
        return registry;
    };

    let jobs = Family::<Labels<2, &str>, Gauge>::default();
    for modality in Modality::ALL {
        for status in [Status::Pending, Status::Processing] {
            jobs.get_or_create(&job_labels(*modality, status)).set(0);
        }
    }
    let (mut count, mut held, mut oldest_seconds) = (0, 0_i64, 0.0_f64);
    for row in unfinished {
        let label = job_labels(row.modality, row.status);
        jobs.get_or_create(&label).inc_by(row.count);
        count += row.count;
        held = held.saturating_add(row.held);
        oldest_seconds = oldest_seconds.max(row.oldest_seconds);
    }
    registry.register("jobs", "Unfinished generations, on all servers", jobs);
    registry.register(
        "generations_unfinished",
        "Unfinished generations in all",
        ConstGauge::new(count),
    );
    registry.register(
        "credits_held_microcredits",
        "On hold for unfinished generations",
        ConstGauge::new(held),
    );
    registry.register(
        "oldest_unfinished_seconds",
        "Age of the oldest unfinished generation, 0 for none",
        ConstGauge::new(oldest_seconds),
    );
    registry
}

fn job_labels(modality: Modality, status: Status) -> Labels<2, &'static str> {
    [("type", modality.as_str()), ("status", status.as_str())]
}

fn add_audit(registry: &mut Registry, audit: &AuditNumbers) {
    let differences = Family::<Labels<1, &str>, Gauge>::default();
    for &(check, count) in &audit.differences {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        differences.get_or_create(&[("check", check)]).set(count);
    }
    registry.register(
        "audit_differences",
        "What the self-audit found; must be 0",
        differences,
    );
    registry.register(
        "audit_last_run_timestamp_seconds",
        "When the self-audit last succeeded",
        ConstGauge::new(audit.at),
    );
    registry.register(
        "audit_duration_seconds",
        "How long it took",
        ConstGauge::new(audit.took.as_secs_f64()),
    );
    registry.register(
        "accounts_balance_microcredits",
        "All accounts' balances, as of the self-audit",
        ConstGauge::new(audit.balance),
    );
}
