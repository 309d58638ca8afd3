//! Keys that are revoked while they are used.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use reqwest::{Body, Method};
use serde_json::json;

use super::super::scene::Scene;
use crate::{
    call::Call,
    http::{Http, json_body},
};

/// Creates and revokes keys until the scene is over.
pub async fn run(scene: Arc<Scene>, http: Http, round: u32) {
    let mut rng = scene.args.rng(&format!("keys {round}"));
    let mut n = 0;
    while !scene.is_over() {
        n += 1;
        // Accounts with plenty of credits: a refusal for lack of credits would prove nothing.
        let account = rng.usize(0..2);
        churn(&scene, &http, account, &format!("{round}-k{n}"), &mut rng).await;
        tokio::time::sleep(Duration::from_millis(rng.u64(50..300))).await;
    }
}

async fn churn(
    scene: &Arc<Scene>,
    http: &Http,
    account: usize,
    name: &str,
    rng: &mut fastrand::Rng,
) {
    let main = &scene.accounts[account].key;
    let server = rng.usize(0..2);
    let body = json!({"name": name, "rate_limit_per_minute": 10_000}).to_string();
    let request = http.build(server, Method::POST, "/v1/api-keys", main);
    let Some(made) = http
        .send(json_body(request, body))
        .await
        .filter(|a| a.status == 201)
    else {
        return;
    };
    let key = made.body["key"].as_str().unwrap().to_owned();
    let path = format!("/v1/api-keys/{}", made.body["id"]);

    // Its headers are sent, so its key is checked; the rest of its body follows after the
    // revocation. Only the statement that places the hold can still refuse it.
    let slow = Call::draw(rng, &format!("{name}-slow"));
    let text = slow.body.to_string();
    let (first, rest) = text.split_at(text.len() / 2);
    let (rest, first) = (Bytes::from(rest.to_owned()), Bytes::from(first.to_owned()));
    let (send, receive) = tokio::sync::oneshot::channel::<()>();
    let pieces = futures_util::stream::unfold((0, Some(receive)), move |(n, mut gate)| {
        let (first, rest) = (first.clone(), rest.clone());
        async move {
            match n {
                0 => Some((Ok(first), (1, gate))),
                1 => match gate.take()?.await {
                    Ok(()) => Some((Ok(rest), (2, None))),
                    Err(_) => Some((Err(std::io::Error::other("given up")), (2, None))),
                },
                _ => None,
            }
        }
    });
    let request = http.build(rng.usize(0..2), Method::POST, slow.route, &key);
    let request = json_body(request, Body::wrap_stream(pieces));
    let under_way = tokio::spawn({
        let http = http.clone();
        async move { http.send(request).await }
    });
    // A complete one is in progress too: it may finish.
    let quick = Call::draw(rng, &format!("{name}-quick"));
    let request = http.build(1 - server, Method::POST, quick.route, &key);
    let request = json_body(request, quick.body.to_string());
    let quick = tokio::spawn({
        let http = http.clone();
        async move { http.send(request).await }
    });
    tokio::time::sleep(Duration::from_millis(rng.u64(60..400))).await;

    let mut revoked = false;
    for attempt in 0..6 {
        let request = http.build(attempt % 2, Method::DELETE, &path, main);
        if http.send(request).await.is_some_and(|a| a.status == 200) {
            revoked = true;
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    if revoked {
        scene.tally.fault("client: revokes a key that is at work");
        scene.seen.state().forbidden.insert(slow.mark);
        let _ = send.send(());
        for server in 0..2 {
            let late = Call::draw(rng, &format!("{name}-late{server}"));
            scene.seen.state().forbidden.insert(late.mark);
            let request = http.build(server, Method::POST, late.route, &key);
            let answer = http.send(json_body(request, late.body.to_string())).await;
            if let Some(answer) = answer.filter(|answer| answer.status < 300) {
                let detail = format!("{name}: {}", answer.body);
                scene.tally.violation("a revoked key was let in", detail);
            }
        }
    } else {
        drop(send);
    }
    let _ = tokio::join!(under_way, quick);
}
