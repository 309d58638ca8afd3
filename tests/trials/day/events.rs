//! What happens to the servers and their database under load.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use super::{Day, Options, report};
use crate::{account::command, audit, failover::UNNOTICED, server, stage::Stage};

/// From the moment that the balancer sends a server nothing more to its SIGTERM.
const DRAIN: Duration = Duration::from_millis(300);
/// From the switch until all requests must succeed again.
const RECOVERY: Duration = Duration::from_secs(5);
/// How long a key stays in use together with its replacement.
const OVERLAP: Duration = Duration::from_secs(20);
/// What prices are multiplied by when they change.
const MARKUP: &str = "1.25";

/// A limit that is never reached: what a key with one spends is counted.
const LIMIT: &str = "900000";

impl Day {
    /// The servers of the previous release are replaced one by one, go back, and are replaced again.
    pub async fn upgrade(&self, previous: &Path) {
        let stage = &self.stage;
        let current = server::current();
        for (name, program) in [
            ("this", &*current),
            ("the previous", previous),
            ("this", &*current),
        ] {
            for n in 0..stage.servers.len() {
                tokio::time::sleep(Duration::from_secs(stage.args.seconds)).await;
                stage.servers[n].set_program(program).await;
                restart(stage, n).await;
                report::event(self, &format!("server {n} is of {name} release")).await;
            }
        }
        tokio::time::sleep(Duration::from_secs(stage.args.seconds)).await;
    }

    /// A restart at each tick; and at a quarter, half and three quarters of the day a key that is
    /// replaced, a failover, and new prices.
    pub async fn pass(&mut self, options: &Options) {
        let ticks = (options.minutes * 60 / options.every).max(8);
        let mut tick = tokio::time::interval(Duration::from_secs(options.every));
        tick.tick().await;
        for n in 1..=ticks {
            tick.tick().await;
            let server = usize::try_from(n).unwrap() % self.stage.servers.len();
            let what = if n == ticks / 4 {
                self.change_keys().await;
                // So that the audit in the end has a point to go on from.
                audit::verify(&self.stage, &["ledger", "verify", "--since-last"]).await;
                "all keys were replaced".to_owned()
            } else if n == ticks / 2 {
                self.fail_over().await;
                "the primary was killed, the standby promoted".to_owned()
            } else if n == ticks * 3 / 4 {
                for (n, server) in self.stage.servers.iter().enumerate() {
                    server.set("GENSVC__PRICING__MARKUP", MARKUP).await;
                    restart(&self.stage, n).await;
                }
                format!("all prices were multiplied by {MARKUP}")
            } else {
                restart(&self.stage, server).await;
                format!("server {server} was restarted")
            };
            report::event(self, &what).await;
        }
        tokio::time::sleep(Duration::from_secs(self.stage.args.seconds)).await;
        self.stage.postgres.revive_lost().await;
    }

    /// Clients go over to new keys before the old ones are revoked.
    async fn change_keys(&mut self) {
        let old = std::mem::replace(&mut self.keys, new_keys(&self.stage).await);
        tokio::time::sleep(OVERLAP).await;
        for (account, key) in self.stage.accounts.iter().zip(old) {
            let id = key.to_string();
            let revoke = ["key", "revoke", "--email", &account.email, "--id", &id];
            self.stage.command(&revoke).await.unwrap();
        }
    }

    async fn fail_over(&mut self) {
        let stage = &self.stage;
        let lost = Instant::now();
        stage.postgres.kill();
        tokio::time::sleep(UNNOTICED).await;
        stage.postgres.promote().await;
        stage.switch();
        tokio::time::sleep(RECOVERY).await;
        self.fault = Some([lost, Instant::now()]);
    }
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

/// Gives the clients of each account a key with a spend limit; the keys' ids.
pub async fn new_keys(stage: &Stage) -> Vec<i64> {
    let mut ids = Vec::new();
    for (n, account) in stage.accounts.iter().enumerate() {
        let create = ["key", "create", "--email", &account.email, "--name", "load"];
        let limits = ["--rate-limit", "1000000", "--spend-limit", LIMIT];
        let create = [&create[..], &limits].concat();
        let made = command(stage.postgres.current(), &create).await;
        stage.set_token(n, made["key"].as_str().unwrap());
        ids.push(made["id"].as_i64().unwrap());
    }
    ids
}
