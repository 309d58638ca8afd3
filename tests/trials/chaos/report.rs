//! Output.

use std::{process::ExitCode, time::Duration};

use super::{audit::Round, scene::Scene};
use crate::{args::Args, clocks, report, tally::Tally};

/// Before the first round.
pub fn opening(args: &Args) {
    println!(
        "chaos: {} rounds of {} s, {} clients, two servers, one Postgres; seed {}",
        args.rounds, args.seconds, args.clients, args.seed
    );
    println!("{}", clocks(args));
    match &args.s3 {
        Some(_) => println!("Files are stored on an S3 server, which has faults too."),
        None => println!("Files are stored in a folder: no S3 server is given."),
    }
    if let Some(previous) = &args.previous {
        println!(
            "The second server is of the previous release: {}",
            previous.display()
        );
    }
    println!(
        "Load and faults are drawn from the seed. What meets what, and when, is up to the machine:\n\
         the same seed repeats the plan, not each race.\n"
    );
    println!("round  requests  completed  failed  faults  kills  recovery  violations");
}

fn clocks(args: &Args) -> String {
    if args.true_clocks {
        "The servers' clocks are right.".to_owned()
    } else if clocks::library().is_some() {
        let most = clocks::most(args);
        format!("The servers' clocks are up to {most} minutes wrong, and differ after each start.")
    } else {
        "libfaketime is not installed: the servers' clocks are right.".to_owned()
    }
}

/// After each round, with the totals so far.
pub fn round(n: u32, round: &Round, tally: &Tally, before: [u64; 3]) {
    let [requests, faults, kills] = before;
    println!(
        "{n:>5}  {:>8}  {:>9}  {:>6}  {:>6}  {:>5}  {:>6.1} s  {:>10}",
        tally.requests() - requests,
        round.completed,
        round.failed,
        tally.fault_count() - faults,
        tally.kills() - kills,
        round.recovery.as_secs_f64(),
        tally.violation_count(),
    );
}

/// After the last round.
pub fn closing(scene: &Scene, longest: Duration, events: Duration) -> ExitCode {
    let (tally, args) = (&scene.tally, &scene.args);
    println!("\nfaults injected");
    for (name, count) in tally.faults() {
        println!("{count:>7}  {name}");
    }
    println!("\nwhat clients and the operator did");
    for (name, count) in tally.deeds() {
        println!("{count:>7}  {name}");
    }
    println!("\nanswers to clients");
    for (status, count) in tally.answers() {
        println!("{count:>7}  {status}");
    }
    println!();
    report::violations(&tally.violations());
    println!(
        "\n{} requests, {} kills, {} faults, {} violations, longest recovery {:.1} s, last event {:.1} s",
        tally.requests(),
        tally.kills(),
        tally.fault_count(),
        tally.violation_count(),
        longest.as_secs_f64(),
        events.as_secs_f64(),
    );
    let repeat = format!(
        "chaos rounds={} seconds={} seed={}",
        args.rounds, args.seconds, args.seed
    );
    report::verdict(tally.violation_count() == 0, &repeat)
}
