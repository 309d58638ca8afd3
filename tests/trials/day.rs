//! Operation under load, on a primary Postgres with a synchronous standby: servers are restarted one
//! after the other as behind a balancer, and no request may fail that no fault explains.
//! `make day` compresses days of that into minutes, with a failover, a key that is rotated and prices
//! that change; `make upgrade` replaces the servers of the previous release by those of this one,
//! back, and again.
//!
//! Here: the run. Elsewhere: what happens to the servers ([`events`]), and output ([`report`]).

mod events;
mod report;

use std::{process::ExitCode, sync::Arc, time::Instant};

use tokio::task::JoinSet;

use crate::{
    args::Args,
    audit,
    http::Http,
    load::{self, Client},
    samples::Samples,
    server,
    stage::{Plan, Stage},
};

/// The marks of all requests begin with it.
const ROUND: u32 = 1;
/// Between two requests of a client, in milliseconds.
const PAUSES: std::ops::Range<u64> = 100..1_000;

/// A day, or with `--previous` an upgrade.
#[derive(Debug, Clone, clap::Args)]
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

/// What happens, and what is measured.
struct Day {
    stage: Arc<Stage>,
    samples: Samples,
    began: Instant,
    /// The ids of the keys that clients use.
    keys: Vec<i64>,
    /// A time in which requests may fail.
    fault: Option<[Instant; 2]>,
}

pub async fn run(options: &Options) -> ExitCode {
    report::opening(options);
    let args = &options.args;
    let programs = match &args.previous {
        Some(previous) => vec![previous.clone(); 2],
        None => vec![server::current(); 3],
    };
    let plan = Plan {
        name: "day",
        programs,
        // As much as what runs may need.
        settings: &[
            ("GENSVC__SERVER__SHUTDOWN_SECONDS", "10"),
            ("GENSVC__JOBS__DEADLINE_SECONDS", "60"),
        ],
        standby: true,
        credits: &["1000000"; 4],
    };
    let stage = Arc::new(Stage::set(args, &plan).await);
    stage.upstream.calm(true);
    let mut day = Day {
        keys: events::new_keys(&stage).await,
        samples: Samples::default(),
        began: Instant::now(),
        fault: None,
        stage,
    };
    let http = Http::new(&day.stage);
    let clients = day.start(&http);
    match &args.previous {
        Some(previous) => day.upgrade(previous).await,
        None => day.pass(options).await,
    }
    day.stage.set_over(true);
    load::join(&day.stage, clients).await;
    day.check(&http, options).await
}

impl Day {
    fn start(&self, http: &Http) -> JoinSet<()> {
        let mut clients = JoinSet::new();
        for n in 0..self.stage.args.clients {
            let client = Client {
                stage: Arc::clone(&self.stage),
                http: http.clone(),
                samples: self.samples.clone(),
                server: None,
                account: usize::try_from(n).unwrap() % self.stage.accounts.len(),
                name: format!("{ROUND}-{n}"),
                strict: true,
            };
            clients.spawn(client.run(PAUSES));
        }
        clients
    }

    async fn check(&self, http: &Http, options: &Options) -> ExitCode {
        let stage = &self.stage;
        audit::settle(stage).await;
        let rows = audit::check(stage, http, ROUND).await;
        for (mark, calls) in stage.upstream.log() {
            if calls.started > 1 {
                let detail = format!("{mark}: {calls:?}");
                stage.tally.violation("submitted twice", detail);
            }
        }
        let completed = rows.iter().filter(|row| row.status == "completed").count();
        report::requests(self, rows.len(), completed);
        report::tables(stage).await;
        for command in [
            &["ledger", "verify"][..],
            &["ledger", "verify", "--since-last"],
            &["media", "verify"],
        ] {
            println!("{}", audit::verify(stage, command).await);
        }
        report::closing(stage, options)
    }
}
