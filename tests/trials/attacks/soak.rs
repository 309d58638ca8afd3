//! Repeats all attacks in parallel, each with its own account and address, while 100 other accounts
//! send requests.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tokio::time::sleep;

use super::{
    ATTACKS, MAX_MIB, MAX_P99_MS, Options,
    answers::Answers,
    scene::{Measured, Scene},
};

const ACCOUNTS: usize = 100;
/// Between two requests of an account that works, in milliseconds.
const PAUSES: std::ops::Range<u64> = 2_000..8_000;
/// Between the end of an attack and its next run, in milliseconds.
const RESTS: std::ops::Range<u64> = 5_000..15_000;
/// A line of the report covers a tenth of the time; the first is for filling caches and pools.
const LINES: u32 = 10;
/// The memory at the end is at most that part of the memory after the first tenth.
const MAX_GROWTH: f64 = 1.15;

/// `false`: a bound was exceeded.
pub async fn run(options: &Options, minutes: u64) -> bool {
    let scene = Arc::new(Scene::set(&options.args, ACCOUNTS).await);
    let is_over = Arc::new(AtomicBool::new(false));
    let answers: Arc<Vec<_>> = Arc::new(
        ATTACKS
            .iter()
            .map(|_| Mutex::new(Answers::default()))
            .collect(),
    );
    let chosen = (0..ATTACKS.len()).filter(|&n| ATTACKS[n].name.contains(&options.only));
    let attacking = chosen.map(|n| {
        let (scene, is_over, answers) = (scene.clone(), is_over.clone(), answers.clone());
        tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                let got = scene.attack(n).await;
                answers[n].lock().unwrap().extend(got);
                sleep(Duration::from_millis(fastrand::u64(RESTS))).await;
            }
        })
    });
    let attacking: Vec<_> = attacking.collect();
    println!(
        "{:>8} {:>8} {:>8} {:>8} {:>8}",
        "minute", "peak MiB", "requests", "p99 ms", "refused"
    );
    let began = Instant::now();
    let (mut all, mut peaks) = (Measured::default(), Vec::new());
    for n in 1..=LINES {
        let until = began + Duration::from_mins(minutes) * n / LINES;
        let part = measure(&scene, until).await;
        println!(
            "{:>8} {:>8} {:>8} {:>8.0} {:>8}",
            began.elapsed().as_secs() / 60,
            part.peak_mib,
            part.waits.len(),
            part.p99(),
            part.refused
        );
        peaks.push(part.peak_mib);
        all.add(part);
    }
    is_over.store(true, Ordering::Relaxed);
    for attack in join_all(attacking).await {
        attack.unwrap();
    }
    for (attack, answers) in ATTACKS.iter().zip(answers.iter()) {
        println!("{:<36} {}", attack.name, answers.lock().unwrap());
    }
    println!(
        "all: {} requests, p99 {:.0} ms, {} refused",
        all.waits.len(),
        all.p99(),
        all.refused
    );
    #[expect(clippy::cast_precision_loss, reason = "mebibytes")]
    let is_flat = peaks[peaks.len() - 1] as f64 <= peaks[1] as f64 * MAX_GROWTH;
    if !is_flat {
        println!("the memory grew: {peaks:?}");
    }
    is_flat && all.peak_mib <= MAX_MIB && all.p99() <= MAX_P99_MS && all.refused == 0
}

/// What all accounts that work notice until then.
async fn measure(scene: &Arc<Scene>, until: Instant) -> Measured {
    let is_over = Arc::new(AtomicBool::new(false));
    let working = (0..ACCOUNTS).map(|n| {
        let (scene, is_over) = (scene.clone(), is_over.clone());
        tokio::spawn(async move {
            let pause = || sleep(Duration::from_millis(fastrand::u64(PAUSES)));
            pause().await;
            scene.work(n, &is_over, pause).await
        })
    });
    let working: Vec<_> = working.collect();
    let mut measured = Measured::default();
    while Instant::now() < until {
        measured.peak_mib = measured.peak_mib.max(scene.memory().await);
        sleep(Duration::from_millis(50)).await;
    }
    is_over.store(true, Ordering::Relaxed);
    for part in join_all(working).await {
        measured.add(part.unwrap());
    }
    measured
}
