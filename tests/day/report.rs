//! Output.

use std::{collections::BTreeSet, process::ExitCode};

use crate::{Options, audit::Checked, stage::Stage};

/// Violations of one kind that are printed in full.
const SPELLED_OUT: usize = 5;
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
pub async fn event(stage: &Stage, what: &str) {
    let (requests, failed, _) = stage.samples.counts();
    let mut memory = Vec::new();
    for server in &stage.servers {
        let megabytes = server.memory().await;
        memory.push(megabytes.map_or_else(|| "?".to_owned(), |mb| mb.to_string()));
    }
    println!(
        "{:>8.1}  {requests:>8}  {failed:>6}  {}  {what}",
        stage.began.elapsed().as_secs_f64() / 60.0,
        memory.join(" "),
    );
}

/// After everything.
pub async fn closing(stage: &Stage, checked: &Checked) -> ExitCode {
    let (requests, failed, slowest) = stage.samples.counts();
    println!(
        "\n{requests} requests, {failed} failed, the slowest took {:.1} s; {} generations, {} completed",
        slowest.as_secs_f64(),
        checked.generations,
        checked.completed,
    );
    for (why, [explained, others]) in stage.samples.failures() {
        println!("{explained:>7} explained by the failover, {others} not: {why}");
        if others > 0 {
            let detail = format!("{others} times {why}");
            stage.tally.violation("a request failed", detail);
        }
    }
    let mut database = stage.postgres.connect().await;
    let tables: Vec<String> = sqlx::query_scalar(TABLES)
        .fetch_all(&mut database)
        .await
        .unwrap();
    println!("tables: {}", tables.join(", "));
    for said in &checked.said {
        println!("{said}");
    }
    let violations = stage.tally.violations();
    for (name, details) in &violations {
        println!("{:>7} violations: {name}", details.len());
        for detail in details.iter().take(SPELLED_OUT) {
            println!("         {}", detail.trim());
        }
    }
    let found: usize = violations.values().map(BTreeSet::len).sum();
    println!("{found} violations");
    if found == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
