//! Generated streams of every dialect: any order of text, thinking, calls, counts and ends, cut or
//! cancelled anywhere. Whatever was delivered is charged, unless the upstream broke down, and the
//! caller's last event agrees with the record.

mod expected;
mod wire;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::body::{Body, BodyDataStream};
use futures_util::StreamExt as _;
use gensvc::domain::{credits::Credits, ids::GenerationId};
use http::Method;
use proptest::{collection::vec, prelude::*};
use serde_json::Value;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::sync::Mutex;
use tower::ServiceExt as _;
use uuid::Uuid;

use super::{Size, check};
use crate::{
    common::{Account, Reply, TestApp, Upstream},
    envelope::raw,
};
use expected::{End, Ended, Expected};
use wire::{Ask, Event};

const PATIENCE: Duration = Duration::from_mins(2);

/// One stream: what is asked, what the vendor sends, and after how many of its events the caller
/// cancels.
#[derive(Debug, Clone)]
struct Case {
    ask: Ask,
    events: Vec<Event>,
    end: End,
    cancel: Option<prop::sample::Index>,
}

fn case() -> impl Strategy<Value = Case> {
    let end = prop_oneof![4 => Just(End::Whole), 1 => Just(End::Clean), 1 => Just(End::Cut)];
    let cancel = proptest::option::of(any::<prop::sample::Index>());
    (Ask::any(), vec(Event::any(), 0..10), end, cancel).prop_map(|(ask, events, end, cancel)| {
        let known = |event: &Event| ask.knows(event);
        Case {
            events: events.into_iter().filter(known).collect(),
            ask,
            end,
            cancel,
        }
    })
}

/// The caller's side of a stream.
struct Caller {
    answer: tokio::task::JoinHandle<axum::response::Response>,
    body: Option<BodyDataStream>,
    text: String,
}

impl Caller {
    fn new(app: &TestApp, account: &Account, ask: &Ask) -> Self {
        let json = [("content-type", "application/json")];
        let body = Body::from(ask.body().to_string());
        let request = raw(Method::POST, ask.path(), &account.key, &json, body);
        let answering = app.app.router.clone().oneshot(request);
        Self {
            answer: tokio::spawn(async { answering.await.unwrap() }),
            body: None,
            text: String::new(),
        }
    }

    /// The next bytes; `false` at the end.
    async fn next(&mut self) -> bool {
        if self.body.is_none() {
            let answer = (&mut self.answer).await.unwrap();
            self.body = Some(answer.into_body().into_data_stream());
        }
        let Some(piece) = self.body.as_mut().unwrap().next().await else {
            return false;
        };
        self.text += std::str::from_utf8(&piece.unwrap()).unwrap();
        true
    }

    async fn until(&mut self, marker: &str) {
        while !self.text.contains(marker) {
            assert!(self.next().await, "no {marker}: {}", self.text);
        }
    }
}

struct Stage {
    app: TestApp,
    upstream: Upstream,
    account: Account,
    /// Requests so far, and how often each end was seen.
    seen: Mutex<(usize, BTreeMap<String, usize>)>,
}

