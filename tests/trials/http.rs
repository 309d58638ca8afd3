//! One request and its response.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::{Body, Method, RequestBuilder};
use serde_json::Value;

use crate::stage::Stage;

/// The longest wait for a response.
const PATIENCE: Duration = Duration::from_secs(15);

/// Sends requests and records what comes back.
#[derive(Clone)]
pub struct Http {
    stage: Arc<Stage>,
    client: reqwest::Client,
}

/// A complete response.
pub struct Answer {
    /// When it was sent.
    pub asked: Instant,
    pub status: u16,
    /// Null where it is not JSON.
    pub body: Value,
}

impl Answer {
    /// The record in it, of a generation that exists: an unconfirmed one may not.
    pub fn record(&self) -> Option<&Value> {
        if self.body["error"]["code"] == "database_unavailable" {
            return None;
        }
        let record = match &self.body["generation"] {
            Value::Null => &self.body,
            record => record,
        };
        record["uuid"].is_string().then_some(record)
    }
}

impl Http {
    pub fn new(stage: &Arc<Stage>) -> Self {
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(PATIENCE)
            .build();
        Self {
            stage: Arc::clone(stage),
            client: client.unwrap(),
        }
    }

    /// A request to one of the servers.
    pub fn build(&self, server: usize, method: Method, path: &str, token: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.stage.servers[server].url());
        self.client.request(method, url).bearer_auth(token)
    }

    /// Sends it. `None`: its outcome is unknown.
    pub async fn send(&self, request: RequestBuilder) -> Option<Answer> {
        self.try_send(request).await.ok()
    }

    /// Sends it. `Err`: how it was lost.
    pub async fn try_send(&self, request: RequestBuilder) -> reqwest::Result<Answer> {
        self.stage.tally.request();
        let asked = Instant::now();
        let answer = request.send().await?;
        let status = answer.status().as_u16();
        let text = answer.text().await?;
        self.stage.tally.answer(status);
        if status == 500 {
            self.stage
                .tally
                .violation("an internal error", text.clone());
        }
        let body = match last_event(&text) {
            Some(data) => serde_json::from_str(data),
            None => serde_json::from_str(&text),
        };
        Ok(Answer {
            asked,
            status,
            body: body.unwrap_or(Value::Null),
        })
    }

    /// GET.
    pub async fn get(&self, server: usize, path: &str, token: &str) -> Option<Answer> {
        self.send(self.build(server, Method::GET, path, token))
            .await
    }

    /// A file by its link, which names the server that signed it, from any server.
    pub async fn file(&self, server: usize, link: &str) -> Option<(u16, bytes::Bytes)> {
        let path = &link[link.find("/v1/").unwrap_or_default()..];
        self.stage.tally.request();
        let answer = self
            .build(server, Method::GET, path, "")
            .send()
            .await
            .ok()?;
        let status = answer.status().as_u16();
        Some((status, answer.bytes().await.ok()?))
    }
}

/// A JSON body.
pub fn json_body(request: RequestBuilder, body: impl Into<Body>) -> RequestBuilder {
    request
        .header("content-type", "application/json")
        .body(body)
}

/// The record of the last event that carries one.
fn last_event(text: &str) -> Option<&str> {
    let events = text.split("\n\n").filter(|event| {
        let names = ["event: generation", "event: completed", "event: failed"];
        names.iter().any(|name| event.starts_with(name))
    });
    let (_, data) = events.last()?.split_once("data: ")?;
    Some(data)
}
