//! A fake upstream that implements the vendors' wire formats, records requests, and can hold
//! responses back.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    response::{IntoResponse as _, Response},
};
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, Method, StatusCode, Uri};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};

pub mod steps;
mod strict;
pub mod text;

/// The longest wait for a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// A recorded request.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub method: Method,
    /// Including the query.
    pub path: String,
    pub headers: HeaderMap,
    /// As JSON; null when it is none.
    pub body: Value,
    /// As text, for forms.
    pub text: String,
}

/// Chooses a response by the request.
type Player = Arc<dyn Fn(&Recorded) -> Reply + Send + Sync>;

/// The response of an upstream.
#[derive(Debug, Clone)]
pub enum Reply {
    /// A valid response in the format of the path, with this text and these token counts.
    Text(String, i64, i64),
    /// The same, event by event: each is sent when released ([`Upstream::send_events`]).
    Stepwise(String, i64, i64),
    /// These events, sent in the same way.
    Steps(Vec<String>),
    /// A status with a JSON body.
    Status(u16, Value),
    /// A status with headers and a JSON body.
    With(u16, Vec<(&'static str, &'static str)>, Value),
    /// A status with a raw body and its content type.
    Raw(u16, &'static str, String),
    /// The same for bytes that need not be text.
    Bytes(u16, String, Bytes),
    /// The first half of a valid response, then a cut connection.
    Cut,
    /// These bytes of a stream of events, then its end, or a cut connection.
    Stream(Bytes, End),
    /// A file.
    File(&'static str, Bytes),
    /// A file that is shorter than its Content-Length.
    Short(&'static str, Bytes),
    /// An endless file.
    Endless(&'static str),
    /// A redirect.
    Redirect(String),
}

/// How a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Clean,
    Cut,
}

#[derive(Clone)]
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    requests: Mutex<Vec<Recorded>>,
    arrived: watch::Sender<usize>,
    player: Mutex<Player>,
    /// Only requests whose path contains this are held back.
    held: Mutex<String>,
    gate: Semaphore,
    steps: steps::Steps,
    is_lenient: AtomicBool,
    /// What the vendors would have refused.
    refusals: Mutex<Vec<String>>,
}

/// Fails the test if a vendor would have refused a request.
impl Drop for Upstream {
    fn drop(&mut self) {
        let refusals = self.shared.refusals.lock().unwrap();
        assert!(
            refusals.is_empty() || std::thread::panicking(),
            "the vendor refuses: {refusals:#?}"
        );
    }
}

impl Upstream {
    /// Responds to everything with a valid text immediately.
    pub async fn start() -> Self {
        let shared = Arc::new(Shared {
            requests: Mutex::default(),
            arrived: watch::Sender::new(0),
            player: Mutex::new(Arc::new(|_| Reply::Text("Hello there.".to_owned(), 10, 3))),
            held: Mutex::default(),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
            steps: steps::Steps::default(),
            is_lenient: AtomicBool::new(false),
            refusals: Mutex::default(),
        });
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&shared));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, shared }
    }

    /// Responds also to requests that the vendor would refuse, such as bodies that are passed through.
    pub fn be_lenient(&self) {
        self.shared.is_lenient.store(true, Ordering::Relaxed);
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the response.
    pub fn reply(&self, reply: Reply) {
        self.play(move |_| reply.clone());
    }

    /// Sets the response by request.
    pub fn play(&self, player: impl Fn(&Recorded) -> Reply + Send + Sync + 'static) {
        *self.shared.player.lock().unwrap() = Arc::new(player);
    }

    /// As [`Self::hold`], but only for requests with `part` in their path.
    pub fn hold_only(&self, part: &str) {
        part.clone_into(&mut self.shared.held.lock().unwrap());
        self.hold();
    }

    /// Number of requests with this method and with `part` in their path.
    pub fn calls(&self, method: &Method, part: &str) -> usize {
        let requests = self.shared.requests.lock().unwrap();
        let meant = |r: &&Recorded| r.method == *method && r.path.contains(part);
        requests.iter().filter(meant).count()
    }

    /// Holds responses back until [`Self::release`].
    pub fn hold(&self) {
        self.shared.gate.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Releases `n` held responses.
    pub fn release(&self, n: usize) {
        self.shared.gate.add_permits(n);
    }

    /// Number of requests.
    pub fn count(&self) -> usize {
        self.shared.requests.lock().unwrap().len()
    }

    /// The recorded requests.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Waits until `n` requests have arrived in total.
    pub async fn arrived(&self, n: usize) {
        let mut arrived = self.shared.arrived.subscribe();
        let waiting = arrived.wait_for(|&count| count >= n);
        let arrived = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(arrived.is_ok(), "fewer than {n} requests arrive");
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path_and_query().unwrap().to_string();
    let recorded = Recorded {
        method,
        path: path.clone(),
        headers,
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        text: String::from_utf8_lossy(&body).into_owned(),
    };
    let streamed = recorded.body["stream"] == true || path.contains("streamGenerateContent");
    let count = {
        let mut requests = shared.requests.lock().unwrap();
        requests.push(recorded.clone());
        requests.len()
    };
    shared.arrived.send_replace(count);
    let held = path.contains(shared.held.lock().unwrap().as_str());
    if held {
        shared.gate.acquire().await.unwrap().forget();
    }
    if !shared.is_lenient.load(Ordering::Relaxed)
        && let Some((why, error)) = strict::refusal(uri.path(), &recorded.body)
    {
        let refusal = format!("{why}: {}", recorded.text);
        shared.refusals.lock().unwrap().push(refusal);
        let json = [("content-type", "application/json")];
        return (StatusCode::BAD_REQUEST, json, error.to_string()).into_response();
    }
    let player = Arc::clone(&shared.player.lock().unwrap());
    let reply = player(&recorded);
    match reply {
        Reply::Text(text, input, output) => text::good(&path, streamed, &text, input, output),
        Reply::Stepwise(text, input, output) => {
            let body = text::body(&path, true, &text, input, output);
            let events = body.split_inclusive("\n\n").map(str::to_owned);
            steps::answer(&shared, events.collect())
        }
        Reply::Steps(events) => steps::answer(&shared, events),
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
        Reply::With(status, headers, body) => {
            let mut response = Response::new(Body::from(body.to_string()));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            for (name, value) in headers {
                let value = value.parse().unwrap();
                response.headers_mut().insert(name, value);
            }
            response
        }
        Reply::Raw(status, content_type, body) => {
            let content_type = [("content-type", content_type)];
            (StatusCode::from_u16(status).unwrap(), content_type, body).into_response()
        }
        Reply::Bytes(status, content_type, body) => {
            let content_type = [("content-type", content_type)];
            (StatusCode::from_u16(status).unwrap(), content_type, body).into_response()
        }
        Reply::Stream(bytes, end) => {
            let rest = async move {
                // What is there is sent before the connection is cut.
                tokio::task::yield_now().await;
                (end == End::Cut).then(|| Err(std::io::Error::other("cut")))
            };
            let rest = stream::once(rest).filter_map(std::future::ready);
            let pieces = stream::iter([Ok(bytes)]).chain(rest);
            let content_type = [("content-type", "text/event-stream")];
            (content_type, Body::from_stream(pieces)).into_response()
        }
        Reply::Cut => {
            let pieces = [
                Ok(Bytes::from_static(b"{\"choices\":[")),
                Err(std::io::Error::other("cut")),
            ];
            Response::new(Body::from_stream(stream::iter(pieces)))
        }
        other => file(other),
    }
}

fn file(reply: Reply) -> Response {
    let typed = |content_type, body| ([("content-type", content_type)], body).into_response();
    match reply {
        Reply::File(content_type, bytes) => typed(content_type, Body::from(bytes)),
        Reply::Short(content_type, bytes) => {
            let length = (bytes.len() + 1).to_string();
            let cut = Err(std::io::Error::other("cut"));
            let pieces = stream::iter([Ok(bytes), cut]);
            let mut response = typed(content_type, Body::from_stream(pieces));
            let headers = response.headers_mut();
            headers.insert("content-length", length.parse().unwrap());
            response
        }
        Reply::Endless(content_type) => {
            let piece = Bytes::from(vec![0; 1 << 20]);
            let pieces = stream::repeat_with(move || Ok::<_, std::io::Error>(piece.clone()));
            typed(content_type, Body::from_stream(pieces))
        }
        Reply::Redirect(to) => (StatusCode::FOUND, [("location", to)]).into_response(),
        _ => StatusCode::NOT_IMPLEMENTED.into_response(),
    }
}
