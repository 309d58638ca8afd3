//! After each round: waits for all work to settle, then compares the ledger of the promoted
//! database, the upstreams' log and the clients' results, as `tests/chaos` does.

#[path = "../chaos/audit/api.rs"]
mod api;
#[path = "../chaos/audit/ledger.rs"]
mod ledger;
#[path = "../chaos/audit/outside.rs"]
mod outside;

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{clients::Http, stage::Stage};

/// How long work may take to end once the load is over.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two polls for unfinished work.
const TICK: Duration = Duration::from_millis(100);

/// What was checked.
pub struct Checked {
    /// Generations that a client knows of.
    pub told: usize,
    /// Of them, charges that a client saw.
    pub charges: usize,
    /// Generations that were called more than once upstream.
    pub double_calls: usize,
    /// How long the last work took to end.
    pub settling: Duration,
}

pub async fn check(stage: &Arc<Stage>, http: &Http, round: u32) -> Checked {
    let settling = settle(stage).await;
    let rows = ledger::check(stage, round).await;
    outside::check(stage, &rows, round, false);
    api::check(stage, http, &rows).await;
    if let Err(said) = stage.command(&["ledger", "verify"]).await {
        stage.tally.violation("gensvc ledger verify", said);
    }
    for server in &stage.servers {
        if server.has_died().await {
            let name = "a server ended by itself";
            stage.tally.violation(name, server.url());
        }
    }
    let kept: HashSet<&str> = rows.iter().map(|row| row.uuid.as_str()).collect();
    let seen = stage.seen.state();
    for uuid in seen
        .known
        .keys()
        .filter(|uuid| !kept.contains(uuid.as_str()))
    {
        let name = "an answered generation is lost";
        stage.tally.violation(name, uuid.clone());
    }
    let told = |known: &&crate::seen::Known| {
        let told = known.told.as_ref();
        told.is_some_and(|told| told.status == "completed")
    };
    let log = stage.upstream.log();
    Checked {
        told: seen.known.len(),
        charges: seen.known.values().filter(told).count(),
        double_calls: log.values().filter(|calls| calls.started > 1).count(),
        settling,
    }
}

/// Waits until nothing is unfinished; returns how long that took. What is left then is found by the
/// checks.
async fn settle(stage: &Stage) -> Duration {
    let begun = Instant::now();
    let mut database = stage.postgres.connect().await;
    while ledger::unfinished(&mut database).await > 0 && begun.elapsed() < PATIENCE {
        tokio::time::sleep(TICK).await;
    }
    begun.elapsed()
}
