//! Attacks of one account on one server, each on a fresh process while another account works: how
//! much memory the process takes, how long the other account waits, and whether it is refused.
//!
//! One file per attack: a function that sends the requests and returns the answers it got. To add
//! one, add its file and a line in [`attacks`]. Elsewhere: the server and the measurements
//! ([`scene`]), the provider ([`upstream`]) and answers by status ([`answers`]).

mod answers;
mod bodies;
mod events;
mod references;
mod replays;
mod scene;
mod streams;
mod upstream;
mod values;

use std::process::ExitCode;

use futures_util::future::BoxFuture;

use self::{answers::Answers, scene::Scene};
use crate::{args::Args, report};

/// `server.memory_mib` of the server.
const MEMORY_MIB: u64 = 512;
/// Memory of the process beyond that, at most.
const BEYOND_MIB: u64 = 200;
/// Longest wait of the other account, of 99 in 100 requests.
const MAX_P99_MS: u128 = 2_000;

type Attack = for<'a> fn(&'a Scene) -> BoxFuture<'a, Answers>;

fn attacks() -> Vec<(&'static str, Attack)> {
    vec![
        ("27 bodies of 29 MiB in flight", |scene| {
            Box::pin(bodies::run(scene))
        }),
        ("150 replays of images, unread", |scene| {
            Box::pin(replays::run(scene))
        }),
        ("16 counts of 64 stored answers", |scene| {
            Box::pin(references::run(scene))
        }),
        ("600 bodies of small values", |scene| {
            Box::pin(values::run(scene))
        }),
        ("an event of 60 MiB from a provider", |scene| {
            Box::pin(events::run(scene))
        }),
        ("300 streams of 4 MiB, unread", |scene| {
            Box::pin(streams::run(scene))
        }),
    ]
}

pub async fn run(args: &Args) -> ExitCode {
    let build = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    println!("Attacks on a {build} build with memory_mib = {MEMORY_MIB}:");
    println!(
        "{:<36} {:>8} {:>8} {:>8} answers",
        "", "peak MiB", "p99 ms", "refused"
    );
    let mut is_clean = true;
    let scene = Scene::set(args).await;
    for (name, attack) in attacks() {
        let (measured, answers) = scene.measure(attack).await;
        println!(
            "{name:<36} {:>8} {:>8} {:>8} {answers}",
            measured.peak_mib,
            measured.p99.as_millis(),
            measured.refused
        );
        is_clean &= measured.peak_mib <= MEMORY_MIB + BEYOND_MIB
            && measured.p99.as_millis() <= MAX_P99_MS
            && measured.refused == 0;
    }
    report::verdict(is_clean, "attacks")
}
