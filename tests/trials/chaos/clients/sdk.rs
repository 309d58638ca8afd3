//! Clients that behave like the SDKs: they lose patience, retry with a count, and cancel streams.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, time::timeout};

use super::super::scene::Scene;
use crate::http::{Http, json_body};

/// Attempts at one request.
const ATTEMPTS: u32 = 4;
/// The longest wait for the last attempt.
const PATIENCE: Duration = Duration::from_secs(15);
/// The longest time for which an account's row is locked: first attempts hang before their hold.
const LOCK_MILLIS: u64 = 1_500;
/// Locks that are held or waited for: each has a connection, of which the servers need some.
static LOCKS: Semaphore = Semaphore::const_new(10);

/// The routes of SDKs, and a model for each.
const ROUTES: [(&str, &str); 4] = [
    (CHAT, "openai/gpt-6-luna"),
    (CHAT, "anthropic/claude-haiku-5-5"),
    (MESSAGES, "anthropic/claude-haiku-5-5"),
    (RESPONSES, "openai/gpt-6-luna"),
];
const CHAT: &str = "/openai/v1/chat/completions";
const MESSAGES: &str = "/anthropic/v1/messages";
const RESPONSES: &str = "/openai/v1/responses";

/// Sends requests until the scene is over.
pub async fn run(scene: Arc<Scene>, http: Http, round: u32, n: u32) {
    let mut rng = scene.args.rng(&format!("sdk {round} {n}"));
    let mut made = 0;
    while !scene.is_over() {
        made += 1;
        // Those with plenty of credits.
        let account = rng.usize(0..2);
        let token = scene.accounts[account].key.clone();
        let mark = format!("mk-sdk-{round}-{n}-{made}-end");
        let (route, model) = ROUTES[rng.usize(0..ROUTES.len())];
        let mut body = body(&mut rng, route, model, &format!("Say {mark}"));
        if rng.u32(0..3) == 0 {
            body["stream"] = json!(true);
            cancel(&scene, &http, &mut rng, route, &token, &body).await;
        } else {
            body["stream"] = json!(rng.u32(0..4) == 0);
            retry(&scene, &http, &mut rng, account, (route, &token), &body).await;
        }
        tokio::time::sleep(Duration::from_millis(rng.u64(5..80))).await;
    }
}

/// A request in the dialect of the route, some with a document, some with a web search.
fn body(rng: &mut fastrand::Rng, route: &str, model: &str, text: &str) -> Value {
    let kind = if route == RESPONSES {
        "input_text"
    } else {
        "text"
    };
    let mut content = vec![json!({"type": kind, "text": text})];
    if rng.u32(0..3) == 0 {
        let pdf = BASE64_STANDARD.encode("%PDF-1.7\n");
        let url = format!("data:application/pdf;base64,{pdf}");
        content.push(match route {
            CHAT => json!({"type": "file", "file": {"filename": "a.pdf", "file_data": url}}),
            RESPONSES => json!({"type": "input_file", "filename": "a.pdf", "file_data": url}),
            _ => json!({"type": "document", "source":
                {"type": "base64", "media_type": "application/pdf", "data": pdf}}),
        });
    }
    let message = json!([{"role": "user", "content": content}]);
    let most = rng.u32(50..500);
    let mut body = if route == RESPONSES {
        json!({"model": model, "max_output_tokens": most, "input": message})
    } else {
        json!({"model": model, "max_tokens": most, "messages": message})
    };
    if route == MESSAGES && rng.bool() {
        body["tools"] = json!([{"type": "web_search_20250305", "name": "web_search"}]);
    }
    body
}

