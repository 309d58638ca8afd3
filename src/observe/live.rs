//! Gauges that are read from the database at each scrape.

use std::{sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::labels;
use crate::domain::generation::{Modality, Status};

type FloatGauge = Gauge<f64, AtomicU64>;

/// Unfinished generations in the database.
#[derive(Debug, Clone, Default)]
pub struct Live {
    /// Count by type and status; 0 if missing.
    pub jobs: Vec<(Modality, Status, i64)>,
    /// Their holds, in micro-credits.
    pub held: i64,
    /// Age of the oldest in seconds; 0 when there is none.
    pub oldest_seconds: f64,
}

#[derive(Debug, Clone, Copy)]
pub struct Connections {
    pub pool: &'static str,
    pub in_use: u32,
    pub idle: u32,
}

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
    /// Differences by check.
    pub differences: Vec<(&'static str, usize)>,
    /// All balances, in micro-credits.
    pub balance: f64,
    /// In seconds since 1970.
    pub at: i64,
    pub took: Duration,
}

/// All gauges. Those of the database are missing if it did not answer.
pub(super) fn registry(
    live: Option<&Live>,
    pools: &[Connections],
    waiting: usize,
    memory: MemoryUse,
    audit: Option<&AuditNumbers>,
) -> Registry {
    let mut registry = Registry::with_prefix("gensvc");
    if let Some(audit) = audit {
        add_audit(&mut registry, audit);
    }
    let connections = Family::<labels::Pool, Gauge>::default();
    for &Connections { pool, in_use, idle } in pools {
        for (state, count) in [("in_use", in_use), ("idle", idle)] {
            let label = labels::Pool { pool, state };
            connections.get_or_create(&label).set(count.into());
        }
    }
    registry.register(
        "database_connections",
        "Connections to the database",
        connections,
    );
    let waits = Gauge::<i64>::default();
    waits.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    registry.register(
        "waiting",
        "Requests that wait for another generation, to end or to free its hold",
        waits,
    );
    let gauge = |number: usize| {
        let gauge = Gauge::<i64>::default();
        gauge.set(i64::try_from(number).unwrap_or(i64::MAX));
        gauge
    };
    let about = "Memory that is kept for requests";
    registry.register("memory_used_bytes", about, gauge(memory.used));
    let about = "Memory that may be kept for requests";
    registry.register("memory_budget_bytes", about, gauge(memory.budget));
    let refused = Counter::<u64>::default();
    refused.inc_by(memory.refused);
    let about = "Reservations of memory that were refused";
    registry.register("memory_refusals", about, refused);
    let up = Gauge::<i64>::default();
    up.set(live.is_some().into());
    registry.register("database_up", "Whether the database answered", up);
    let Some(live) = live else { return registry };

    let jobs = Family::<labels::Jobs, Gauge>::default();
    for modality in Modality::ALL {
        for status in [Status::Pending, Status::Processing] {
            let count: i64 = live
                .jobs
                .iter()
                .filter(|(m, s, _)| (m, s) == (modality, &status))
                .map(|(_, _, count)| count)
                .sum();
            let label = labels::Jobs {
                r#type: modality.as_str(),
                status: status.as_str(),
            };
            jobs.get_or_create(&label).set(count);
        }
    }
    registry.register("jobs", "Unfinished generations, on all servers", jobs);
    let unfinished = Gauge::<i64>::default();
    unfinished.set(live.jobs.iter().map(|(_, _, count)| count).sum());
    registry.register(
        "generations_unfinished",
        "Unfinished generations in all",
        unfinished,
    );
    let held = Gauge::<i64>::default();
    held.set(live.held);
    registry.register(
        "credits_held_microcredits",
        "On hold for unfinished generations",
        held,
    );
    add_float(
        &mut registry,
        "oldest_unfinished_seconds",
        "Age of the oldest unfinished generation, 0 for none",
        live.oldest_seconds,
    );
    registry
}

fn add_audit(registry: &mut Registry, audit: &AuditNumbers) {
    let differences = Family::<labels::Check, Gauge>::default();
    for &(check, count) in &audit.differences {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        differences
            .get_or_create(&labels::Check { check })
            .set(count);
    }
    registry.register(
        "audit_differences",
        "What the self-audit found; must be 0",
        differences,
    );
    let at = Gauge::<i64>::default();
    at.set(audit.at);
    registry.register(
        "audit_last_run_timestamp_seconds",
        "When the self-audit last succeeded",
        at,
    );
    for (name, help, value) in [
        (
            "audit_duration_seconds",
            "How long it took",
            audit.took.as_secs_f64(),
        ),
        (
            "accounts_balance_microcredits",
            "All accounts' balances, as of the self-audit",
            audit.balance,
        ),
    ] {
        add_float(registry, name, help, value);
    }
}

fn add_float(registry: &mut Registry, name: &str, help: &str, value: f64) {
    let gauge = FloatGauge::default();
    gauge.set(value);
    registry.register(name, help, gauge);
}
