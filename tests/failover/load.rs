//! The load: clients that create generations of all modalities and poll them until they end, and
//! small requests at a constant rate, independent of responses.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    clients::{Answer, Call, Http},
    samples::{Sample, Samples},
    stage::Stage,
};

/// Attempts of a request with an idempotency key whose outcome is unknown.
const TRIES: u32 = 6;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(500);
/// Between two polls for unfinished work.
const LOOK: Duration = Duration::from_millis(300);
/// Between two small requests to each server.
const BEAT: Duration = Duration::from_millis(200);
/// How long the last responses may take.
const PATIENCE: Duration = Duration::from_mins(2);

/// Starts all clients of a round, half of them at each server. They end when the stage is over.
pub fn start(stage: &Arc<Stage>, http: &Http, samples: &Samples, round: u32) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    let client = |server, account| Client {
        stage: Arc::clone(stage),
        http: http.clone(),
        samples: samples.clone(),
        server,
        account,
    };
    for n in 0..stage.args.clients {
        let server = usize::from(n % 2 == 1);
        clients.spawn(client(server, server).run(format!("{round}-{n}")));
    }
    for server in 0..2 {
        clients.spawn(client(server, 2 + server).beat(format!("{round}-beat{server}")));
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

#[derive(Clone)]
struct Client {
    stage: Arc<Stage>,
    http: Http,
    samples: Samples,
    server: usize,
    account: usize,
}

impl Client {
    /// One thing after the other.
    async fn run(self, name: String) {
        let mut rng = self.stage.args.rng(&name);
        for made in 1.. {
            if self.stage.is_over() {
                return;
            }
            let call = Call::draw(&mut rng, &format!("{name}-{made}"));
            if let Some(uuid) = self.make(&call).await {
                self.follow(&uuid).await;
            }
            tokio::time::sleep(Duration::from_millis(rng.u64(5..100))).await;
        }
    }

    /// A text at each tick, whatever happened to those before.
    async fn beat(self, name: String) {
        let mut texts = JoinSet::new();
        let mut beats = tokio::time::interval(BEAT);
        for made in 1.. {
            beats.tick().await;
            if self.stage.is_over() {
                break;
            }
            let text = text(format!("mk-{name}-{made}-end"));
            let client = self.clone();
            texts.spawn(async move { client.make(&text).await });
        }
        texts.join_all().await;
    }

    /// Creates a generation; retries while its outcome is unknown, if it has a key. Returns its id
    /// where it has not ended yet.
    async fn make(&self, call: &Call) -> Option<String> {
        for attempt in 1..=TRIES {
            let token = &self.stage.accounts[self.account].key;
            let request = call.request(&self.http, self.server, token);
            let answer = self.send(request, call.key.as_deref(), true, attempt == 1);
            if let Some(record) = answer.await {
                let unfinished =
                    matches!(record["status"].as_str(), Some("pending" | "processing"));
                let uuid = record["uuid"].as_str().map(str::to_owned);
                return uuid.filter(|_| unfinished);
            }
            // Without a key, a retry would be another request.
            if call.key.is_none() || self.stage.is_over() {
                return None;
            }
            tokio::time::sleep(PAUSE).await;
        }
        None
    }

    /// Polls a generation until it has ended, or the stage is over.
    async fn follow(&self, uuid: &str) {
        while !self.stage.is_over() {
            tokio::time::sleep(LOOK).await;
            let path = format!("/v1/generate/{uuid}");
            let token = &self.stage.accounts[self.account].key;
            let request = self.http.build(self.server, Method::GET, &path, token);
            let record = self.send(request, None, false, true).await;
            if record.is_some_and(|r| r["status"] == "completed" || r["status"] == "failed") {
                return;
            }
        }
    }

    /// Sends it, records the outcome and what was seen; returns the record, if any.
    async fn send(
        &self,
        request: RequestBuilder,
        key: Option<&str>,
        makes: bool,
        is_first: bool,
    ) -> Option<Value> {
        let begun = Instant::now();
        let answer = self.http.try_send(request).await;
        let failure = match &answer {
            Ok(answer) => failure_of(answer, makes),
            Err(error) if error.is_timeout() => Some("no answer in 15 s".to_owned()),
            Err(_) => Some("connection lost".to_owned()),
        };
        self.samples.note(Sample {
            server: self.server,
            begun,
            ended: Instant::now(),
            makes,
            is_first,
            failure,
        });
        let mut record = answer.ok()?.body;
        if !record["generation"].is_null() {
            record = record["generation"].take();
        }
        record["uuid"].as_str()?;
        self.stage.seen.record(self.account, key, &record, begun);
        Some(record)
    }
}

/// The smallest request.
fn text(mark: String) -> Call {
    let prompt = format!("Say {mark}");
    Call {
        route: "/v1/generate/text",
        body: json!({"provider": "openai", "prompt": prompt, "parameters": {"max_tokens": 20}}),
        mark,
        key: None,
        prefer: None,
    }
}

/// Why it failed, if it did.
fn failure_of(answer: &Answer, makes: bool) -> Option<String> {
    let (status, body) = (answer.status, &answer.body);
    let failed = makes && body["status"] == "failed";
    if matches!(status, 200 | 202) && body["uuid"].is_string() && !failed {
        return None;
    }
    let code = body["error"]["code"].as_str().unwrap_or("no record");
    Some(format!("{status} {code}"))
}
