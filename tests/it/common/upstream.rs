//! A fake upstream that speaks the vendors' wire formats, records what it is asked, and can
//! hold its answers back.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, StatusCode, Uri};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

/// One request that arrived.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub headers: HeaderMap,
}

/// What it answers.
#[derive(Debug, Clone)]
pub enum Reply {
    /// A good answer in the format of the path, with this text and these token counts.
    Text(String, i64, i64),
    /// A status with a JSON body.
    Status(u16, Value),
    /// A status with a body as it is, and a content type.
    Raw(u16, &'static str, String),
    /// A good answer's first half, then a cut.
    Cut,
}

/// The fake upstream.
#[derive(Clone)]
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    requests: Mutex<Vec<Recorded>>,
    arrived: watch::Sender<usize>,
    reply: Mutex<Reply>,
    gate: Semaphore,
}

impl Upstream {
    /// Answers everything with a good text at once.
    pub async fn start() -> Self {
        let shared = Arc::new(Shared {
            requests: Mutex::default(),
            arrived: watch::Sender::new(0),
            reply: Mutex::new(Reply::Text("Hello there.".to_owned(), 10, 3)),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
        });
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&shared));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, shared }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it answers from now on.
    pub fn reply(&self, reply: Reply) {
        *self.shared.reply.lock().unwrap() = reply;
    }

    /// Holds answers back until [`Self::release`].
    pub fn hold(&self) {
        self.shared.gate.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Lets `n` held answers go.
    pub fn release(&self, n: usize) {
        self.shared.gate.add_permits(n);
    }

    /// How many requests arrived.
    pub fn count(&self) -> usize {
        self.shared.requests.lock().unwrap().len()
    }

    /// What arrived.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Waits until `n` requests have arrived in all.
    pub async fn arrived(&self, n: usize) {
        let mut arrived = self.shared.arrived.subscribe();
        arrived.wait_for(|&count| count >= n).await.unwrap();
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path_and_query().unwrap().to_string();
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let streamed = body["stream"] == true || path.contains("streamGenerateContent");
    let count = {
        let mut requests = shared.requests.lock().unwrap();
        requests.push(Recorded { headers });
        requests.len()
    };
    shared.arrived.send_replace(count);
    shared.gate.acquire().await.unwrap().forget();
    let reply = shared.reply.lock().unwrap().clone();
    match reply {
        Reply::Text(text, input, output) => good(&path, streamed, &text, input, output),
        Reply::Status(status, body) => {
            let json = [
                ("content-type", "application/json"),
                ("x-request-id", "req_up"),
            ];
            (
                StatusCode::from_u16(status).unwrap(),
                json,
                body.to_string(),
            )
                .into_response()
        }
        Reply::Raw(status, content_type, body) => {
            let content_type = [("content-type", content_type)];
            (StatusCode::from_u16(status).unwrap(), content_type, body).into_response()
        }
        Reply::Cut => {
            let pieces = [
                Ok(Bytes::from_static(b"{\"choices\":[")),
                Err(std::io::Error::other("cut")),
            ];
            Response::new(Body::from_stream(futures_util::stream::iter(pieces)))
        }
    }
}

fn good(path: &str, streamed: bool, text: &str, input: i64, output: i64) -> Response {
    let body = if path.starts_with("/anthropic") {
        anthropic(streamed, text, input, output)
    } else if path.starts_with("/gemini") {
        gemini(streamed, text, input, output)
    } else {
        openai(streamed, text, input, output)
    };
    let content_type = if streamed {
        "text/event-stream"
    } else {
        "application/json"
    };
    (
        [("content-type", content_type), ("x-request-id", "req_up")],
        body,
    )
        .into_response()
}

/// The text in two pieces.
fn halves(text: &str) -> (String, String) {
    let at = text.chars().count() / 2;
    (
        text.chars().take(at).collect(),
        text.chars().skip(at).collect(),
    )
}

fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn openai(streamed: bool, text: &str, input: i64, output: i64) -> String {
    let usage = json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
    if !streamed {
        return json!({"id": "c-1", "object": "chat.completion", "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": usage})
        .to_string();
    }
    let chunk = |delta: Value, finish: Value| {
        data(
            &json!({"id": "c-1", "object": "chat.completion.chunk", "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": null}),
        )
    };
    let (first, second) = halves(text);
    [
        chunk(json!({"role": "assistant", "content": first}), Value::Null),
        chunk(json!({"content": second}), Value::Null),
        chunk(json!({}), json!("stop")),
        data(&json!({"id": "c-1", "choices": [], "usage": usage})),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat()
}

fn anthropic(streamed: bool, text: &str, input: i64, output: i64) -> String {
    let usage = json!({"input_tokens": input, "output_tokens": output});
    if !streamed {
        return json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "usage": usage})
        .to_string();
    }
    let event = |value: Value| {
        format!(
            "event: {}\n{}",
            value["type"].as_str().unwrap(),
            data(&value)
        )
    };
    let (first, second) = halves(text);
    let delta = |text: String| {
        event(
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
        )
    };
    [
        event(json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
            "model": "m", "content": [], "usage": {"input_tokens": input, "output_tokens": 1}}})),
        event(json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})),
        delta(first),
        delta(second),
        event(json!({"type": "content_block_stop", "index": 0})),
        event(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage})),
        event(json!({"type": "message_stop"})),
    ]
    .concat()
}

fn gemini(streamed: bool, text: &str, input: i64, output: i64) -> String {
    let answer = |text: &str, finish: Value| {
        json!({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]},
                "finishReason": finish, "index": 0}],
            "usageMetadata": {"promptTokenCount": input, "candidatesTokenCount": output,
                "totalTokenCount": input + output},
            "modelVersion": "m", "responseId": "r-1"})
    };
    if !streamed {
        return answer(text, json!("STOP")).to_string();
    }
    let (first, second) = halves(text);
    data(&answer(&first, Value::Null)) + &data(&answer(&second, json!("STOP")))
}
