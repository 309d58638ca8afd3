//! The operator, who suspends busy accounts and resumes them. What is suspended at the end of a
//! round stays so until all work has ended.

use std::{collections::HashSet, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use gensvc::domain::clock::machine_time;
use reqwest::Method;

use super::super::scene::Scene;
use crate::{
    call::Call,
    http::{Http, json_body},
    seen::Suspension,
};

/// Suspends one account after the other until the scene is over.
pub async fn run(scene: Arc<Scene>, http: Http, round: u32) {
    let mut rng = scene.args.rng(&format!("suspend {round}"));
    // An unconfirmed command may still be on its way, behind a stalled connection, and interfere
    // with a later one: that account is skipped for the rest of the round.
    let mut unclear = HashSet::new();
    let mut n = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(rng.u64(300..2_000))).await;
        // By the command line or through either server.
        let (account, by) = (rng.usize(0..scene.accounts.len()), rng.usize(0..3));
        if scene.is_over() {
            return;
        }
        if unclear.contains(&account) {
            continue;
        }
        if !set(&scene, &http, account, "suspend", by).await {
            unclear.insert(account);
            continue;
        }
        n += 1;
        scene.tally.fault("operator: suspends an account at work");
        let from = machine_time();
        for server in 0..2 {
            let call = Call::draw(&mut rng, &format!("{round}-s{n}-{server}"));
            let key = &scene.accounts[account].key;
            let request = http.build(server, Method::POST, call.route, key);
            let answer = http.send(json_body(request, call.body.to_string())).await;
            if let Some(answer) = answer.filter(|answer| answer.status < 300) {
                let detail = format!("account {account}: {}", answer.body);
                let name = "a suspended account was let in";
                scene.tally.violation(name, detail);
            }
        }
        tokio::time::sleep(Duration::from_millis(rng.u64(100..900))).await;
        note(&scene, account, from);
        if scene.is_over() {
            return;
        }
        if !set(&scene, &http, account, "resume", by).await {
            unclear.insert(account);
        }
    }
}

/// It was suspended from then until now.
fn note(scene: &Scene, account: usize, from: DateTime<Utc>) {
    let to = machine_time();
    let suspension = Suspension { account, from, to };
    scene.seen.state().suspensions.push(suspension);
}

/// Whether it was acknowledged.
async fn set(scene: &Scene, http: &Http, account: usize, what: &str, by: usize) -> bool {
    let who = &scene.accounts[account];
    if by == 2 {
        let command = ["account", what, "--email", &who.email];
        return scene.command(&command).await.is_ok();
    }
    let path = format!("/v1/admin/accounts/{}/{what}", who.id);
    let request = http.build(by, Method::POST, &path, &scene.admin);
    let answer = http.send(request).await;
    answer.is_some_and(|answer| answer.status == 200)
}

/// Resumes all accounts, which must work once there are no faults.
pub async fn resume_all(scene: &Scene) {
    for account in &scene.accounts {
        let command = ["account", "resume", "--email", &account.email];
        if let Err(said) = scene.command(&command).await {
            let name = "a suspended account cannot go on";
            scene.tally.violation(name, said);
        }
    }
}
