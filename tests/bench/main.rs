//! `make bench`: compares gensvc under load with a bare proxy that counts no credits.
//!
//! A benchmark, not a test. Postgres, the fake upstream, the proxy and gensvc run in their own
//! processes on loopback addresses; this process creates the load. It fails if an answer failed or
//! the ledger does not agree. `docs/performance.md` explains the output.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line program that panics when it cannot continue"
)]

mod accounts;
mod agent;
mod args;
mod cases;
#[path = "../support/children.rs"]
mod children;
#[path = "../support/cluster.rs"]
mod cluster;
mod compare;
mod counters;
#[path = "../support/folder.rs"]
mod folder;
#[path = "../support/interrupt.rs"]
mod interrupt;
mod load;
mod outcome;
mod perf;
#[path = "../support/picture.rs"]
mod picture;
mod postgres;
#[path = "../support/process.rs"]
mod process;
mod proxy;
#[path = "../support/quantile.rs"]
mod quantile;
mod role;
mod server;
#[path = "../support/signal.rs"]
mod signal;
mod slice;
mod stage;
mod table;
mod upstream;
mod wire;
mod work;

use std::process::ExitCode;

use clap::Parser as _;
use tikv_jemallocator::Jemalloc;
use tokio::runtime::{Builder, Runtime};

use crate::args::{Args, Role};

/// As the program's own, since the proxy is compared with it.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    let args = Args::parse();
    match &args.role {
        // One thread for each core, as a program of this kind has by default.
        Some(Role::Proxy { upstream }) => serve(None, proxy::serve(upstream)),
        // It is to cost little, and one thread switches less. So is the load.
        Some(Role::Upstream) => serve(Some(1), upstream::serve()),
        None => runtime(Some(1)).block_on(interrupt::run(cases::run(&args))),
    }
}

fn serve(threads: Option<usize>, serve: impl Future<Output = ()>) -> ExitCode {
    role::end_with_parent();
    runtime(threads).block_on(serve);
    ExitCode::FAILURE
}

fn runtime(threads: Option<usize>) -> Runtime {
    let mut builder = Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(threads);
    }
    builder.enable_all().build().unwrap()
}
