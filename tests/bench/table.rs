//! What is printed, as Markdown.

use std::collections::BTreeMap;

use crate::{
    compare::{Comparison, cpu},
    slice::Figures,
};

/// One row for each figure.
pub fn whole(title: &str, both: &Comparison) {
    println!("### {title}\n");
    println!("| | gensvc | proxy | |\n|---|---:|---:|---|");
    let ratio = |name: &str, figure: fn(&Figures) -> f64| {
        let [ours, theirs, ratio] = cells(both, figure);
        println!("| {name} | {ours} | {theirs} | × {ratio} |");
    };
    let added = |name: &str, figure: fn(&Figures) -> f64| {
        let [ours, theirs, _] = cells(both, figure);
        let added = both.added(figure);
        let sign = if added < 0.0 { '-' } else { '+' };
        let added = number(added.abs());
        println!("| {name} | {ours} | {theirs} | {sign} {added} |");
    };
    let ours = |name: &str, figure: fn(&Figures) -> f64| {
        println!("| {name} | {} | | |", number(both.gensvc.median(figure)));
    };
    ratio("requests per second", |f| f.rate);
    added("p50, ms", |f| f.p50);
    added("p99, ms", |f| f.p99);
    if both.gensvc.median(|f| f.first_p50).is_finite() {
        added("p50 to the first delta, ms", |f| f.first_p50);
        added("p99 to the first delta, ms", |f| f.first_p99);
    }
    ratio("CPU of server and Postgres, µs a request", cpu);
    ratio("- server", |f| f.server_cpu);
    ours("- Postgres", |f| f.postgres_cpu);
    added("(CPU of load and upstream)", |f| f.rest_cpu);
    ratio("memory of the server, MiB", |f| f.memory);
    ours("writing transactions a request", |f| f.transactions);
    ours("WAL bytes a request", |f| f.wal_bytes);
    ratio("waits of the server's threads a request", |f| {
        f.server_waits
    });
    ours("waits of Postgres a request", |f| f.postgres_waits);
    let calls = |calls: Option<f64>| calls.map_or_else(|| "not counted".to_owned(), number);
    let (ours, theirs) = (both.gensvc.calls, both.proxy.calls);
    let ratio = ours
        .zip(theirs)
        .map(|(ours, theirs)| format!("× {}", number(ours / theirs)));
    let ratio = ratio.unwrap_or_default();
    let (ours, theirs) = (calls(ours), calls(theirs));
    println!("| system calls of the server a request | {ours} | {theirs} | {ratio} |");
    let postgres = calls(both.gensvc.postgres_calls);
    println!("| system calls of Postgres a request | {postgres} | | |\n");
    failures("gensvc", &both.gensvc.failures);
    failures("the proxy", &both.proxy.failures);
}

fn cells(both: &Comparison, figure: fn(&Figures) -> f64) -> [String; 3] {
    let (ours, theirs) = (both.gensvc.median(figure), both.proxy.median(figure));
    [ours, theirs, ours / theirs].map(number)
}

/// The head of a table with a row for each of several comparisons.
pub fn rows(title: &str, what: &str) {
    println!("### {title}\n");
    println!(
        "| {what} | requests/s | × the proxy's | p50 ms | p99 ms | server µs | Postgres µs \
         | × the proxy's | transactions | WAL bytes | MiB |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
}

/// A row under [`rows`].
pub fn row(name: &str, both: &Comparison) {
    let ours = |figure: fn(&Figures) -> f64| number(both.gensvc.median(figure));
    let cells = [
        ours(|f| f.rate),
        number(both.ratio(|f| f.rate)),
        ours(|f| f.p50),
        ours(|f| f.p99),
        ours(|f| f.server_cpu),
        ours(|f| f.postgres_cpu),
        number(both.ratio(cpu)),
        ours(|f| f.transactions),
        ours(|f| f.wal_bytes),
        ours(|f| f.memory),
    ];
    println!("| {name} | {} |", cells.join(" | "));
    failures("gensvc", &both.gensvc.failures);
    failures("the proxy", &both.proxy.failures);
}

/// The head of a table of turns.
pub fn turns(title: &str) {
    println!("### {title}\n");
    println!(
        "| turns | requests/s | × the proxy's | added p50 ms | added p99 ms | server ms \
         | × the proxy's | Postgres ms | transactions | MiB |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
}

/// A row under [`turns`].
pub fn turn(name: &str, both: &Comparison) {
    let ours = |figure: fn(&Figures) -> f64| number(both.gensvc.median(figure));
    let cells = [
        ours(|f| f.rate),
        number(both.ratio(|f| f.rate)),
        number(both.added(|f| f.p50)),
        number(both.added(|f| f.p99)),
        ours(|f| f.server_cpu / 1000.0),
        number(both.ratio(|f| f.server_cpu)),
        ours(|f| f.postgres_cpu / 1000.0),
        ours(|f| f.transactions),
        ours(|f| f.memory),
    ];
    println!("| {name} | {} |", cells.join(" | "));
    failures("gensvc", &both.gensvc.failures);
    failures("the proxy", &both.proxy.failures);
}

/// Prints failures to stderr, so that stdout contains only tables.
pub fn failures(whose: &str, failures: &BTreeMap<String, u64>) {
    for (what, times) in failures {
        eprintln!("FAILED ANSWERS of {whose}: {times} times {what}");
    }
}

/// Three digits that count.
pub fn number(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "none".to_owned(),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}
