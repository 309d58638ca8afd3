//! Texts together with other load.

use std::time::Duration;

use crate::{
    cases::{Run, texts::LOW},
    compare::Comparison,
    load::{Load, Pace},
    outcome::Outcome,
    stage::{Scene, Setup},
    table::{self, number},
    wire::Connection,
    work::{self, Kind, Work},
};

/// Accounts whose generations are read.
const READERS: usize = 100;
/// Videos in flight, ten of an account, each of which takes as long as the sandbox lets it.
const VIDEOS: u64 = 1000;
const VIDEO_SECONDS: u64 = 600;
const OWNERS: usize = 100;

/// Three of four callers ask for texts, the others look things up.
pub async fn reads(run: &Run<'_>) {
    let scene = run.scene(Setup::default()).await;
    let readers = (run.args.connections / 8).max(1);
    let writers = run.args.connections.saturating_sub(2 * readers).max(1);
    let (lookups, histories) = made(&scene).await;
    let addresses = scene.addresses();
    let ours = [
        Load::new(scene.work(Kind::Text, 1000), Pace::Callers(writers)),
        Load::new(Work::new(&addresses, lookups), Pace::Callers(readers)),
        Load::new(Work::new(&addresses, histories), Pace::Callers(readers)),
    ];
    let proxy = Work::proxy(run.stage.proxy.1, Kind::Text);
    let theirs = Load::new(proxy, Pace::Callers(writers));
    let (both, outcomes) = Comparison::run(&scene, &ours, &theirs, run.extent()).await;
    let title = "reads: texts of 1,000 accounts, with lookups and history";
    table::whole(
        &format!("{title}, {writers} + {readers} + {readers} callers"),
        &both,
    );
    println!("Costs are for each answer of all three.\n");
    println!("| | answers | p50 ms | p99 ms |\n|---|---:|---:|---:|");
    for (name, outcome) in ["texts", "lookups", "history, page 1"]
        .iter()
        .zip(&outcomes)
    {
        line(name, outcome);
    }
    println!();
    run.note(&both);
    run.end(scene).await;
}

/// Requests for generations that exist, and for the histories of their accounts.
async fn made(scene: &Scene<'_>) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let texts = scene.work(Kind::Text, READERS);
    let mut connection = Connection::open(texts.server(0)).await.unwrap();
    let (mut lookups, mut histories) = (Vec::new(), Vec::new());
    for key in scene.keys(READERS) {
        let answer = connection.ask(texts.next()).await.unwrap();
        let record: serde_json::Value = serde_json::from_slice(answer.body).unwrap();
        let uuid = record["uuid"].as_str().unwrap();
        lookups.push(work::get(&format!("/v1/generate/{uuid}"), &key));
        histories.push(work::get("/v1/generate/history", &key));
    }
    (lookups, histories)
}

fn line(name: &str, outcome: &Outcome) {
    let [p50, p99] = [0.5, 0.99].map(|part| number(outcome.latency(part)));
    println!("| {name} | {} | {p50} | {p99} |", outcome.answered());
}

/// The same texts without and with videos.
pub async fn videos(run: &Run<'_>) {
    let scene = run.scene(Setup::default()).await;
    let paces = [Pace::PerSecond(LOW), Pace::Callers(run.args.connections)];
    let ours = Load::new(scene.work(Kind::Text, 1000), paces[0]);
    let theirs = Load::new(Work::proxy(run.stage.proxy.1, Kind::Text), paces[0]);
    table::rows("videos: texts of 1,000 accounts", "other load");
    for other in ["nothing", "1,000 videos in flight"] {
        if other != "nothing" {
            queue(run, &scene).await;
        }
        for pace in paces {
            let (both, _) =
                Comparison::run(&scene, &[ours.at(pace)], &theirs.at(pace), run.extent()).await;
            table::row(&format!("{other}, {pace}"), &both);
            run.note(&both);
        }
    }
    println!();
    run.end(scene).await;
}

async fn queue(run: &Run<'_>, scene: &Scene<'_>) {
    let work = Work::videos(&scene.addresses(), &scene.keys(OWNERS), VIDEO_SECONDS);
    let pace = Pace::Times {
        times: VIDEOS,
        callers: 8,
    };
    let queued = Load::new(work, pace).run(Duration::from_mins(2)).await;
    table::failures("gensvc, for videos", &queued.failures);
    run.note_bad(queued.failed() > 0);
}
