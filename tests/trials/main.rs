//! Trials of several servers on one database, under load, each a subcommand: faults of every kind
//! ([`chaos`]), the loss of the primary database ([`failover`]), days of operation or an upgrade
//! ([`day`]), and attacks on the server's memory ([`attacks`]). `make chaos`, `failover`, `day`,
//! `upgrade` and `attacks` run them; `cargo test` does not, since they take minutes.
//!
//! What they share: participants ([`stage`]: [`server`], [`databases`], [`upstream`], [`account`],
//! [`proxy`], [`clocks`]), requests ([`http`], [`call`]), a steady load ([`load`]) and its
//! measurements ([`samples`]), checks ([`audit`], [`seen`]), and output ([`report`], [`tally`]).
//! `tests/support` has what other test programs use too. Only loopback addresses are used, and
//! everything that is started ends with this program.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a program for the terminal that gives up when it cannot go on"
)]

mod account;
mod args;
mod attacks;
mod audit;
mod call;
mod chaos;
mod clocks;
#[path = "../support/cluster.rs"]
mod cluster;
mod databases;
mod day;
mod failover;
#[path = "../support/folder.rs"]
mod folder;
#[path = "../support/hostile.rs"]
mod hostile;
mod http;
#[path = "../support/interrupt.rs"]
mod interrupt;
mod load;
#[path = "../support/picture.rs"]
mod picture;
mod postgres;
#[path = "../support/process.rs"]
mod process;
mod proxy;
#[path = "../support/quantile.rs"]
mod quantile;
mod report;
#[path = "../it/s3/server.rs"]
mod s3;
mod samples;
#[path = "../support/sandbox.rs"]
mod sandbox;
mod seen;
mod server;
#[path = "../support/signal.rs"]
mod signal;
mod stage;
mod tally;
#[path = "../support/texts.rs"]
mod texts;
mod upstream;
mod wire;

use std::process::ExitCode;

use clap::Parser;

#[derive(Debug, Parser)]
enum Trial {
    Chaos(args::Args),
    Attacks(attacks::Options),
    Failover(failover::Options),
    Day(day::Options),
}

fn main() -> ExitCode {
    match Trial::parse() {
        Trial::Chaos(args) => run(chaos::run(&args)),
        Trial::Attacks(options) => run(attacks::run(&options)),
        Trial::Failover(options) => {
            // Before there are threads: it may start this program again.
            let network = failover::Network::enter(options.stall);
            run(failover::run(&options.args, &network))
        }
        Trial::Day(options) => run(day::run(&options)),
    }
}

fn run(trial: impl Future<Output = ExitCode>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    // Dropped last: all tasks end with it, and with them whatever was started.
    let runtime = runtime.unwrap();
    runtime.block_on(interrupt::run(trial))
}
