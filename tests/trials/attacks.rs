//! Attacks on one server while other accounts work: how much memory the process takes, how long the
//! others wait, and whether they are refused. Each attack runs alone on a fresh process; with
//! `--minutes` all run at once and repeatedly, next to 100 other accounts ([`soak`]).
//!
//! One file per attack: a function that sends the requests and returns the answers it got. To add
//! one, add its file and a line in [`ATTACKS`]. Elsewhere: the server and the measurements
//! ([`scene`]), the provider ([`upstream`]) and answers by status ([`answers`]).

mod answers;
mod background;
mod bodies;
mod connections;
mod dropped;
mod events;
mod guesses;
mod hostile;
mod references;
mod replays;
mod scene;
mod soak;
mod streams;
mod uploads;
mod upstream;
mod values;

use std::process::ExitCode;

use futures_util::future::BoxFuture;

use self::{
    answers::Answers,
    scene::{Attacker, Scene},
};
use crate::{args::Args, report};

/// `server.memory_mib` of the server.
const MEMORY_MIB: u64 = 512;
/// Maximum memory of the process: the budget, and what a process takes anyway.
const MAX_MIB: u64 = MEMORY_MIB + 200;
/// Maximum memory that files which are crafted to break a decoder add to an idle process.
const HOSTILE_MIB: u64 = 200;
/// Maximum of the 99th percentile of the other accounts' latency.
const MAX_P99_MS: f64 = 2_000.0;

/// Attacks, alone or as a soak.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    #[command(flatten)]
    args: Args,
    /// Run only attacks whose name contains it.
    #[arg(long, default_value = "")]
    only: String,
    /// Run the attacks at once for that long.
    #[arg(long)]
    minutes: Option<u64>,
}

pub struct Attack {
    name: &'static str,
    /// The provider answers calls of different models differently.
    model: &'static str,
    run: for<'a> fn(&'a Attacker<'a>) -> BoxFuture<'a, Answers>,
    /// Maximum memory above that of an idle process, where it is less than [`MAX_MIB`].
    max_above_idle: Option<u64>,
    /// Whether the answers show that the attack took place.
    has_attacked: fn(&Answers) -> bool,
}

/// A line of [`ATTACKS`].
macro_rules! attack {
    ($module:ident, $model:literal, $name:literal) => {
        attack!($module, $model, $name, None, |_| true)
    };
    ($module:ident, $model:literal, $name:literal, $max_above_idle:expr, $has_attacked:expr) => {
        Attack {
            name: $name,
            model: $model,
            run: |attacker| Box::pin($module::run(attacker)),
            max_above_idle: $max_above_idle,
            has_attacked: $has_attacked,
        }
    };
}

#[rustfmt::skip]
const ATTACKS: &[Attack] = &[
    attack!(bodies, "gpt-5.2", "27 bodies of 29 MiB in flight"),
    attack!(replays, "gpt-image-2.5-flare", "150 replays of images, unread"),
    attack!(references, "gpt-4.1", "16 counts of 64 stored answers"),
    attack!(values, "gpt-5.2", "600 bodies of small values"),
    attack!(events, "gpt-4.1-mini", "an event of 60 MiB from a provider"),
    attack!(streams, "gpt-4o", "1,000 streams of 4 MiB, unread"),
    attack!(background, "gpt-5.2", "400 texts in the background"),
    attack!(dropped, "gpt-5.2", "requests dropped after 20 ms"),
    attack!(connections, "gpt-5.2", "4,500 silent connections"),
    attack!(guesses, "gpt-5.2", "150 connections guess passwords"),
    attack!(uploads, "gpt-5.2", "8 uploads of 64 KiB/s"),
    attack!(
        hostile,
        "gpt-5.2",
        "1,000 hostile pictures",
        Some(HOSTILE_MIB),
        hostile::has_attacked
    ),
];

pub async fn run(options: &Options) -> ExitCode {
    let build = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    println!("Attacks on a {build} build with memory_mib = {MEMORY_MIB}:");
    let is_clean = match options.minutes {
        _ if !ATTACKS.iter().any(|one| one.name.contains(&options.only)) => {
            let names: Vec<_> = ATTACKS.iter().map(|attack| attack.name).collect();
            println!("--only must be a part of one of: {}", names.join("; "));
            false
        }
        Some(minutes) => soak::run(options, minutes).await,
        None => alone(options).await,
    };
    report::verdict(is_clean, "attacks")
}

/// Each attack alone. `false`: a bound was exceeded.
async fn alone(options: &Options) -> bool {
    println!(
        "{:<36} {:>8} {:>8} {:>8} {:>8} answers",
        "", "idle MiB", "peak MiB", "p99 ms", "refused"
    );
    let mut is_clean = true;
    let scene = Scene::set(&options.args, 1).await;
    for (n, attack) in ATTACKS.iter().enumerate() {
        if !attack.name.contains(&options.only) {
            continue;
        }
        let (measured, answers) = scene.measure(n).await;
        println!(
            "{:<36} {:>8} {:>8} {:>8.0} {:>8} {answers}",
            attack.name,
            measured.idle_mib,
            measured.peak_mib,
            measured.p99(),
            measured.refused
        );
        let most = attack.max_above_idle;
        let most = most.map_or(MAX_MIB, |most| measured.idle_mib + most);
        is_clean &= measured.peak_mib <= most
            && answers.of(500) == 0
            && (attack.has_attacked)(&answers)
            && measured.p99() <= MAX_P99_MS
            && measured.refused == 0;
    }
    is_clean
}
