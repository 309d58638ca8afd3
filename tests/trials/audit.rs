//! Checks after the load, when all work has settled: the ledger, the upstreams' log and what clients
//! saw are compared.

mod api;
mod ledger;
mod outside;

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

pub use self::{
    ledger::{Row, unfinished},
    outside::check as check_upstreams,
};
use crate::{http::Http, stage::Stage};

/// How long work may take to end once the load is over.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two polls for unfinished work.
const TICK: Duration = Duration::from_millis(100);

/// Waits until nothing is unfinished; returns how long that took. What is left then is found by the
/// checks.
pub async fn settle(stage: &Stage) -> Duration {
    let begun = Instant::now();
    let mut database = stage.postgres.connect().await;
    while unfinished(&mut database).await > 0 && begun.elapsed() < PATIENCE {
        tokio::time::sleep(TICK).await;
    }
    begun.elapsed()
}

/// The ledger, the API and the servers. Returns the generations of the round.
pub async fn check(stage: &Stage, http: &Http, round: u32) -> Vec<Row> {
    let rows = ledger::check(stage, round).await;
    api::check(stage, http, &rows).await;
    for server in &stage.servers {
        if server.has_died().await {
            let name = "a server ended by itself";
            stage.tally.violation(name, server.url());
        }
    }
    let kept: HashSet<&str> = rows.iter().map(|row| row.uuid.as_str()).collect();
    let prefix = format!("mk-{round}-");
    for (uuid, known) in &stage.seen.state().known {
        if known.mark.starts_with(&prefix) && !kept.contains(uuid.as_str()) {
            let name = "an answered generation is lost";
            stage.tally.violation(name, uuid.clone());
        }
    }
    rows
}

/// Runs a command that finds differences, and returns what it said and took.
pub async fn verify(stage: &Stage, command: &[&str]) -> String {
    let begun = Instant::now();
    let answer = stage.command(command).await.unwrap_or_else(|said| {
        stage.tally.violation("gensvc verify", said.clone());
        said
    });
    let (command, seconds) = (command.join(" "), begun.elapsed().as_secs_f64());
    format!("{command} in {seconds:.1} s: {}", answer.trim())
}
