//! Chaos test: two servers on one Postgres under a mixed load of all modalities, while processes
//! are killed and paused, connections cut, and upstreams fail in every way; after each round the
//! ledger is audited. `make chaos` runs it; `cargo test` does not, since it takes minutes.
//!
//! Here: the run. Elsewhere: arguments ([`args`]), participants ([`stage`], [`account`],
//! [`server`], [`clocks`], [`postgres`], [`proxy`], [`upstream`], [`receiver`]), actions
//! ([`clients`], [`faults`]), checks ([`audit`], [`seen`]), and output ([`report`], [`tally`]).
//! Only loopback addresses are used, and everything that is started ends with this program.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a program for the terminal that gives up when it cannot go on"
)]

mod account;
mod args;
mod audit;
mod clients;
mod clocks;
mod faults;
mod folder;
mod postgres;
mod process;
#[expect(dead_code, reason = "the failover uses more of it")]
mod proxy;
mod receiver;
mod report;
mod seen;
#[expect(dead_code, reason = "the day uses more of it")]
mod server;
mod stage;
mod tally;
mod upstream;
mod wire;

use std::{process::ExitCode, sync::Arc, time::Duration};

use clap::Parser as _;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};

use crate::{args::Args, audit::Auditor, clients::Http, stage::Stage};

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    // Dropped last: all tasks end with it, and with them whatever was started.
    let runtime = runtime.unwrap();
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate()).unwrap();
        let mut interrupted = signal(SignalKind::interrupt()).unwrap();
        tokio::select! {
            code = run(&args) => code,
            _ = terminated.recv() => ExitCode::from(143),
            _ = interrupted.recv() => ExitCode::from(130),
        }
    })
}

async fn run(args: &Args) -> ExitCode {
    report::opening(args);
    let stage = Stage::set(args).await;
    let (http, auditor) = (Http::new(&stage), Auditor::default());
    let mut longest = Duration::ZERO;
    for round in 1..=args.rounds {
        let tally = &stage.tally;
        let before = [tally.requests(), tally.fault_count(), tally.kills()];
        let clients = load(&stage, &http, round).await;
        let checked = auditor.check(&stage, &http, round, clients).await;
        longest = longest.max(checked.recovery);
        report::round(round, &checked, tally, before);
        if args.fail_fast && tally.violation_count() > 0 {
            break;
        }
    }
    let events = auditor.finish(&stage, &http).await;
    report::closing(&stage, longest, events);
    if stage.tally.violation_count() == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The load of a round and its faults; afterwards everything runs, and the clients get their last
/// responses.
async fn load(stage: &Arc<Stage>, http: &Http, round: u32) -> JoinSet<()> {
    stage.set_over(false);
    let clients = clients::start(stage, http, round).await;
    let length = tokio::time::sleep(Duration::from_secs(stage.args.seconds));
    tokio::join!(faults::inject(Arc::clone(stage), round), length);
    stage.set_over(true);
    stage.postgres.revive().await;
    for server in &stage.servers {
        if server.has_died().await {
            let detail = format!("{} in round {round}", server.url());
            stage.tally.violation("a server ended by itself", detail);
        }
        server.start().await;
    }
    clients
}
