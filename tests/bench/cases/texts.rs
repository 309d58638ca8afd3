//! Synchronous generations: at saturation, and at a low rate that leaves the machine idle.

use crate::{
    cases::Run,
    compare::Comparison,
    load::{Load, Pace},
    stage::Setup,
    table,
    work::{Kind, Work},
};

/// Requests a second where the machine is to be idle.
pub const LOW: u64 = 100;

pub async fn accounts(run: &Run<'_>) {
    plain(run, "accounts: texts of 1,000 accounts", Kind::Text, 1000).await;
}

pub async fn hot(run: &Run<'_>) {
    plain(run, "hot: texts of one account", Kind::Text, 1).await;
}

pub async fn stream(run: &Run<'_>) {
    plain(
        run,
        "stream: streamed texts of 1,000 accounts",
        Kind::Stream,
        1000,
    )
    .await;
}

pub async fn images(run: &Run<'_>) {
    let title = "images: images of 1,000 accounts";
    let paces = [
        Pace::Callers(run.args.connections.min(8)),
        Pace::PerSecond(5),
    ];
    both_paces(run, title, Kind::Image, 1000, paces).await;
}

async fn plain(run: &Run<'_>, title: &str, kind: Kind, accounts: usize) {
    let paces = [Pace::Callers(run.args.connections), Pace::PerSecond(LOW)];
    both_paces(run, title, kind, accounts, paces).await;
}

async fn both_paces(run: &Run<'_>, title: &str, kind: Kind, accounts: usize, paces: [Pace; 2]) {
    let setup = Setup {
        accounts,
        ..Setup::default()
    };
    let scene = run.scene(setup).await;
    let ours = Load::new(scene.work(kind, accounts), paces[0]);
    let theirs = Load::new(Work::proxy(run.stage.proxy.1, kind), paces[0]);
    for pace in paces {
        let (both, _) =
            Comparison::run(&scene, &[ours.at(pace)], &theirs.at(pace), run.extent()).await;
        table::whole(&format!("{title}, {pace}"), &both);
        run.note(&both);
    }
    run.end(scene).await;
}
