//! Faults injected into processes and connections, and their schedule.

use std::{sync::Arc, time::Duration};

use super::scene::Scene;
use crate::{proxy::Flow, s3, server::LEASE_SECONDS};

/// A fault at a moment of a round. Durations are in milliseconds.
#[derive(Debug, Clone, Copy)]
enum Fault {
    KillServer {
        which: usize,
        down: u64,
    },
    KillBoth {
        down: u64,
    },
    Restart {
        which: usize,
    },
    Pause {
        which: usize,
        length: u64,
    },
    KillPostgres {
        down: u64,
    },
    CutDatabase {
        which: usize,
    },
    /// Statements are executed, but their responses are late, or lost with the connection.
    HoldAnswers {
        which: usize,
        length: u64,
        lose: bool,
    },
    StallDatabase {
        which: usize,
        length: u64,
    },
    CutClients {
        which: usize,
    },
    StallClients {
        which: usize,
        length: u64,
    },
    RefuseUpstream {
        length: u64,
    },
    /// Of the S3 server.
    Store {
        fault: s3::Fault,
        length: u64,
    },
}

/// Kinds of faults, not counting those of the S3 server.
const KINDS: u32 = 12;

/// Draws and injects the faults of a round; returns when all have been repaired.
pub async fn inject(scene: Arc<Scene>, round: u32) {
    let mut rng = scene.args.rng(&format!("faults {round}"));
    let length = scene.args.seconds * 1_000;
    let mut plan = Vec::new();
    // One server is killed in every round, the S3 server fails, and then all kinds take turns, so
    // that a short run has covered them.
    let mut others = rng.fork();
    let others = std::iter::repeat_with(|| others.u32(0..KINDS));
    let store = scene.s3.as_ref().map(|_| KINDS);
    let kinds = [0, round % KINDS].into_iter().chain(store).chain(others);
    for kind in kinds.take(rng.usize(4..8)) {
        // Not at the very end, so that there is work after each.
        plan.push((rng.u64(length / 20..length * 3 / 4), draw(kind, &mut rng)));
    }
    // A slow database widens every gap between two statements.
    if rng.u32(0..5) < 2 {
        scene.tally.fault("a slow database");
        let delay = Duration::from_millis(rng.u64(40..250));
        scene
            .servers
            .iter()
            .for_each(|server| server.back().slow(delay));
    }
    let injecting = plan.into_iter().map(|(at, fault)| {
        let scene = Arc::clone(&scene);
        async move {
            tokio::time::sleep(Duration::from_millis(at)).await;
            scene.tally.fault(fault.name());
            fault.happen(&scene).await;
        }
    });
    futures_util::future::join_all(injecting).await;
    scene
        .servers
        .iter()
        .for_each(|server| server.back().slow(Duration::ZERO));
}

fn draw(kind: u32, rng: &mut fastrand::Rng) -> Fault {
    let which = rng.usize(0..2);
    let down = rng.u64(0..1_500);
    // Longer than the lease: a server that wakes up after others have taken over its work.
    let lease = LEASE_SECONDS * 1_000;
    match kind {
        0 => Fault::KillServer { which, down },
        1 => Fault::Pause {
            which,
            length: rng.u64(lease..lease * 3),
        },
        2 => Fault::KillPostgres { down: down / 2 },
        3 => Fault::Restart { which },
        4 => Fault::StallDatabase {
            which,
            length: rng.u64(300..lease * 2),
        },
        5 => Fault::CutDatabase { which },
        6 => Fault::KillBoth { down },
        7 => Fault::CutClients { which },
        8 => Fault::HoldAnswers {
            which,
            length: rng.u64(lease..lease * 3),
            lose: false,
        },
        9 => Fault::HoldAnswers {
            which,
            length: rng.u64(50..1_500),
            lose: true,
        },
        10 => Fault::StallClients {
            which,
            length: rng.u64(300..2_000),
        },
        // Some shorter than the servers' retries last, some longer.
        11 => Fault::RefuseUpstream {
            length: rng.u64(30..1_200),
        },
        _ => Fault::Store {
            fault: [
                s3::Fault::Slow(Duration::from_millis(rng.u64(50..800))),
                s3::Fault::Refuses(503, "SlowDown"),
                s3::Fault::Refuses(507, "XMinioStorageFull"),
                s3::Fault::Refuses(403, "QuotaExceeded"),
                s3::Fault::Gone,
                s3::Fault::Cut,
            ][rng.usize(0..6)],
            length: rng.u64(200..lease * 2),
        },
    }
}

