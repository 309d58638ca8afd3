//! An account's owner, who creates keys with a spend limit and edits the account's template.

use std::{sync::Arc, time::Duration};

use reqwest::Method;
use serde_json::{Value, json};

use super::super::scene::Scene;
use crate::{
    http::{Http, json_body},
    seen::Cap,
};

/// Attempts of requests without faults.
const TRIES: usize = 5;

/// The keys of a round: per account one without a spend limit, one with a total limit, and one with
/// a daily limit.
pub async fn keys(scene: &Scene, http: &Http, round: u32) -> Vec<[String; 3]> {
    let mut rng = scene.args.rng(&format!("caps {round}"));
    let mut keys = Vec::new();
    for (account, owner) in scene.accounts.iter().enumerate() {
        let mut capped = async |period: Value| {
            // A video or two, or many texts: some are used up immediately, some never.
            let limit = format!("{}.5", rng.i32(1..120));
            let body = json!({"name": format!("cap {round}"), "spend_limit": limit,
                "spend_period": period, "rate_limit_per_minute": 1_000_000});
            let made = ask(scene, http, Method::POST, "/v1/api-keys", account, &body).await;
            scene.seen.state().caps.push(Cap {
                account,
                id: made["id"].as_i64().unwrap(),
                round,
            });
            made["key"].as_str().unwrap().to_owned()
        };
        let for_ever = capped(Value::Null).await;
        let daily = capped(json!("day")).await;
        keys.push([owner.key.clone(), for_ever, daily]);
    }
    keys
}

/// Updates the accounts' templates periodically until the scene is over.
pub async fn edit(scene: Arc<Scene>, http: Http, round: u32) {
    let mut rng = scene.args.rng(&format!("templates {round}"));
    while !scene.is_over() {
        let account = rng.usize(0..scene.accounts.len());
        let owner = &scene.accounts[account];
        let path = format!("/v1/templates/{}", scene.templates[account]);
        let body = template(&format!("{:08x}", rng.u32(..))).to_string();
        let request = http.build(rng.usize(0..2), Method::PUT, &path, &owner.key);
        if http
            .send(json_body(request, body))
            .await
            .is_some_and(|a| a.status == 200)
        {
            scene.tally.deed("replaced a template in use");
        }
        tokio::time::sleep(Duration::from_millis(rng.u64(200..800))).await;
    }
}

/// A template whose text contains its version.
pub fn template(edition: &str) -> Value {
    json!({"name": "chaos", "prompt": format!("Edition {edition}, {{{{ tone }}}}: {{{{ prompt }}}}"),
        "system_prompt": "You are {{ tone }}."})
}

async fn ask(
    scene: &Scene,
    http: &Http,
    method: Method,
    path: &str,
    account: usize,
    body: &Value,
) -> Value {
    let mut said = Value::Null;
    for attempt in 0..TRIES {
        let key = &scene.accounts[account].key;
        let request = http.build(attempt % 2, method.clone(), path, key);
        match http.send(json_body(request, body.to_string())).await {
            Some(answer) if answer.status == 201 => return answer.body,
            Some(answer) => said = answer.body,
            None => {}
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("{path}: {said}");
}