/// Sends a request until it is answered; early attempts are given up soon and repeated at once.
async fn retry(
    scene: &Arc<Scene>,
    http: &Http,
    rng: &mut fastrand::Rng,
    account: usize,
    (route, token): (&str, &str),
    body: &Value,
) {
    if rng.u32(0..3) == 0
        && let Ok(place) = LOCKS.try_acquire()
    {
        scene.tally.fault("an account's row is locked");
        let (scene, length) = (Arc::clone(scene), rng.u64(50..LOCK_MILLIS));
        tokio::spawn(async move {
            lock(&scene, account, Duration::from_millis(length)).await;
            drop(place);
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for count in 0..ATTEMPTS {
        let patience = match count {
            0 => Duration::from_millis(rng.u64(5..800)),
            1 if rng.bool() => Duration::from_millis(rng.u64(5..800)),
            _ => PATIENCE,
        };
        let request = http.build(rng.usize(0..2), Method::POST, route, token);
        let request = request.header("x-stainless-retry-count", count.to_string());
        scene.tally.request();
        let asking = async {
            let response = json_body(request, body.to_string()).send().await.ok()?;
            let (status, may_retry) = (response.status(), header(&response, "x-should-retry"));
            scene.tally.answer(status.as_u16());
            response.text().await.ok()?;
            if status.is_success() {
                note(scene, body);
            }
            Some(status.is_success() || may_retry == "false")
        };
        match timeout(patience, asking).await {
            Ok(Some(true)) => return,
            Ok(_) => tokio::time::sleep(Duration::from_millis(rng.u64(0..200))).await,
            Err(_elapsed) => scene.tally.deed("gave up an attempt of an SDK"),
        }
    }
}

/// Counts what an answered request had.
fn note(scene: &Scene, body: &Value) {
    if body["tools"].is_array() {
        scene.tally.deed("searched the web");
    }
    let content = body.pointer("/messages/0/content");
    let content = content.or_else(|| body.pointer("/input/0/content"));
    if content.is_some_and(|content| content[1].is_object()) {
        scene.tally.deed("sent a document");
    }
}

/// Locks an account's row, as a slow transaction does.
async fn lock(scene: &Scene, account: usize, length: Duration) {
    let mut database = scene.postgres.connect().await;
    let locking = format!(
        "begin; select from accounts where id = {} for update",
        scene.accounts[account].id
    );
    // Postgres may be killed meanwhile.
    if sqlx::raw_sql(sqlx::AssertSqlSafe(locking))
        .execute(&mut database)
        .await
        .is_ok()
    {
        tokio::time::sleep(length).await;
        let _ended = sqlx::raw_sql("rollback").execute(&mut database).await;
    }
}

/// Reads a stream until it has text, or for a while, and cancels its generation.
async fn cancel(
    scene: &Arc<Scene>,
    http: &Http,
    rng: &mut fastrand::Rng,
    route: &str,
    token: &str,
    body: &Value,
) {
    let server = rng.usize(0..2);
    let request = http.build(server, Method::POST, route, token);
    let request = request.header("x-stainless-retry-count", "0");
    scene.tally.request();
    let asking = json_body(request, body.to_string()).send();
    let Ok(Ok(mut response)) = timeout(PATIENCE, asking).await else {
        return;
    };
    scene.tally.answer(response.status().as_u16());
    let uuid = header(&response, "x-gensvc-generation");
    if !response.status().is_success() || uuid.is_empty() {
        return;
    }
    let mut read = String::new();
    let reading = async {
        while let Ok(Some(piece)) = response.chunk().await {
            read.push_str(&String::from_utf8_lossy(&piece));
            if read.contains("You said") {
                return;
            }
        }
    };
    let _elapsed = timeout(PATIENCE, reading).await;
    if read.contains("You said") {
        scene.seen.state().delivered.push(uuid.clone());
    }
    let path = format!("/v1/generate/{uuid}/cancel");
    let by = if rng.bool() { server } else { 1 - server };
    let request = http.build(by, Method::POST, &path, token);
    if http.send(request).await.is_some_and(|a| a.status == 200) {
        scene.tally.deed("cancelled a stream of an SDK");
    }
    // The rest of the stream.
    let _ended = timeout(PATIENCE, response.bytes()).await;
}

fn header(response: &Response, name: &str) -> String {
    let value = response.headers().get(name);
    let value = value.and_then(|value| value.to_str().ok());
    value.unwrap_or_default().to_owned()
}
