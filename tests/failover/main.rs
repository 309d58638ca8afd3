//! Failover test: two servers on a primary Postgres with a synchronous standby, under a mixed load.
//! The primary is lost, once killed and once silenced like a host that drops off the network; the
//! standby is promoted and takes over the database's address. Measured is when callers are served
//! again; checked is that every confirmed result is in the ledger of the new primary.
//! `make failover` runs it; `cargo test` does not, since it takes minutes.
//!
//! Here: the run. Elsewhere: the two databases ([`pair`]), how one of them falls silent
//! ([`network`]), participants ([`stage`]), requests ([`clients`], [`load`]), measurements
//! ([`samples`]), checks ([`audit`]), and output ([`report`]). The rest is shared with
//! `tests/chaos`.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a program for the terminal that gives up when it cannot go on"
)]

#[path = "../chaos/account.rs"]
#[expect(dead_code, reason = "chaos uses more of it")]
mod account;
#[path = "../chaos/args.rs"]
mod args;
mod audit;
mod clients;
#[path = "../chaos/clocks.rs"]
mod clocks;
#[path = "../chaos/folder.rs"]
mod folder;
mod load;
mod network;
mod pair;
#[path = "../chaos/postgres.rs"]
#[expect(dead_code, reason = "chaos uses more of it")]
mod postgres;
#[path = "../chaos/process.rs"]
mod process;
#[path = "../chaos/proxy.rs"]
#[expect(dead_code, reason = "chaos uses more of it")]
mod proxy;
mod report;
mod samples;
#[path = "../chaos/seen.rs"]
#[expect(dead_code, reason = "chaos uses more of it")]
mod seen;
#[path = "../chaos/server.rs"]
#[expect(dead_code, reason = "chaos uses more of it")]
mod server;
mod stage;
#[path = "../chaos/tally.rs"]
#[expect(dead_code, reason = "chaos uses more of it")]
mod tally;
#[path = "../chaos"]
mod chaos {
    #[expect(dead_code, reason = "chaos uses more of it")]
    pub mod upstream;
}
#[path = "../chaos/wire.rs"]
#[expect(dead_code, reason = "chaos uses more of it")]
mod wire;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use chaos::upstream;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    args::Args, clients::Http, network::Network, pair::Loss, report::Round, samples::Samples,
    stage::Stage,
};

/// From the loss of the primary to the promotion: the time to detect it.
const UNNOTICED: Duration = Duration::from_secs(3);
/// How long the load continues after the switch.
const AFTERWARDS: Duration = Duration::from_secs(15);
/// Deadline after the switch for callers to be served again.
const AIM: Duration = Duration::from_secs(5);

/// Loses the primary database under load, promotes its standby, and audits the ledger.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    args: Args,
    /// Use the proxies to drop traffic even where packets can be dropped.
    #[arg(long)]
    stall: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let network = Network::enter(options.stall);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    // Dropped last: all tasks end with it, and with them whatever was started.
    let runtime = runtime.unwrap();
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate()).unwrap();
        let mut interrupted = signal(SignalKind::interrupt()).unwrap();
        tokio::select! {
            code = run(&options.args, &network) => code,
            _ = terminated.recv() => ExitCode::from(143),
            _ = interrupted.recv() => ExitCode::from(130),
        }
    })
}

async fn run(args: &Args, network: &Network) -> ExitCode {
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
    let name = format!("failover-{n}-{}", loss.name());
    let stage = Stage::set(args, &name).await;
    let http = Http::new(&stage);
    let samples = Samples::default();
    let clients = load::start(&stage, &http, &samples, n);
    tokio::time::sleep(Duration::from_secs(args.seconds)).await;

    let began = Instant::now();
    match loss {
        Loss::Killed => stage.postgres.kill(),
        Loss::Silenced => network.silence(&stage.proxies()),
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

    stage.end_load();
    load::join(&stage, clients).await;
    let services = samples.services(switched);
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
        stage.proxies().iter().for_each(|proxy| proxy.cut());
        network.restore();
    }
    let checked = audit::check(&stage, &http, n).await;
    let round = Round {
        n,
        loss,
        failures: samples.failures(began, switched),
        requests: samples.count(),
        promotion,
        services,
        checked,
        violations: stage.tally.violations(),
    };
    network.restore();
    stage.postgres.revive_lost().await;
    round
}
