//! Two servers on a primary Postgres with a synchronous standby, under a mixed load. The primary is
//! lost, once killed and once silenced like a host that drops off the network; the standby is
//! promoted and takes over the database's address. Measured is when callers are served again;
//! checked is that every confirmed result is in the ledger of the new primary.
//!
//! Here: the run. Elsewhere: how a database falls silent ([`network`]), when callers were served
//! again ([`service`]), and output ([`report`]).

mod network;
mod report;
mod service;

use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

pub use self::network::Network;
use self::{
    report::{Checked, Round},
    service::Service,
};
use crate::{
    args::Args,
    audit,
    http::Http,
    load::{self, Client},
    samples::Samples,
    seen::Known,
    server,
    stage::{Plan, Stage},
};

/// From the loss of the primary to the promotion: the time to detect it.
pub const UNNOTICED: Duration = Duration::from_secs(3);
/// How long the load continues after the switch.
const AFTERWARDS: Duration = Duration::from_secs(15);
/// Deadline after the switch for callers to be served again.
const AIM: Duration = Duration::from_secs(5);
/// Between two requests of a client, in milliseconds.
const PAUSES: std::ops::Range<u64> = 5..100;

#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    pub args: Args,
    /// Use the proxies to drop traffic even where packets can be dropped.
    #[arg(long)]
    pub stall: bool,
}

/// How the primary is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    Killed,
    /// It runs on, but is unreachable in both directions.
    Silenced,
}

impl Loss {
    const fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Silenced => "silenced",
        }
    }
}

pub async fn run(args: &Args, network: &Network) -> ExitCode {
    report::opening(args, network);
    let mut rounds = Vec::new();
    for n in 1..=args.rounds {
        for loss in [Loss::Killed, Loss::Silenced] {
            let round = round(args, network, n, loss).await;
            report::line(&round);
            let failed = !round.violations.is_empty();
            rounds.push(round);
            if failed && args.fail_fast {
                return report::closing(&rounds, args);
            }
        }
    }
    report::closing(&rounds, args)
}

async fn round(args: &Args, network: &Network, n: u32, loss: Loss) -> Round {
    let current = server::current();
    let previous = args.previous.as_ref().unwrap_or(&current);
    let plan = Plan {
        name: &format!("failover-{n}-{}", loss.name()),
        programs: vec![current.clone(), previous.clone()],
        settings: &[],
        standby: true,
        credits: &["1000000"; 4],
    };
    let stage = Arc::new(Stage::set(args, &plan).await);
    // Failures here are due to the missing database.
    stage.upstream.calm(true);
    let http = Http::new(&stage);
    let samples = Samples::default();
    let clients = start(&stage, &http, &samples, n);
    tokio::time::sleep(Duration::from_secs(args.seconds)).await;

    let [a, b] = [0, 1].map(|n| stage.servers[n].back());
    let proxies = [a, b, stage.postgres.replication()];
    let began = Instant::now();
    match loss {
        Loss::Killed => stage.postgres.kill(),
        Loss::Silenced => network.silence(&proxies),
    }
    tokio::time::sleep(UNNOTICED).await;
    let promoting = Instant::now();
    stage.postgres.promote().await;
    let promotion = promoting.elapsed();
    stage.switch();
    if loss == Loss::Silenced {
        network.admit_newcomers();
    }
    let switched = Instant::now();
    tokio::time::sleep(AFTERWARDS).await;

    stage.set_over(true);
    load::join(&stage, clients).await;
    let services = [0, 1].map(|server| Service::of(&samples.all(), server, switched));
    for (service, name) in services.iter().zip(["a", "b"]) {
        if service.steady.is_none_or(|after| after > AIM) {
            let detail = format!("server {name}: {}", report::seconds(service.steady));
            let name = "not served again within 5 s of the switch";
            stage.tally.violation(name, detail);
        }
    }
    if services.iter().any(|service| service.steady.is_none()) {
        // So that the ledger can be settled all the same.
        println!("Service stays away: the dead connections are cut.");
        for proxy in &proxies {
            proxy.cut();
        }
        network.restore();
    }
    let checked = check(&stage, &http, n).await;
    let failures = samples.failures(|sample| {
        usize::from(sample.begun >= began) + usize::from(sample.begun >= switched)
    });
    let round = Round {
        n,
        loss,
        failures,
        requests: samples.all().len(),
        promotion,
        services,
        checked,
        violations: stage.tally.violations(),
    };
    network.restore();
    stage.postgres.revive_lost().await;
    round
}

/// All clients of a round, half of them at each server, and a beat for each, with an account of its
/// own: the requests that wait must not fill an account's share of those that come.
fn start(stage: &Arc<Stage>, http: &Http, samples: &Samples, round: u32) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    let client = |server, account, name: String| Client {
        stage: Arc::clone(stage),
        http: http.clone(),
        samples: samples.clone(),
        server: Some(server),
        account,
        name: format!("{round}-{name}"),
        strict: false,
    };
    for n in 0..stage.args.clients {
        let server = usize::from(n % 2 == 1);
        clients.spawn(client(server, server, n.to_string()).run(PAUSES));
    }
    for server in 0..2 {
        clients.spawn(client(server, 2 + server, format!("beat{server}")).beat());
    }
    clients
}

/// What the promoted database, the upstreams and the clients know is compared.
async fn check(stage: &Stage, http: &Http, round: u32) -> Checked {
    let settling = audit::settle(stage).await;
    let rows = audit::check(stage, http, round).await;
    audit::check_upstreams(stage, &rows, round, false);
    audit::verify(stage, &["ledger", "verify"]).await;
    let seen = stage.seen.state();
    let completed = |known: &&Known| {
        let outcome = known.outcome.as_ref();
        outcome.is_some_and(|outcome| outcome.status == "completed")
    };
    let log = stage.upstream.log();
    Checked {
        known: seen.known.len(),
        charges: seen.known.values().filter(completed).count(),
        double_calls: log.values().filter(|calls| calls.started > 1).count(),
        settling,
    }
}
