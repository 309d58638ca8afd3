//! The load: clients that create generations of all modalities through the balancer, and poll them
//! until they end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::{Method, RequestBuilder};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{
    audit::ROUND,
    clients::{Answer, Call, Http},
    stage::Stage,
};

/// Attempts of a request with an idempotency key whose outcome is unknown.
const TRIES: u32 = 6;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(500);
/// Between two polls for unfinished work.
const LOOK: Duration = Duration::from_millis(500);
/// How long the last responses may take.
const PATIENCE: Duration = Duration::from_mins(2);

/// Starts all clients. They end when the stage is over.
pub fn start(stage: &Arc<Stage>, http: &Http) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    for n in 0..stage.args.clients {
        let client = Client {
            rng: stage.args.rng(&format!("client {n}")),
            stage: Arc::clone(stage),
            http: http.clone(),
            account: usize::try_from(n).unwrap() % stage.accounts.len(),
        };
        clients.spawn(client.run(n));
    }
    clients
}

/// Waits until all have their last responses.
pub async fn join(stage: &Stage, mut clients: JoinSet<()>) {
    let all = async {
        while let Some(ended) = clients.join_next().await {
            ended.unwrap();
        }
    };
    if tokio::time::timeout(PATIENCE, all).await.is_err() {
        let detail = format!("{} clients still wait", clients.len());
        stage.tally.violation("a request without an answer", detail);
    }
}

struct Client {
    stage: Arc<Stage>,
    http: Http,
    rng: fastrand::Rng,
    account: usize,
}

impl Client {
    /// One thing after the other.
    async fn run(mut self, n: u32) {
        for made in 1.. {
            if self.stage.is_over() {
                return;
            }
            let call = Call::draw(&mut self.rng, &format!("{ROUND}-{n}-{made}"));
            if let Some(uuid) = self.make(&call).await {
                self.follow(&uuid).await;
            }
            let pause = self.rng.u64(100..1_000);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    /// Creates a generation; retries while its outcome is unknown, if it has a key. Returns its id
    /// where it has not ended yet.
    async fn make(&mut self, call: &Call) -> Option<String> {
        for _ in 0..TRIES {
            let server = self.stage.pick(&mut self.rng);
            let token = self.stage.token(self.account);
            let request = call.request(&self.http, server, &token);
            if let Some(record) = self.send(request, call.key.as_deref()).await {
                let unfinished =
                    matches!(record["status"].as_str(), Some("pending" | "processing"));
                let uuid = record["uuid"].as_str().map(str::to_owned);
                return uuid.filter(|_| unfinished);
            }
            // Without a key, a retry would be another request.
            call.key.as_ref()?;
            tokio::time::sleep(PAUSE).await;
        }
        None
    }

    /// Polls a generation until it has ended.
    async fn follow(&mut self, uuid: &str) {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            tokio::time::sleep(LOOK).await;
            let server = self.stage.pick(&mut self.rng);
            let token = self.stage.token(self.account);
            let path = format!("/v1/generate/{uuid}");
            let request = self.http.build(server, Method::GET, &path, &token);
            let record = self.send(request, None).await;
            if record.is_some_and(|r| r["status"] == "completed" || r["status"] == "failed") {
                return;
            }
        }
    }

    /// Sends it, records the outcome and what was seen; returns the record, if any.
    async fn send(&self, request: RequestBuilder, key: Option<&str>) -> Option<Value> {
        let begun = Instant::now();
        let answer = self.http.try_send(request).await;
        let failure = match &answer {
            Ok(answer) => failure_of(answer),
            Err(error) if error.is_timeout() => Some("no answer in 15 s".to_owned()),
            Err(_) => Some("connection lost".to_owned()),
        };
        self.stage.samples.note(begun, failure);
        let mut record = answer.ok()?.body;
        if !record["generation"].is_null() {
            record = record["generation"].take();
        }
        record["uuid"].as_str()?;
        self.stage.seen.record(self.account, key, &record, begun);
        Some(record)
    }
}

/// Why it failed, if it did.
fn failure_of(answer: &Answer) -> Option<String> {
    let (status, body) = (answer.status, &answer.body);
    if matches!(status, 200 | 202) && body["uuid"].is_string() && body["status"] != "failed" {
        return None;
    }
    let code = body["error"]["code"].as_str().unwrap_or("no record");
    Some(format!("{status} {code}"))
}
