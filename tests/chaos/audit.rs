//! After each round: lets everything settle, then holds the books, the upstreams' log and what
//! clients were told against each other.

mod api;
mod books;
mod caps;
mod outside;
mod suspended;
mod usage;
mod webhooks;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use crate::{clients::Http, stage::Stage};

/// How long work may take to end once nothing is broken any more.
const PATIENCE: Duration = Duration::from_secs(90);
/// Between two looks at unfinished work.
const TICK: Duration = Duration::from_millis(100);
/// Looks in a row that must find none: a request whose client has gone may still be coming.
const QUIET: u32 = 5;
/// What no server should ever have to log.
const ALARMS: [&str; 4] = [
    "panicked",
    "the database refused a settlement",
    "could not end an abandoned generation",
    "ended without a verdict",
];

/// What has been looked at so far.
#[derive(Default)]
pub struct Auditor {
    /// How far the servers' logs have been read.
    read: [AtomicU64; 2],
    /// How often the upstreams had refused connections.
    refusals: AtomicU32,
    events: webhooks::Events,
}

/// What a round came to.
pub struct Round {
    pub completed: usize,
    pub failed: usize,
    /// From the end of all faults to the end of all work.
    pub recovery: Duration,
}

impl Auditor {
    /// Checks everything.
    pub async fn check(
        &self,
        stage: &Arc<Stage>,
        http: &Http,
        round: u32,
        clients: JoinSet<()>,
    ) -> Round {
        let recovery = settle(stage, clients).await;
        // A suspended account's running work has ended too: now it may go on.
        crate::clients::resume_all(stage).await;
        for grant in grants_of(stage, round) {
            // Now it must work, unless it did before.
            if let Err(said) = crate::clients::grant(stage, &grant).await {
                stage.tally.violation("a grant is refused", said);
            }
        }
        let rows = books::check(stage, round).await;
        let refusals = stage.upstream.refusals();
        let refused = self.refusals.swap(refusals, Ordering::Relaxed) < refusals;
        outside::check(stage, &rows, round, refused);
        api::check(stage, http, &rows).await;
        caps::check(stage, http, Some(round)).await;
        suspended::check(stage).await;
        self.events.check(stage).await;
        if let Err(said) = stage.command(&["ledger", "verify"]).await {
            stage.tally.violation("gensvc ledger verify", said);
        }
        self.read_logs(stage);
        let of = |status: &str| rows.iter().filter(|row| row.status == status).count();
        Round {
            completed: of("completed"),
            failed: of("failed"),
            recovery,
        }
    }

    /// After the last round: waits until all events are told, and checks what is checked once.
    /// How long the events took.
    pub async fn finish(&self, stage: &Arc<Stage>, http: &Http) -> Duration {
        let waited = self.events.finish(stage, http).await;
        caps::check(stage, http, None).await;
        usage::check(stage, http).await;
        waited
    }

    fn read_logs(&self, stage: &Stage) {
        for (server, read) in stage.servers.iter().zip(&self.read) {
            let (text, length) = server.log_from(read.load(Ordering::Relaxed));
            read.store(length, Ordering::Relaxed);
            for line in text
                .lines()
                .filter(|l| ALARMS.iter().any(|alarm| l.contains(alarm)))
            {
                stage
                    .tally
                    .violation("an alarm in a server's log", line.to_owned());
            }
        }
    }
}

fn grants_of(stage: &Stage, round: u32) -> Vec<crate::seen::Grant> {
    let prefix = format!("grant-{round}-");
    let seen = stage.seen.state();
    let grants = seen
        .grants
        .iter()
        .filter(|g| g.reference.starts_with(&prefix));
    grants.cloned().collect()
}

/// Waits until all clients have their answers and nothing is unfinished; how long the latter
/// took.
async fn settle(stage: &Stage, mut clients: JoinSet<()>) -> Duration {
    let begun = Instant::now();
    let mut database = stage.postgres.connect().await;
    let (mut quiet, mut recovery) = (0, Duration::ZERO);
    while quiet < QUIET && begun.elapsed() < PATIENCE {
        while let Some(ended) = clients.try_join_next() {
            ended.unwrap();
        }
        let unfinished = books::unfinished(&mut database).await;
        if unfinished > 0 {
            recovery = begun.elapsed();
        }
        quiet = if unfinished > 0 || !clients.is_empty() {
            0
        } else {
            quiet + 1
        };
        tokio::time::sleep(TICK).await;
    }
    if !clients.is_empty() {
        let detail = format!("{} clients still wait", clients.len());
        stage.tally.violation("a request without an answer", detail);
    }
    recovery
}
