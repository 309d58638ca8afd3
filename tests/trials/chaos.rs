//! Two servers on one Postgres under a mixed load of all modalities, while processes are killed and
//! paused, connections cut, and upstreams fail in every way; after each round the ledger is audited.
//!
//! Here: the run. Elsewhere: participants ([`scene`], [`receiver`]), actions ([`clients`],
//! [`faults`]), checks ([`audit`]), and output ([`report`]).

mod audit;
mod clients;
mod faults;
mod receiver;
mod report;
mod scene;

use std::{process::ExitCode, sync::Arc, time::Duration};

use tokio::task::JoinSet;

use self::{audit::Auditor, scene::Scene};
use crate::{args::Args, http::Http};

pub async fn run(args: &Args) -> ExitCode {
    report::opening(args);
    let scene = Scene::set(args).await;
    let (http, auditor) = (Http::new(&scene.stage), Auditor::default());
    let mut longest = Duration::ZERO;
    for round in 1..=args.rounds {
        let tally = &scene.tally;
        let before = [tally.requests(), tally.fault_count(), tally.kills()];
        let clients = load(&scene, &http, round).await;
        let checked = auditor.check(&scene, &http, round, clients).await;
        longest = longest.max(checked.recovery);
        report::round(round, &checked, tally, before);
        if args.fail_fast && tally.violation_count() > 0 {
            break;
        }
    }
    let events = auditor.finish(&scene, &http).await;
    report::closing(&scene, longest, events)
}

/// The load of a round and its faults; afterwards everything runs, and the clients get their last
/// responses.
async fn load(scene: &Arc<Scene>, http: &Http, round: u32) -> JoinSet<()> {
    scene.set_over(false);
    let clients = clients::start(scene, http, round).await;
    let length = tokio::time::sleep(Duration::from_secs(scene.args.seconds));
    tokio::join!(faults::inject(Arc::clone(scene), round), length);
    scene.set_over(true);
    scene.postgres.current().revive().await;
    for server in &scene.servers {
        if server.has_died().await {
            let detail = format!("{} in round {round}", server.url());
            scene.tally.violation("a server ended by itself", detail);
        }
        server.start().await;
    }
    clients
}
