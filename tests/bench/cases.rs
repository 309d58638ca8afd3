//! The cases, one after the other, each on a database of its own.

mod growth;
mod mixed;
mod quiet;
mod texts;
mod turns;

use std::{cell::Cell, process::ExitCode, time::Duration};

use clap::ValueEnum;

use crate::{
    agent::Size,
    args::Args,
    compare::{Comparison, Extent},
    stage::{Scene, Setup, Stage},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// Texts of 1,000 accounts in turn.
    Accounts,
    /// Texts of one account.
    Hot,
    /// Streamed texts of 1,000 accounts.
    Stream,
    /// Lookups and the history, together with texts.
    Reads,
    /// Texts while 1,000 videos are in flight.
    Videos,
    /// Images of 1,000 accounts.
    Images,
    /// Turns of an agent of 245 KB.
    TurnSmall,
    /// Turns of an agent of 2 MiB.
    TurnLarge,
    /// Texts of a quiet account next to a busy one.
    Quiet,
    /// Texts of 10, 1,000 and 100,000 accounts.
    GrowAccounts,
    /// Texts by 1 to 512 callers.
    GrowConnections,
    /// Texts through 1, 2 and 3 servers on one database.
    GrowServers,
    /// Texts on 0, 1 and 5 million generations.
    GrowGenerations,
}

/// Slices of gensvc, and as many of the proxy.
const SLICES: u32 = 5;

/// A run.
pub struct Run<'a> {
    pub args: &'a Args,
    pub stage: Stage,
    /// Whether an answer failed or the ledger does not agree.
    bad: Cell<bool>,
}

/// Runs the cases that were asked for.
pub async fn run(args: &Args) -> ExitCode {
    let run = Run {
        args,
        stage: Stage::set(args).await,
        bad: Cell::new(false),
    };
    run.opening().await;
    for case in &args.cases {
        match case {
            Case::Accounts => texts::accounts(&run).await,
            Case::Hot => texts::hot(&run).await,
            Case::Stream => texts::stream(&run).await,
            Case::Images => texts::images(&run).await,
            Case::TurnSmall => turns::turns(&run, Size::Small).await,
            Case::TurnLarge => turns::turns(&run, Size::Large).await,
            Case::Reads => mixed::reads(&run).await,
            Case::Videos => mixed::videos(&run).await,
            Case::Quiet => quiet::quiet(&run).await,
            Case::GrowAccounts => growth::accounts(&run).await,
            Case::GrowConnections => growth::connections(&run).await,
            Case::GrowServers => growth::servers(&run).await,
            Case::GrowGenerations => growth::generations(&run).await,
        }
    }
    if run.bad.get() {
        println!("FAILED: answers failed, or the ledger does not agree; see above.");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

impl Run<'_> {
    async fn opening(&self) {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let version = self.stage.postgres.show("server_version").await;
        let busy = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let busy = busy.split(' ').next().unwrap_or("unknown");
        let (server, seconds) = (self.args.server.display(), self.args.seconds);
        println!("{server} on {cores} cores, Postgres {version}; load average {busy} before.");
        println!("Medians of {SLICES} slices of {seconds} s each, alternating with the proxy's.\n");
        if cfg!(debug_assertions) {
            println!(
                "A DEBUG BUILD of the load, the proxy and the upstream: no figures to keep.\n"
            );
        }
    }

    pub async fn scene(&self, setup: Setup) -> Scene<'_> {
        self.stage.scene(setup).await
    }

    pub fn extent(&self) -> Extent {
        Extent {
            slices: SLICES,
            length: Duration::from_secs(self.args.seconds),
        }
    }

    pub fn note(&self, both: &Comparison) {
        self.note_bad(both.failed());
    }

    pub fn note_bad(&self, bad: bool) {
        self.bad.set(self.bad.get() || bad);
    }

    /// Ends a case.
    pub async fn end(&self, scene: Scene<'_>) {
        self.note_bad(!scene.end().await);
    }
}
