//! In the end: waits for all work to settle, then compares the ledger, the upstreams' log and what
//! clients saw.

#[path = "../chaos/audit/api.rs"]
mod api;
#[path = "../chaos/audit/ledger.rs"]
#[expect(dead_code, reason = "chaos uses more of it")]
mod ledger;

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{clients::Http, stage::Stage};

/// The marks of all requests begin with it.
pub const ROUND: u32 = 1;
/// How long work may take to end once the load is over.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two polls for unfinished work.
const TICK: Duration = Duration::from_millis(100);

/// What was checked.
pub struct Checked {
    pub generations: usize,
    pub completed: usize,
    /// What `gensvc ledger verify` and `gensvc media verify` said.
    pub said: Vec<String>,
}

pub async fn check(stage: &Arc<Stage>, http: &Http) -> Checked {
    settle(stage).await;
    let rows = ledger::check(stage, ROUND).await;
    api::check(stage, http, &rows).await;
    for (mark, calls) in stage.upstream.log() {
        if calls.started > 1 {
            let detail = format!("{mark}: {calls:?}");
            stage.tally.violation("submitted twice", detail);
        }
    }
    let mut said = Vec::new();
    for command in [
        &["ledger", "verify"][..],
        &["ledger", "verify", "--since-last"],
        &["media", "verify"],
    ] {
        let begun = Instant::now();
        match stage.command(command).await {
            Ok(answer) => said.push(format!(
                "{} in {:.1} s: {}",
                command.join(" "),
                begun.elapsed().as_secs_f64(),
                answer.trim()
            )),
            Err(answer) => stage.tally.violation("gensvc verify", answer),
        }
    }
    for server in &stage.servers {
        if server.has_died().await {
            let name = "a server ended by itself";
            stage.tally.violation(name, server.url());
        }
    }
    let kept: HashSet<&str> = rows.iter().map(|row| row.uuid.as_str()).collect();
    for uuid in stage.seen.state().known.keys() {
        if !kept.contains(uuid.as_str()) {
            let name = "an answered generation is lost";
            stage.tally.violation(name, uuid.clone());
        }
    }
    let completed = rows.iter().filter(|row| row.status == "completed").count();
    Checked {
        generations: rows.len(),
        completed,
        said,
    }
}

/// Waits until nothing is unfinished. What is left then is found by the checks.
async fn settle(stage: &Stage) {
    let begun = Instant::now();
    let mut database = stage.postgres.connect().await;
    while ledger::unfinished(&mut database).await > 0 && begun.elapsed() < PATIENCE {
        tokio::time::sleep(TICK).await;
    }
}
