//! What callers send.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};

use crate::{agent::Turn, upstream::LONG_MODEL};

/// Fifty bytes.
const PROMPT: &str = "Write a line about the sea that nobody has read yet";

/// Requests that are sent in turn, for ever.
pub struct Work {
    servers: Vec<SocketAddr>,
    requests: Vec<Vec<u8>>,
    next: AtomicUsize,
}

/// A request that gensvc and the proxy can both be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Stream,
    /// A stream that stays open.
    LongStream,
    Image,
    /// A turn of an agent.
    Turn(Turn),
}

impl Work {
    pub fn new(servers: &[SocketAddr], requests: Vec<Vec<u8>>) -> Self {
        Self {
            servers: servers.to_vec(),
            requests,
            next: AtomicUsize::new(0),
        }
    }

    /// Generations of gensvc, with each of the keys in turn.
    pub fn gensvc(servers: &[SocketAddr], kind: Kind, keys: &[String]) -> Self {
        let (path, body) = match kind {
            Kind::Image => (
                "/v1/generate/image",
                json!({"prompt": PROMPT, "provider": "openai"}).to_string(),
            ),
            Kind::Turn(turn) => {
                let (path, model) = turn.of_gensvc();
                (path, turn.body(&model))
            }
            _ => ("/v1/generate/text", text(kind).to_string()),
        };
        Self::new(servers, each(keys, |key| post(path, key, &body)))
    }

    /// The same, as the upstream takes them.
    pub fn proxy(server: SocketAddr, kind: Kind) -> Self {
        let (path, body) = match kind {
            Kind::Image => (
                "/v1/images/generations",
                json!({"model": "bench", "prompt": PROMPT, "n": 1, "size": "1024x1024"})
                    .to_string(),
            ),
            Kind::Turn(turn) => {
                let (path, model) = turn.of_upstream();
                (path, turn.body(model))
            }
            _ => ("/v1/chat/completions", chat(kind).to_string()),
        };
        let key = "svc_0000000000000000000000000000000000000000";
        Self::new(&[server], vec![post(path, key, &body)])
    }

    /// Videos of the sandbox, each of which takes that long.
    pub fn videos(servers: &[SocketAddr], keys: &[String], seconds: u64) -> Self {
        let prompt = format!("{PROMPT} [[slow:{seconds}]]");
        let parameters = json!({"duration": 1});
        let body = json!({"prompt": prompt, "provider": "sandbox", "parameters": parameters});
        let body = body.to_string();
        Self::new(
            servers,
            each(keys, |key| post("/v1/generate/video", key, &body)),
        )
    }

    /// The server that a connection goes to.
    pub fn server(&self, connection: usize) -> SocketAddr {
        self.servers[connection % self.servers.len()]
    }

    pub fn next(&self) -> &[u8] {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        &self.requests[turn % self.requests.len()]
    }
}

fn each(keys: &[String], request: impl Fn(&str) -> Vec<u8>) -> Vec<Vec<u8>> {
    keys.iter().map(|key| request(key)).collect()
}

/// Some 400 bytes with its head, as [`chat`] has.
fn text(kind: Kind) -> Value {
    let mut body =
        json!({"prompt": PROMPT, "provider": "bench", "parameters": {"max_tokens": 100}});
    body["model"] = json!(model(kind));
    if kind != Kind::Text {
        body["stream"] = json!(true);
    }
    body
}

fn chat(kind: Kind) -> Value {
    let messages = json!([{"role": "user", "content": PROMPT}]);
    let mut body = json!({"model": model(kind), "messages": messages, "max_tokens": 100});
    if kind != Kind::Text {
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
    }
    body
}

fn model(kind: Kind) -> &'static str {
    if kind == Kind::LongStream {
        LONG_MODEL
    } else {
        "bench"
    }
}

fn post(path: &str, key: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

pub fn get(path: &str, key: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {key}\r\n\r\n")
        .into_bytes()
}
