//! The webhook receiver: one listener for all accounts, which differ by path. It refuses, hangs,
//! disconnects and redirects at times, and records everything that arrives.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chrono::{DateTime, Utc};
use gensvc::domain::clock::machine_time;
use http::HeaderMap;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::{
    args::Args,
    tally::Tally,
    wire::{self, Reply},
};

/// Longer than the servers' timeout of 1 s.
const TOO_LONG: Duration = Duration::from_millis(1_800);

/// One message.
#[derive(Debug, Clone)]
pub struct Arrival {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub at: DateTime<Utc>,
    /// It is answered with 2xx, in time.
    pub taken: bool,
}

/// The receiver of all webhooks.
pub struct Receiver {
    address: String,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    args: Args,
    tally: Arc<Tally>,
    arrivals: Mutex<Vec<Arrival>>,
    /// How often each message has arrived at each path.
    counts: Mutex<HashMap<String, u32>>,
    calm: AtomicBool,
}

impl Receiver {
    pub async fn start(args: &Args, tally: &Arc<Tally>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            args: args.clone(),
            tally: Arc::clone(tally),
            arrivals: Mutex::default(),
            counts: Mutex::default(),
            calm: AtomicBool::new(false),
        });
        let state = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&state)));
            }
        });
        Self {
            address,
            shared,
            accepting,
        }
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.address)
    }

    /// Disables or enables faults.
    pub fn calm(&self, calm: bool) {
        self.shared.calm.store(calm, Ordering::Relaxed);
    }

    /// What has arrived since the last call.
    pub fn drain(&self) -> Vec<Arrival> {
        std::mem::take(&mut self.shared.arrivals.lock().unwrap())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    while let Some(request) = wire::read(&mut stream).await {
        let (reply, fault) = shared.draw(&request);
        fault.inspect(|name| shared.tally.fault(name));
        shared.arrivals.lock().unwrap().push(Arrival {
            path: request.path,
            headers: request.headers,
            body: request.body,
            at: machine_time(),
            taken: fault.is_none(),
        });
        if !wire::write(&mut stream, reply).await {
            return;
        }
    }
}

impl Shared {
    /// The fault of a delivery; `None`: it is accepted.
    fn draw(&self, request: &wire::Request) -> (Reply, Option<&'static str>) {
        let id = request.headers.get("webhook-id");
        let id = id.and_then(|id| id.to_str().ok()).unwrap_or_default();
        let name = format!("{} {id}", request.path);
        let count = {
            let mut counts = self.counts.lock().unwrap();
            let count = counts.entry(name.clone()).or_default();
            *count += 1;
            *count
        };
        let good = |status| Reply::whole(status, &[], b"");
        if self.calm.load(Ordering::Relaxed) {
            return (good(200), None);
        }
        let mut rng = self.args.rng(&format!("receiver {name} {count}"));
        let wait = Duration::from_millis(rng.u64(0..300));
        match rng.u32(0..100) {
            0..8 => {
                let status = [400, 410, 429, 500, 503][rng.usize(0..5)];
                (good(status).after(wait), Some("receiver: error status"))
            }
            // Without an answer: a server that was stopped meanwhile would accept a late one.
            8..11 => (Reply::reset().after(TOO_LONG), Some("receiver: time-out")),
            11..14 => (Reply::reset().after(wait), Some("receiver: closes")),
            14..16 => (
                good(200).cut().after(wait),
                Some("receiver: answer cut off"),
            ),
            16..19 => {
                let status = [301, 302, 307, 308][rng.usize(0..4)];
                let elsewhere = [("location", "/elsewhere")];
                let reply = Reply::whole(status, &elsewhere, b"");
                (reply.after(wait), Some("receiver: redirects"))
            }
            other => (good(if other < 60 { 200 } else { 204 }).after(wait), None),
        }
    }
}
