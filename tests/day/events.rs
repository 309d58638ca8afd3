//! What happens to the servers and their database under load.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use crate::{Options, process, report, stage::Stage};

/// From the moment that the balancer sends a server nothing more to its SIGTERM.
const DRAIN: Duration = Duration::from_millis(300);
/// From the loss of the primary to the promotion: the time to detect it.
const UNNOTICED: Duration = Duration::from_secs(3);
/// From the switch until all requests must succeed again.
const RECOVERY: Duration = Duration::from_secs(5);
/// How long a key is used beside the one that replaces it.
const OVERLAP: Duration = Duration::from_secs(20);
/// What prices are multiplied by when they change.
const MARKUP: &str = "1.25";

/// The servers of the previous release are replaced one by one, go back, and are replaced again.
pub async fn upgrade(stage: &Stage, previous: &Path) {
    let current = process::current();
    for (name, program) in [
        ("this", &*current),
        ("the previous", previous),
        ("this", &*current),
    ] {
        for n in 0..stage.servers.len() {
            tokio::time::sleep(Duration::from_secs(stage.args.seconds)).await;
            stage.servers[n].set_program(program).await;
            restart(stage, n).await;
            let what = format!("server {n} is of {name} release");
            report::event(stage, &what).await;
        }
    }
    tokio::time::sleep(Duration::from_secs(stage.args.seconds)).await;
}

/// A restart at each tick; and at a quarter, half and three quarters of the day a key that is
/// replaced, a failover, and new prices.
pub async fn day(stage: &Stage, options: &Options) {
    let ticks = (options.minutes * 60 / options.every).max(8);
    let mut tick = tokio::time::interval(Duration::from_secs(options.every));
    tick.tick().await;
    for n in 1..=ticks {
        tick.tick().await;
        let server = usize::try_from(n).unwrap() % stage.servers.len();
        let what = if n == ticks / 4 {
            change_keys(stage).await;
            // So that the audit in the end has a point to go on from.
            let verify = ["ledger", "verify", "--since-last"];
            if let Err(said) = stage.command(&verify).await {
                stage.tally.violation("gensvc ledger verify", said);
            }
            "all keys were replaced".to_owned()
        } else if n == ticks / 2 {
            fail_over(stage).await;
            "the primary was killed, the standby promoted".to_owned()
        } else if n == ticks * 3 / 4 {
            for (n, server) in stage.servers.iter().enumerate() {
                server.set("GENSVC__PRICING__MARKUP", MARKUP).await;
                restart(stage, n).await;
            }
            format!("all prices were multiplied by {MARKUP}")
        } else {
            restart(stage, server).await;
            format!("server {server} was restarted")
        };
        report::event(stage, &what).await;
    }
    tokio::time::sleep(Duration::from_secs(stage.args.seconds)).await;
    stage.postgres.revive_lost().await;
}

/// As behind a balancer that asks for its health.
async fn restart(stage: &Stage, n: usize) {
    stage.set_serving(n, false);
    tokio::time::sleep(DRAIN).await;
    if !stage.servers[n].restart().await {
        let detail = format!("server {n}");
        stage.tally.violation("a server does not stop", detail);
    }
    stage.set_serving(n, true);
}

/// Clients go over to new keys before the old ones are revoked.
async fn change_keys(stage: &Stage) {
    let mut old = Vec::new();
    for account in 0..stage.accounts.len() {
        old.push(stage.change_key(account).await);
    }
    tokio::time::sleep(OVERLAP).await;
    for (account, key) in stage.accounts.iter().zip(old) {
        let id = key.id.to_string();
        let revoke = ["key", "revoke", "--email", &account.email, "--id", &id];
        stage.command(&revoke).await.unwrap();
    }
}

async fn fail_over(stage: &Stage) {
    let lost = Instant::now();
    stage.postgres.kill();
    tokio::time::sleep(UNNOTICED).await;
    stage.postgres.promote().await;
    stage.switch();
    tokio::time::sleep(RECOVERY).await;
    stage.samples.fault(lost);
}