impl Stage {
    async fn play(&self, case: &Case) {
        let mut seen = self.seen.lock().await;
        seen.0 += 1;
        self.upstream.take_events_back();
        let mut sent = case.ask.render(&case.events);
        sent.extend(case.ask.last(case.end));
        self.upstream.reply(Reply::Steps(sent.clone()));
        let mut caller = Caller::new(&self.app, &self.account, &case.ask);
        self.upstream.arrived(seen.0).await;
        let id = self.running().await;
        let mut expected = Expected::new(&case.ask);
        let at = case.cancel.map(|at| at.index(case.events.len() + 1));
        let before = at.unwrap_or(case.events.len());
        // Which of the last invisible events were read by the time of the cancel is not known.
        let mut states = Vec::new();
        for (n, event) in case.events[..before].iter().enumerate() {
            if expected.ended.is_none() {
                expected.read(n, event);
                if expected.is_visible(event) {
                    states.clear();
                }
                states.push(expected.clone());
            }
        }
        let last_seen = case.events[..before]
            .iter()
            .rposition(|e| expected.is_visible(e));
        let mut is_cancelled = false;
        if at.is_some() {
            self.upstream.send_events(before + case.ask.opening());
            if expected.ended.is_some() {
                self.app.idle().await;
            } else {
                if let Some(last_seen) = last_seen {
                    let marker = case.events[last_seen].marker(last_seen);
                    caller.until(&marker).await;
                }
                let (account, id) = (self.account.id, GenerationId(id));
                is_cancelled = self.app.store.request_cancel(account, id).await.unwrap();
                assert!(is_cancelled, "{case:?}");
                self.app.app.runner.sweep_step().await.unwrap();
            }
        }
        self.upstream.send_events(sent.len());
        while caller.next().await {}
        self.app.idle().await;
        let ends = expected.ends(case, &states, is_cancelled, before);
        let record = self.app.record(&self.account, &id.to_string()).await;
        check_record(case, &record, &ends);
        case.ask.check_last(&caller.text, &record);
        let end = format!(
            "{} {}",
            record["status"], record["metadata"]["finish_reason"]
        );
        *seen.1.entry(end).or_default() += 1;
    }

    async fn running(&self) -> Uuid {
        sqlx::query_scalar("select id from running_generations")
            .fetch_one(&self.app.pool)
            .await
            .unwrap()
    }
}

/// One of `ends` is what the record says, with the charge that its counts give.
#[track_caller]
fn check_record(case: &Case, record: &Value, ends: &[Ended]) {
    let amount = |name: &str| -> Credits {
        let text = record["credits"][name].as_str().unwrap();
        text.parse().unwrap()
    };
    let (charged, hold) = (amount("charged"), amount("estimated"));
    assert!(charged <= hold, "{case:?} {record}");
    let price = |name: &str| -> i64 {
        let price = record["metadata"]["pricing"][name].as_str().unwrap();
        price.parse::<Credits>().unwrap().micros()
    };
    let (input, output) = (price("input_per_million"), price("output_per_million"));
    let is_it = |end: &Ended| match end {
        Ended::Failed(codes) => {
            let code = record["error"]["code"].as_str();
            code.is_some_and(|code| codes.contains(&code)) && charged == Credits::ZERO
        }
        Ended::Completed {
            reason,
            input: tokens_in,
            output: tokens_out,
        } => {
            let exact = tokens_in * input + tokens_out * output;
            let exact = Credits::from_micros((exact + 999_999) / 1_000_000);
            record["metadata"]["finish_reason"].as_str() == *reason
                && record["status"] == "completed"
                && charged == exact.min(hold)
                && charged > Credits::ZERO
        }
    };
    assert!(ends.iter().any(is_it), "{case:?}\n{ends:?}\n{record}");
}

#[sqlx::test]
async fn what_is_delivered_is_charged(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1000000").await;
    let stage = Arc::new(Stage {
        app,
        upstream,
        account,
        seen: Mutex::default(),
    });
    let last = Arc::clone(&stage);
    let size = Size {
        small: 100,
        cost: 20,
    };
    check(size, case(), move |case| {
        let stage = Arc::clone(&stage);
        async move {
            let playing = tokio::time::timeout(PATIENCE, stage.play(&case));
            assert!(playing.await.is_ok(), "it hangs: {case:?}");
        }
    })
    .await;
    last.app.assert_settled().await;
    // Otherwise little was tested.
    let seen = last.seen.lock().await;
    for end in [
        "\"completed\" null",
        "\"completed\" \"cancelled\"",
        "\"failed\" null",
    ] {
        assert!(seen.1.contains_key(end), "{:?}", seen.1);
    }
}
