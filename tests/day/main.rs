//! Operation under load, on a primary Postgres with a synchronous standby: servers are restarted one
//! after the other as behind a balancer, and no request may fail that no fault explains.
//! `make day` compresses days of that into minutes, with a failover, a key that is rotated and prices
//! that change; `make upgrade` replaces the servers of the previous release by those of this one,
//! back, and again. `cargo test` runs neither, since they take minutes.
//!
//! Here: the run. Elsewhere: participants ([`stage`]), requests ([`load`]), what happens to them
//! ([`events`]), measurements ([`samples`]), checks ([`audit`]), and output ([`report`]). The rest
//! is shared with `tests/chaos` and `tests/failover`.
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
#[path = "../failover/clients.rs"]
mod clients;
#[path = "../chaos/clocks.rs"]
mod clocks;
mod events;
#[path = "../chaos/folder.rs"]
mod folder;
mod load;
#[path = "../failover/pair.rs"]
#[expect(dead_code, reason = "failover uses more of it")]
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

use std::process::ExitCode;

use chaos::upstream;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use crate::{args::Args, clients::Http, stage::Stage};

/// Restarts servers under load, and audits the ledger: a day, or with `--previous` an upgrade.
#[derive(Debug, Clone, Parser)]
pub struct Options {
    #[command(flatten)]
    args: Args,
    /// How long the day takes.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Seconds from one restart to the next.
    #[arg(long, default_value_t = 60)]
    every: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    // Dropped last: all tasks end with it, and with them whatever was started.
    let runtime = runtime.unwrap();
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate()).unwrap();
        let mut interrupted = signal(SignalKind::interrupt()).unwrap();
        tokio::select! {
            code = run(&options) => code,
            _ = terminated.recv() => ExitCode::from(143),
            _ = interrupted.recv() => ExitCode::from(130),
        }
    })
}

async fn run(options: &Options) -> ExitCode {
    report::opening(options);
    let stage = Stage::set(options).await;
    let http = Http::new(&stage);
    let clients = load::start(&stage, &http);
    match &options.args.previous {
        Some(previous) => events::upgrade(&stage, previous).await,
        None => events::day(&stage, options).await,
    }
    stage.end_load();
    load::join(&stage, clients).await;
    let checked = audit::check(&stage, &http).await;
    report::closing(&stage, &checked).await
}
