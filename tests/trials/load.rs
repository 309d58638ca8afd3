//! A steady load: clients that create generations of all modalities and poll them until they end,
//! and small requests at a constant rate, independent of responses.

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    call::Call,
    http::{Answer, Http},
    samples::{Sample, Samples},
    stage::Stage,
};

/// Attempts of a request with an idempotency key whose outcome is unknown.
const TRIES: u32 = 6;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(500);
/// Between two polls for unfinished work.
const LOOK: Duration = Duration::from_millis(300);
/// Between two small requests.
const BEAT: Duration = Duration::from_millis(200);
/// How long the last responses may take.
const PATIENCE: Duration = Duration::from_mins(2);

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
pub struct Client {
    pub stage: Arc<Stage>,
    pub http: Http,
    pub samples: Samples,
    /// `None`: the one that the balancer picks.
    pub server: Option<usize>,
    pub account: usize,
    /// What its generations are named after.
    pub name: String,
    /// Whether a poll has failed that finds a failed generation.
    pub strict: bool,
}

impl Client {
    /// One thing after the other, with pauses of milliseconds, until the stage is over.
    pub async fn run(self, pauses: Range<u64>) {
        let mut rng = self.stage.args.rng(&self.name);
        for made in 1.. {
            if self.stage.is_over() {
                return;
            }
            let call = Call::draw(&mut rng, &format!("{}-{made}", self.name));
            if let Some(uuid) = self.make(&call).await {
                self.follow(&uuid).await;
            }
            tokio::time::sleep(Duration::from_millis(rng.u64(pauses.clone()))).await;
        }
    }

    /// A text at each tick, whatever happened to those before.
    pub async fn beat(self) {
        let mut texts = JoinSet::new();
        let mut beats = tokio::time::interval(BEAT);
        for made in 1.. {
            beats.tick().await;
            if self.stage.is_over() {
                break;
            }
            let text = text(format!("mk-{}-{made}-end", self.name));
            let client = self.clone();
            texts.spawn(async move { client.make(&text).await });
        }
        texts.join_all().await;
    }

    /// Creates a generation; retries while its outcome is unknown, if it has a key. Returns its id
    /// where it has not ended yet.
    async fn make(&self, call: &Call) -> Option<String> {
        for attempt in 1..=TRIES {
            let (server, token) = self.target();
            let request = call.request(&self.http, server, &token);
            let answer = self.send(server, request, Some(call), attempt == 1);
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
            let (server, token) = self.target();
            let path = format!("/v1/generate/{uuid}");
            let request = self.http.build(server, Method::GET, &path, &token);
            let record = self.send(server, request, None, true).await;
            if record.is_some_and(|r| r["status"] == "completed" || r["status"] == "failed") {
                return;
            }
        }
    }

    /// The server and the key of the next request.
    fn target(&self) -> (usize, String) {
        let server = self.server.unwrap_or_else(|| self.stage.pick());
        (server, self.stage.token(self.account))
    }

    /// Sends it, records the outcome and what was seen; returns the record, if any. `call` is what
    /// it creates.
    async fn send(
        &self,
        server: usize,
        request: RequestBuilder,
        call: Option<&Call>,
        is_first: bool,
    ) -> Option<Value> {
        let begun = Instant::now();
        let answer = self.http.try_send(request).await;
        let makes = call.is_some();
        let failure = match &answer {
            Ok(answer) => failure_of(answer, makes || self.strict),
            Err(error) if error.is_timeout() => Some("no answer in 15 s".to_owned()),
            Err(_) => Some("connection lost".to_owned()),
        };
        self.samples.note(Sample {
            server,
            begun,
            ended: Instant::now(),
            makes,
            is_first,
            failure,
        });
        let record = answer.ok()?.record()?.clone();
        let key = call.and_then(|call| call.key.as_deref());
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

/// Why it failed, if it did; `strict`: a failed generation is a failure.
fn failure_of(answer: &Answer, strict: bool) -> Option<String> {
    let (status, body) = (answer.status, &answer.body);
    let failed = strict && body["status"] == "failed";
    if matches!(status, 200 | 202) && body["uuid"].is_string() && !failed {
        return None;
    }
    let code = body["error"]["code"].as_str().unwrap_or("no record");
    Some(format!("{status} {code}"))
}
