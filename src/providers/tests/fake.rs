//! A fake upstream for the adapters' tests: sends canned responses and records requests. Uses raw
//! TCP, so that a response can be truncated, endless, or not HTTP.

pub mod ends;

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

use crate::{
    catalogue::vendor::ModelSettings,
    domain::{
        clock::{ManualClock, machine_time},
        conversation::{Conversation, Delta, Message, Part, Role, Visibility},
        generation::Surface,
    },
    providers::{
        DeltaSink, ProviderError, Setup, TextAnswer, TextCall, TextProvider, http::HttpClient,
    },
};

/// Maximum duration of a call in tests.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the setup of a provider at a fake upstream, with a key.
pub fn setup(base: &str, timeout: Duration) -> Setup {
    Setup {
        name: "fake".to_owned(),
        http: HttpClient::new().unwrap(),
        base_url: base.to_owned(),
        api_key: Some("test-key".into()),
        timeout,
        poll_interval: Duration::from_millis(1),
        clock: Arc::new(ManualClock::new(machine_time())),
        models: BTreeMap::new(),
    }
}

impl Setup {
    #[must_use]
    pub fn with(mut self, model: &str, settings: impl ModelSettings) -> Self {
        self.models.insert(model.to_owned(), Arc::new(settings));
        self
    }

    #[must_use]
    pub fn keyless(self) -> Self {
        Self {
            api_key: None,
            ..self
        }
    }
}

#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// Null without a body; a string if it is not JSON.
    pub body: Value,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

#[derive(Debug, Clone)]
pub enum Reply {
    /// Sends these bytes, then closes the connection.
    Raw(String),
    /// Sends these bytes repeatedly until the client disconnects.
    Endless(String, String),
    /// Sends these bytes (possibly none), then nothing; the connection stays open.
    Stalled(String),
}

impl Reply {
    pub fn status(status: u16, headers: &[(&str, &str)], body: &str) -> Self {
        let mut head = format!(
            "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            head.push_str(name);
            head.push_str(": ");
            head.push_str(value);
            head.push_str("\r\n");
        }
        Self::Raw(format!("{head}\r\n{body}"))
    }

    pub fn json(body: &Value) -> Self {
        Self::status(
            200,
            &[
                ("content-type", "application/json"),
                ("x-request-id", "req-1"),
            ],
            &body.to_string(),
        )
    }

    /// Creates one event per item, with an `event:` line if the item has a `type`. Strings are sent
    /// unchanged.
    pub fn events(items: &[Value]) -> Self {
        let event = |item: &Value| {
            let name = item.get("type").and_then(Value::as_str);
            let name = name
                .map(|name| format!("event: {name}\r\n"))
                .unwrap_or_default();
            let data = item
                .as_str()
                .map_or_else(|| item.to_string(), str::to_owned);
            format!("{name}data: {data}\r\n\r\n")
        };
        let body: String = items.iter().map(event).collect();
        Self::status(200, &[("content-type", "text/event-stream")], &body)
    }

    /// Creates a chunked 200 stream without its last chunk.
    pub fn cut(body: &str) -> Self {
        Self::Raw(format!(
            "HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n",
            body.len()
        ))
    }
}

pub struct Upstream {
    pub base: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    server: JoinHandle<()>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Upstream {
    pub async fn start(reply: Reply) -> Self {
        Self::each(vec![reply]).await
    }

    /// Starts an upstream that sends one reply per request, in order, and repeats the last one.
    /// Serves connections concurrently.
    pub async fn each(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&seen);
        let replies = Arc::new(replies);
        let server = tokio::spawn(async move {
            let mut open = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                open.spawn(serve(stream, Arc::clone(&replies), Arc::clone(&keep)));
            }
        });
        Self { base, seen, server }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, replies: Arc<Vec<Reply>>, seen: Arc<Mutex<Vec<Seen>>>) {
    let Some(request) = read(&mut stream).await else {
        return;
    };
    let index = {
        let mut seen = seen.lock().unwrap();
        seen.push(request);
        seen.len().min(replies.len()) - 1
    };
    match &replies[index] {
        Reply::Raw(bytes) => {
            // The client may have disconnected after the head.
            let _gone = stream.write_all(bytes.as_bytes()).await;
            let _gone = stream.shutdown().await;
        }
        Reply::Endless(head, piece) => {
            let mut next = head.as_bytes();
            while stream.write_all(next).await.is_ok() {
                next = piece.as_bytes();
            }
        }
        Reply::Stalled(bytes) => {
            let _gone = stream.write_all(bytes.as_bytes()).await;
            std::future::pending::<()>().await;
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Seen> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let mut lines = head.lines();
        let mut first = lines.next()?.split(' ').map(str::to_owned);
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let (method, path) = (first.next()?, first.next()?);
        let seen = Seen {
            method,
            path,
            headers,
            body: Value::Null,
        };
        let wanted = seen.header("content-length").map_or(Ok(0), str::parse);
        if wanted == Ok(body.len()) {
            let body = match body {
                "" => Value::Null,
                text => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
            };
            return Some(Seen { body, ..seen });
        }
    }
}

/// Returns a client shared by all tests: building one reads the root certificates.
pub fn client() -> HttpClient {
    static CLIENT: LazyLock<HttpClient> = LazyLock::new(|| HttpClient::new().unwrap());
    CLIENT.clone()
}

/// Calls `provider` with streaming. Also returns the deltas.
pub async fn streamed(
    provider: &dyn TextProvider,
    call: &TextCall,
) -> (Result<TextAnswer, ProviderError>, Vec<String>) {
    let (sink, mut source) = DeltaSink::channel(Visibility::of(Surface::AnthropicMessages));
    let result = provider.generate(call, Some(&sink)).await;
    drop(sink);
    let mut deltas = Vec::new();
    while let Some(delta) = source.recv().await {
        if let Delta::Text(text) = delta {
            deltas.push(text);
        }
    }
    (result, deltas)
}

/// Returns a question, the answer and a second question of two parts.
pub fn dialogue() -> Conversation {
    let mut dialogue =
        Conversation::from_prompt("Say hi.".to_owned(), Some("Be brief.".to_owned()));
    let parts = ["And", "goodbye?"].map(Part::text);
    dialogue.messages.extend([
        Message::text(Role::Assistant, "Hi."),
        Message {
            role: Role::User,
            parts: parts.into(),
        },
    ]);
    dialogue
}

/// Reads a request recorded from an official SDK (`tests/fixtures/sdk`).
pub fn recorded(text: &str) -> Seen {
    let root: Value = serde_json::from_str(text).unwrap();
    let field = |name: &str| root[name].as_str().unwrap().to_owned();
    Seen {
        method: field("method"),
        path: field("path"),
        headers: root["headers"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
            .collect(),
        body: root["body"].clone(),
    }
}
