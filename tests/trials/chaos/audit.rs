//! After each round: waits for all work to settle, then compares the ledger, the upstreams' log and
//! the clients' results.

mod caps;
mod delivered;
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

use super::{clients, scene::Scene};
use crate::{
    audit::{self, unfinished},
    http::Http,
    seen::Grant,
};

/// How long work may take to end after the last fault.
const PATIENCE: Duration = Duration::from_secs(90);
/// Between two polls for unfinished work.
const TICK: Duration = Duration::from_millis(100);
/// Consecutive polls that must find none: a request whose client has disconnected may still arrive.
const QUIET: u32 = 5;
/// Log messages that no server should ever write.
const ALARMS: [&str; 4] = [
    "panicked",
    "the database refused a settlement",
    "could not end an abandoned generation",
    "a login ended without a result",
];

/// What has been checked so far.
#[derive(Default)]
pub struct Auditor {
    /// How far the servers' logs have been read.
    read: [AtomicU64; 2],
    /// How often the upstreams had refused connections.
    refusals: AtomicU32,
    events: webhooks::Events,
}

/// The result of a round.
pub struct Round {
    pub completed: usize,
    pub failed: usize,
    /// From the end of all faults to the end of all work.
    pub recovery: Duration,
}

impl Auditor {
    pub async fn check(
        &self,
        scene: &Arc<Scene>,
        http: &Http,
        round: u32,
        clients: JoinSet<()>,
    ) -> Round {
        let recovery = settle(scene, clients).await;
        // A suspended account's running work has ended too: now it may be resumed.
        clients::resume_all(scene).await;
        for grant in grants_of(scene, round) {
            // Now it must succeed, unless it did before.
            if let Err(said) = clients::grant(scene, &grant).await {
                scene.tally.violation("a grant is refused", said);
            }
        }
        let rows = audit::check(scene, http, round).await;
        let refusals = scene.upstream.refusals();
        let refused = self.refusals.swap(refusals, Ordering::Relaxed) < refusals;
        audit::check_upstreams(scene, &rows, round, refused);
        caps::check(scene, http, Some(round)).await;
        suspended::check(scene).await;
        delivered::check(scene).await;
        self.events.check(scene).await;
        for what in ["ledger", "media"] {
            audit::verify(scene, &[what, "verify"]).await;
        }
        self.read_logs(scene);
        let of = |status: &str| rows.iter().filter(|row| row.status == status).count();
        Round {
            completed: of("completed"),
            failed: of("failed"),
            recovery,
        }
    }

    /// After the last round: waits until all events are delivered, and runs the checks that run
    /// once. Returns how long the delivery took.
    pub async fn finish(&self, scene: &Arc<Scene>, http: &Http) -> Duration {
        let waited = self.events.finish(scene, http).await;
        caps::check(scene, http, None).await;
        usage::check(scene, http).await;
        waited
    }

    fn read_logs(&self, scene: &Scene) {
        for (server, read) in scene.servers.iter().zip(&self.read) {
            let (text, length) = server.log_from(read.load(Ordering::Relaxed));
            read.store(length, Ordering::Relaxed);
            for line in text
                .lines()
                .filter(|l| ALARMS.iter().any(|alarm| l.contains(alarm)))
            {
                scene
                    .tally
                    .violation("an alarm in a server's log", line.to_owned());
            }
        }
    }
}

fn grants_of(scene: &Scene, round: u32) -> Vec<Grant> {
    let prefix = format!("grant-{round}-");
    let seen = scene.seen.state();
    let grants = seen
        .grants
        .iter()
        .filter(|g| g.reference.starts_with(&prefix));
    grants.cloned().collect()
}

/// Waits until all clients have their responses and nothing is unfinished; returns how long the
/// latter took.
async fn settle(scene: &Scene, mut clients: JoinSet<()>) -> Duration {
    let begun = Instant::now();
    let mut database = scene.postgres.connect().await;
    let (mut quiet, mut recovery) = (0, Duration::ZERO);
    while quiet < QUIET && begun.elapsed() < PATIENCE {
        while let Some(ended) = clients.try_join_next() {
            ended.unwrap();
        }
        let unfinished = unfinished(&mut database).await;
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
        scene.tally.violation("a request without an answer", detail);
    }
    recovery
}
