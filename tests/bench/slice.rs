//! One slice of a load, and what it cost.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::{
    counters::Usage,
    load::Load,
    outcome::Outcome,
    postgres::{Postgres, Written},
};

/// Whose cost is counted.
pub struct Side<'a> {
    pub pids: Vec<u32>,
    /// Of gensvc only: the proxy has none.
    pub postgres: Option<&'a Postgres>,
    pub upstream: u32,
}

/// What a slice gave. CPU, writes and waits are for each good answer.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Good answers a second.
    pub rate: f64,
    /// Milliseconds.
    pub p50: f64,
    pub p99: f64,
    /// Milliseconds to the first piece of a stream.
    pub first_p50: f64,
    pub first_p99: f64,
    /// Microseconds.
    pub server_cpu: f64,
    pub postgres_cpu: f64,
    /// Of load and upstream together.
    pub rest_cpu: f64,
    /// MiB, of all servers, at the end.
    pub memory: f64,
    pub transactions: f64,
    pub wal_bytes: f64,
    /// How often a thread of the server gave up its core to wait, and of Postgres.
    pub server_waits: f64,
    pub postgres_waits: f64,
}

/// Runs the loads at once for so long. The figures are those of the first; what all cost is
/// divided by the good answers of all.
pub async fn run(side: &Side<'_>, loads: &[Load], length: Duration) -> (Figures, Vec<Outcome>) {
    let before = Look::take(side).await;
    let mut tasks = JoinSet::new();
    for (n, load) in loads.iter().cloned().enumerate() {
        tasks.spawn(async move { (n, load.run(length).await) });
    }
    let mut outcomes = tasks.join_all().await;
    outcomes.sort_by_key(|(n, _)| *n);
    let after = Look::take(side).await;
    let outcomes: Vec<_> = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
    let answers: usize = outcomes.iter().map(Outcome::answered).sum();
    let each = |total: u64| float(total) / float(u64::try_from(answers).unwrap_or(u64::MAX));
    let first = &outcomes[0];
    let (now, then) = (&after.written, &before.written);
    let figures = Figures {
        rate: float(first.counted) / Load::counted(length).as_secs_f64(),
        p50: first.latency(0.5),
        p99: first.latency(0.99),
        first_p50: first.first(0.5),
        first_p99: first.first(0.99),
        server_cpu: each(cpu(&after.servers, &before.servers)) / 1000.0,
        postgres_cpu: each(now.usage.cpu_since(&then.usage)) / 1000.0,
        rest_cpu: each(cpu(&after.rest, &before.rest)) / 1000.0,
        memory: float(after.servers.iter().map(|usage| usage.resident).sum()) / 1_048_576.0,
        transactions: each(now.transactions - then.transactions),
        wal_bytes: each(now.wal_bytes - then.wal_bytes),
        server_waits: each(waits(&after.servers).saturating_sub(waits(&before.servers))),
        postgres_waits: each(now.usage.waits.saturating_sub(then.usage.waits)),
    };
    (figures, outcomes)
}

/// All counters at one time.
struct Look {
    servers: Vec<Usage>,
    /// Load and upstream.
    rest: Vec<Usage>,
    written: Written,
}

impl Look {
    async fn take(side: &Side<'_>) -> Self {
        let written = match side.postgres {
            None => Written::default(),
            Some(postgres) => postgres.written().await,
        };
        Self {
            servers: side.pids.iter().map(|pid| Usage::of(*pid)).collect(),
            rest: vec![Usage::of(std::process::id()), Usage::of(side.upstream)],
            written,
        }
    }
}

fn cpu(after: &[Usage], before: &[Usage]) -> u64 {
    let pairs = after.iter().zip(before);
    pairs.map(|(after, before)| after.cpu_since(before)).sum()
}

fn waits(usages: &[Usage]) -> u64 {
    usages.iter().map(|usage| usage.waits).sum()
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub fn float(number: u64) -> f64 {
    number as f64
}
