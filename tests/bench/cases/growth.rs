//! How the cost of a text grows with what there is more of.

use crate::{
    cases::Run,
    compare::{Comparison, Extent},
    load::{Load, Pace},
    stage::{Scene, Setup},
    table,
    work::{Kind, Work},
};

/// Fewer than elsewhere, since there are many rows.
const SLICES: u32 = 3;

pub async fn accounts(run: &Run<'_>) {
    table::rows("grow-accounts: texts", "accounts");
    for accounts in [10, 1000, 100_000] {
        let setup = Setup {
            accounts,
            ..Setup::default()
        };
        let scene = run.scene(setup).await;
        row(
            run,
            &scene,
            &accounts.to_string(),
            accounts,
            run.args.connections,
        )
        .await;
        run.end(scene).await;
    }
}

pub async fn connections(run: &Run<'_>) {
    table::rows("grow-connections: texts of 1,000 accounts", "callers");
    let scene = run.scene(Setup::default()).await;
    for callers in [1, 8, 64, 512] {
        row(run, &scene, &callers.to_string(), 1000, callers).await;
    }
    println!();
    run.end(scene).await;
}

pub async fn servers(run: &Run<'_>) {
    table::rows(
        "grow-servers: texts through servers on one database",
        "servers",
    );
    for accounts in [1000, 1] {
        for servers in [1, 2, 3] {
            let setup = Setup {
                accounts,
                servers,
                ..Setup::default()
            };
            let scene = run.scene(setup).await;
            let name = format!("{servers}, {accounts} accounts");
            row(run, &scene, &name, accounts, run.args.connections).await;
            run.end(scene).await;
        }
    }
}

pub async fn generations(run: &Run<'_>) {
    table::rows(
        "grow-generations: texts of 1,000 accounts",
        "existing generations",
    );
    for generations in [0, 1_000_000, 5_000_000] {
        let setup = Setup {
            generations,
            ..Setup::default()
        };
        let scene = run.scene(setup).await;
        row(
            run,
            &scene,
            &generations.to_string(),
            1000,
            run.args.connections,
        )
        .await;
        run.end(scene).await;
    }
}

async fn row(run: &Run<'_>, scene: &Scene<'_>, name: &str, accounts: usize, callers: u64) {
    let pace = Pace::Callers(callers);
    let ours = Load::new(scene.work(Kind::Text, accounts), pace);
    let theirs = Load::new(Work::proxy(run.stage.proxy.1, Kind::Text), pace);
    let extent = Extent {
        slices: SLICES,
        ..run.extent()
    };
    let (both, _) = Comparison::run(scene, &[ours], &theirs, extent).await;
    table::row(name, &both);
    run.note(&both);
}