impl Fault {
    const fn name(self) -> &'static str {
        match self {
            Self::KillServer { .. } => "kill -9 of a server",
            Self::KillBoth { .. } => "kill -9 of both servers",
            Self::Restart { .. } => "SIGTERM of a server",
            Self::Pause { .. } => "SIGSTOP of a server",
            Self::KillPostgres { .. } => "kill -9 of Postgres",
            Self::CutDatabase { .. } => "connections to the database cut",
            Self::HoldAnswers { lose: true, .. } => "answers of the database lost",
            Self::HoldAnswers { .. } => "answers of the database held back",
            Self::StallDatabase { .. } => "connections to the database stalled",
            Self::CutClients { .. } => "connections to clients cut",
            Self::StallClients { .. } => "connections to clients stalled",
            Self::RefuseUpstream { .. } => "connections to upstreams refused",
            Self::Store { fault, .. } => match fault {
                s3::Fault::Slow(_) => "S3: slow",
                s3::Fault::Refuses(503, _) => "S3: busy (503)",
                s3::Fault::Refuses(..) => "S3: full (403, 507)",
                s3::Fault::Cut => "S3: files cut off",
                s3::Fault::Gone | s3::Fault::None => "S3: gone",
            },
        }
    }

    async fn happen(self, scene: &Scene) {
        let millis = Duration::from_millis;
        let server = |which: usize| &scene.servers[which];
        match self {
            Self::KillServer { which, down } => {
                scene.tally.kill();
                server(which).kill(millis(down)).await;
            }
            Self::KillBoth { down } => {
                scene.tally.kill();
                scene.tally.kill();
                tokio::join!(server(0).kill(millis(down)), server(1).kill(millis(down)));
            }
            Self::Restart { which } => {
                if !server(which).restart().await {
                    let detail = format!("server {which}");
                    scene.tally.violation("a server does not stop", detail);
                }
            }
            Self::Pause { which, length } => server(which).pause(millis(length)).await,
            Self::KillPostgres { down } => {
                scene.tally.kill();
                scene.postgres.current().kill(millis(down)).await;
            }
            Self::CutDatabase { which } => server(which).back().cut(),
            Self::HoldAnswers {
                which,
                length,
                lose,
            } => {
                let back = server(which).back();
                back.set(Flow::AnswersStalled);
                tokio::time::sleep(millis(length)).await;
                if lose {
                    back.cut();
                }
                back.set(Flow::Free);
            }
            Self::CutClients { which } => server(which).front().cut(),
            Self::StallDatabase { which, length } => {
                server(which).back().set(Flow::Stalled);
                tokio::time::sleep(millis(length)).await;
                server(which).back().set(Flow::Free);
            }
            Self::StallClients { which, length } => {
                server(which).front().set(Flow::Stalled);
                tokio::time::sleep(millis(length)).await;
                server(which).front().set(Flow::Free);
            }
            Self::RefuseUpstream { length } => scene.upstream.refuse(millis(length)).await,
            Self::Store { fault, length } => {
                if let Some(s3) = &scene.s3 {
                    s3.set(fault).await;
                    tokio::time::sleep(millis(length)).await;
                    s3.set(s3::Fault::None).await;
                }
            }
        }
    }
}
