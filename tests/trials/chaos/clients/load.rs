//! A client: a sequence of random actions.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use reqwest::Method;
use serde_json::{Value, json};

use super::super::scene::Scene;
use crate::{
    call::Call,
    http::{Answer, Http},
};

/// Attempts of a request whose outcome is unknown.
const TRIES: usize = 5;

/// The identity of a client.
pub struct Own {
    pub n: u32,
    pub account: usize,
    /// One of the account's keys.
    pub token: String,
}

/// A client's own state.
struct Client {
    scene: Arc<Scene>,
    http: Http,
    rng: fastrand::Rng,
    account: usize,
    token: String,
    /// Generations that it knows of.
    mine: Vec<String>,
    /// Completed images among them.
    images: Vec<String>,
    uploads: Vec<String>,
}

/// Runs one until the scene is over.
pub async fn run(scene: Arc<Scene>, http: Http, round: u32, own: Own) {
    let Own { n, account, token } = own;
    let rng = scene.args.rng(&format!("client {round} {n}"));
    let mut client = Client {
        scene,
        http,
        rng,
        account,
        token,
        mine: Vec::new(),
        images: Vec::new(),
        uploads: Vec::new(),
    };
    let mut made = 0;
    while !client.scene.is_over() {
        match client.rng.u32(0..100) {
            0..62 => {
                made += 1;
                let name = format!("{round}-{n}-{made}");
                let mut call = Call::draw(&mut client.rng, &name);
                if client.rng.u32(0..3) == 0 {
                    call.add_fallback();
                }
                if call.route == "/v1/generate/text" && client.rng.u32(0..3) == 0 {
                    call.body["template_id"] = json!(client.scene.templates[account]);
                    call.body["template_variables"] = json!({"tone": "calm"});
                }
                if client.rng.u32(0..3) == 0 {
                    call.add_inputs(&mut client.rng);
                    client.name_inputs(&mut call).await;
                }
                client.make(&call).await;
            }
            62..80 => client.look().await,
            80..90 => client.end(Method::POST, "/cancel").await,
            90..93 => client.end(Method::DELETE, "").await,
            93 => client.redeliver().await,
            94..97 => client.delete_upload().await,
            97 => client.page("/v1/generate/history?per_page=20").await,
            _ => client.page("/v1/credits/ledger?per_page=20").await,
        }
        let pause = client.rng.u64(5..100);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

impl Client {
    /// Replaces some of the pictures of a call by images that were made, or by uploads.
    async fn name_inputs(&mut self, call: &mut Call) {
        let inputs = call.body.get_mut("inputs").and_then(Value::as_array_mut);
        for input in inputs.into_iter().flatten() {
            let image = self.rng.choice(&self.images).cloned();
            match (self.rng.u32(0..4), image) {
                (0, Some(image)) => {
                    self.scene.tally.deed("used a result as an input");
                    *input = json!({"role": input["role"], "generation": image});
                }
                (0 | 1, _) => {
                    if let Some(id) = self.upload(input).await {
                        *input = json!({"role": input["role"], "upload": id});
                    }
                }
                _ => {}
            }
        }
    }

    /// Uploads the picture of an input. Returns its id if the answer arrives.
    async fn upload(&mut self, input: &Value) -> Option<String> {
        let bytes = BASE64_STANDARD.decode(input["data"].as_str().unwrap_or_default());
        let server = self.rng.usize(0..2);
        let request = self
            .http
            .build(server, Method::POST, "/v1/uploads", &self.token);
        let request = request.header("content-type", "image/png");
        let answer = self.http.send(request.body(bytes.unwrap())).await?;
        let id = answer.body["id"]
            .as_str()
            .filter(|_| answer.status == 201)?;
        self.scene.tally.deed("uploaded a picture");
        self.uploads.push(id.to_owned());
        Some(id.to_owned())
    }

    /// Deletes one of the uploads, which a generation may be using.
    async fn delete_upload(&mut self) {
        if self.uploads.is_empty() {
            return;
        }
        let id = self
            .uploads
            .swap_remove(self.rng.usize(..self.uploads.len()));
        let path = format!("/v1/uploads/{id}");
        let server = self.rng.usize(0..2);
        let request = self.http.build(server, Method::DELETE, &path, &self.token);
        let answer = self.http.send(request).await;
        if answer.is_none_or(|answer| answer.status != 204) {
            return;
        }
        self.scene.tally.deed("deleted an upload");
        let found = self.http.get(1 - server, &path, &self.token).await;
        if found.is_some_and(|answer| answer.status == 200) {
            self.scene
                .tally
                .violation("an upload outlived its deletion", id);
        }
    }

    /// Creates a generation; disconnects, sends duplicates, or retries.
    async fn make(&mut self, call: &Call) {
        let patience = match self.rng.u32(0..8) {
            0 => Duration::from_millis(self.rng.u64(5..700)),
            _ => Duration::from_secs(20),
        };
        let mut server = self.rng.usize(0..2);
        if call.key.is_some() && self.rng.u32(0..6) == 0 {
            self.scene
                .tally
                .deed("asked three times at once with one key");
            let (a, b, c) = tokio::join!(
                self.post(call, 0),
                self.post(call, 1),
                self.post(call, server)
            );
            for answer in [a, b, c].into_iter().flatten() {
                self.note(call, &answer);
            }
            return;
        }
        for attempt in 1..=TRIES {
            let Ok(answer) = tokio::time::timeout(patience, self.post(call, server)).await else {
                self.scene.tally.fault("client: hangs up");
                if call.key.is_none() || self.rng.bool() {
                    return;
                }
                continue;
            };
            if let Some(answer) = &answer {
                self.note(call, answer);
                if answer.status == 202 && self.rng.u32(0..6) == 0 {
                    self.end(Method::POST, "/cancel").await;
                }
            }
            // Without a key, a retry would be another request.
            let unknown = answer.is_none_or(|a| a.status >= 500 && a.record().is_none());
            if !unknown || call.key.is_none() || self.scene.is_over() {
                return;
            }
            self.scene
                .tally
                .deed("asked again with its idempotency key");
            server = 1 - server;
            tokio::time::sleep(Duration::from_millis(100) * u32::try_from(attempt).unwrap()).await;
        }
    }

    async fn post(&self, call: &Call, server: usize) -> Option<Answer> {
        let request = call.request(&self.http, server, &self.token);
        self.http.send(request).await
    }

    fn note(&mut self, call: &Call, answer: &Answer) {
        if let Some(record) = answer.record() {
            self.mine
                .push(record["uuid"].as_str().unwrap_or_default().to_owned());
            if call.route == "/v1/generate/image" && record["status"] == "completed" {
                self.images.extend(self.mine.last().cloned());
            }
            let key = call.key.as_deref();
            self.scene
                .seen
                .record(self.account, key, record, answer.asked);
            let template = &record["metadata"]["template"];
            if template["id"] != call.body["template_id"] {
                let detail = format!("{}: {record}", call.body);
                self.scene.tally.violation("another template", detail);
            }
        }
        match (answer.status, answer.body["error"]["code"].as_str()) {
            (402, Some("spend_limit_exceeded")) => {
                self.scene.tally.deed("was refused by its key's cap");
            }
            (403, Some("account_suspended")) => {
                self.scene.tally.deed("was refused while suspended");
            }
            _ => {}
        }
    }

    fn any(&mut self) -> Option<String> {
        // Mostly recent ones: they are still running.
        let back = self.rng.usize(1..4);
        let at = self.mine.len().checked_sub(back)?;
        Some(self.mine[at].clone())
    }

    async fn look(&mut self) {
        let Some(uuid) = self.any() else { return };
        let server = self.rng.usize(0..2);
        let path = format!("/v1/generate/{uuid}");
        let Some(answer) = self.http.get(server, &path, &self.token).await else {
            return;
        };
        if answer.status == 200 {
            let (seen, body) = (&self.scene.seen, &answer.body);
            seen.record(self.account, None, body, answer.asked);
        } else if answer.status == 404 {
            let deleted = |uuid| {
                self.scene
                    .seen
                    .state()
                    .known
                    .get(uuid)
                    .is_some_and(|k| k.deleted)
            };
            if !deleted(&uuid) {
                self.scene.tally.violation("a generation vanished", uuid);
            }
        }
    }

    /// Cancels or deletes.
    async fn end(&mut self, method: Method, suffix: &str) {
        let Some(uuid) = self.any() else { return };
        let server = self.rng.usize(0..2);
        let path = format!("/v1/generate/{uuid}{suffix}");
        let deletes = method == Method::DELETE;
        if deletes && let Some(known) = self.scene.seen.state().known.get_mut(&uuid) {
            known.deleted = true;
        }
        let request = self.http.build(server, method, &path, &self.token);
        let Some(answer) = self.http.send(request).await else {
            return;
        };
        if !deletes && answer.status == 200 {
            self.scene.tally.deed("cancelled");
            self.scene
                .seen
                .record(self.account, None, &answer.body, answer.asked);
        }
        if deletes && answer.status == 204 {
            self.scene.tally.deed("deleted");
        }
    }

    /// Requests a redelivery of a webhook's newest event.
    async fn redeliver(&mut self) {
        let id = self.scene.accounts[self.account].id;
        let Some(hook) = self.scene.hooks_of(id).next() else {
            return;
        };
        let path = format!("/v1/webhooks/{}/deliveries", hook.id);
        let server = self.rng.usize(0..2);
        let newest = format!("{path}?per_page=1");
        let page = self.http.get(server, &newest, &self.token).await;
        let Some(id) = page.and_then(|page| page.body["data"][0]["id"].as_i64()) else {
            return;
        };
        let path = format!("{path}/{id}/redeliver");
        let request = self.http.build(server, Method::POST, &path, &self.token);
        let answer = self.http.send(request).await;
        if answer.is_some_and(|answer| answer.status == 202) {
            self.scene.tally.deed("requested a redelivery");
        }
    }

    async fn page(&self, path: &str) {
        self.http.get(0, path, &self.token).await;
    }
}
