//! Output.

use std::{collections::BTreeSet, process::ExitCode, time::Duration};

use super::{AFTERWARDS, Loss, Network, Service, UNNOTICED};
use crate::{
    args::Args,
    report::{self, Violations},
    samples::Failures,
};

/// The result of a round.
pub struct Round {
    pub n: u32,
    pub loss: Loss,
    pub requests: usize,
    /// Begun before the loss, until the switch, and after it.
    pub failures: Failures<3>,
    pub promotion: Duration,
    pub services: [Service; 2],
    pub checked: Checked,
    pub violations: Violations,
}

/// What was checked.
pub struct Checked {
    /// Generations that a client knows of.
    pub known: usize,
    /// Of them, charges that a client saw.
    pub charges: usize,
    /// Generations that were called more than once upstream.
    pub double_calls: usize,
    /// How long the last work took to end.
    pub settling: Duration,
}

/// Before the first round.
pub fn opening(args: &Args, network: &Network) {
    println!(
        "failover: {} rounds, {} clients and 10 texts a second at two servers; the primary is lost\n\
         after {} s, the standby promoted {} s later; the load continues for {} s; seed {}",
        args.rounds,
        args.clients,
        args.seconds,
        UNNOTICED.as_secs(),
        AFTERWARDS.as_secs(),
        args.seed,
    );
    match network {
        Network::Own => println!("Silenced: the kernel drops the packets of the primary.\n"),
        Network::Shared(why) => {
            println!("Silenced: the proxies stop, since packets cannot be dropped ({why}).\n");
        }
    }
    println!(
        "                                      server a         server b\n\
         round      requests  failed  promoted    first  steady    first  steady    known  charges  \
         double calls  settled  violations"
    );
}

/// After each round.
pub fn line(round: &Round) {
    let failed: usize = round.failures.values().flatten().sum();
    let loss = round.loss.name();
    let [a, b] = round.services;
    println!(
        "{:>2} {loss:<8}  {:>7}  {failed:>6}  {:>6.1} s  {:>7} {:>7}  {:>7} {:>7}  {:>7}  {:>7}  {:>12}  \
         {:>5.1} s  {:>10}",
        round.n,
        round.requests,
        round.promotion.as_secs_f64(),
        seconds(a.first),
        seconds(a.steady),
        seconds(b.first),
        seconds(b.steady),
        round.checked.known,
        round.checked.charges,
        round.checked.double_calls,
        round.checked.settling.as_secs_f64(),
        round.violations.values().map(BTreeSet::len).sum::<usize>(),
    );
}

/// After the last round.
pub fn closing(rounds: &[Round], args: &Args) -> ExitCode {
    println!(
        "\nfirst, steady: from the switch to the first generation, and to the end of the last\n\
         request begun after it that failed or took more than 5 s (the aim: 5 s)"
    );
    for round in rounds {
        println!(
            "\nround {} {}: requests that failed, begun before the loss, until the switch, after it",
            round.n,
            round.loss.name()
        );
        for (failure, [before, until, after]) in &round.failures {
            println!("{before:>7} {until:>7} {after:>7}  {failure}");
        }
        report::violations(&round.violations);
    }
    let clean = rounds.iter().all(|round| round.violations.is_empty());
    let repeat = format!(
        "failover rounds={} seconds={} seed={}",
        args.rounds, args.seconds, args.seed
    );
    report::verdict(clean, &repeat)
}

/// Seconds, if it happened.
pub fn seconds(time: Option<Duration>) -> String {
    time.map_or_else(
        || "never".to_owned(),
        |time| format!("{:.1} s", time.as_secs_f64()),
    )
}
