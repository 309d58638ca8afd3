//! Output.

use std::{process::ExitCode, time::Instant};

use super::{Day, Options};
use crate::{report, samples::Sample, stage::Stage};

/// The largest tables, with their indexes.
const TABLES: &str = "
    select format('%s %s', relname, pg_size_pretty(pg_total_relation_size(oid)))
    from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace
    order by pg_total_relation_size(oid) desc limit 6";

/// Before the load.
pub fn opening(options: &Options) {
    let (clients, seed) = (options.args.clients, options.args.seed);
    match &options.args.previous {
        Some(_) => println!(
            "upgrade: two servers of the previous release, {clients} clients; every {} s one of them \
             is replaced: by this release, by the previous one, by this one; seed {seed}",
            options.args.seconds
        ),
        None => println!(
            "day: {} minutes, three servers, {clients} clients, a restart every {} s; seed {seed}",
            options.minutes, options.every
        ),
    }
    println!("\n  minute  requests  failed  memory of the servers in MB");
}

/// After each event.
pub async fn event(day: &Day, what: &str) {
    let mut memory = Vec::new();
    for server in &day.stage.servers {
        let megabytes = server.memory().await;
        memory.push(megabytes.map_or_else(|| "?".to_owned(), |mb| mb.to_string()));
    }
    let (requests, failed) = counts(&day.samples.all());
    println!(
        "{:>8.1}  {requests:>8}  {failed:>6}  {}  {what}",
        day.began.elapsed().as_secs_f64() / 60.0,
        memory.join(" "),
    );
}

fn counts(samples: &[Sample]) -> (usize, usize) {
    let failed = samples.iter().filter(|sample| sample.failure.is_some());
    (samples.len(), failed.count())
}

/// All requests, of which none may fail that the fault does not explain.
pub fn requests(day: &Day, generations: usize, completed: usize) {
    let (requests, failed) = counts(&day.samples.all());
    let slowest = day.samples.all().iter().map(|s| s.ended - s.begun).max();
    println!(
        "\n{requests} requests, {failed} failed, the slowest took {:.1} s; {generations} generations, \
         {completed} completed",
        slowest.unwrap_or_default().as_secs_f64(),
    );
    let failures = day.samples.failures(|sample| {
        let during = |[from, to]: [Instant; 2]| sample.ended >= from && sample.begun <= to;
        usize::from(!day.fault.is_some_and(during))
    });
    for (why, [explained, others]) in failures {
        println!("{explained:>7} explained by the failover, {others} not: {why}");
        if others > 0 {
            let detail = format!("{others} times {why}");
            day.stage.tally.violation("a request failed", detail);
        }
    }
}

pub async fn tables(stage: &Stage) {
    let mut database = stage.postgres.connect().await;
    let tables: Vec<String> = sqlx::query_scalar(TABLES)
        .fetch_all(&mut database)
        .await
        .unwrap();
    println!("tables: {}", tables.join(", "));
}

/// After everything.
pub fn closing(stage: &Stage, options: &Options) -> ExitCode {
    let violations = stage.tally.violations();
    report::violations(&violations);
    let (seconds, clients, seed) = (stage.args.seconds, stage.args.clients, stage.args.seed);
    let repeat = match stage.args.previous {
        Some(_) => format!("upgrade seconds={seconds} clients={clients} seed={seed}"),
        None => format!(
            "day minutes={} every={} clients={clients} seed={seed}",
            options.minutes, options.every
        ),
    };
    report::verdict(violations.is_empty(), &repeat)
}
