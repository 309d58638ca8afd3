//! POST /v1/generate/{uuid}/cancel for texts that are being streamed: exactly what was delivered is
//! kept and charged.

mod elsewhere;
mod ledger;

use axum::body::{Body, BodyDataStream};
use futures_util::StreamExt as _;
use gensvc::domain::credits::Credits;
use http::Request;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tower::ServiceExt as _;

use crate::common::{Account, Answer, Reply, TestApp, Upstream};

/// The upstream's text, in two halves of 200 bytes, and its token counts.
const HALF: usize = 200;
const COUNTED: (i64, i64) = (10, 77);

/// A stream that is being read.
struct Stream {
    body: BodyDataStream,
    answer: Answer,
}

impl Stream {
    async fn post(app: &TestApp, key: &str, headers: &[(&str, &str)], body: &Value) -> Self {
        let mut request = Request::post("/v1/generate/text")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {key}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_string())).unwrap();
        let response = app.app.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let answer = Answer {
            status: parts.status,
            headers: parts.headers,
            text: String::new(),
            bytes: axum::body::Bytes::new(),
        };
        assert_eq!(answer.status, 200);
        let body = body.into_data_stream();
        let mut stream = Self { body, answer };
        stream.until("generation", 1).await;
        stream
    }

    /// Reads until `n` events of this name have arrived.
    async fn until(&mut self, name: &str, n: usize) {
        let line = format!("event: {name}\n");
        while self.answer.text.matches(&line).count() < n {
            let piece = self.body.next().await.unwrap().unwrap();
            self.answer.text += std::str::from_utf8(&piece).unwrap();
        }
    }

    fn uuid(&self) -> String {
        let (_, first) = &self.answer.events()[0];
        first["uuid"].as_str().unwrap().to_owned()
    }

    /// Reads to the end. Returns the text, and the last event.
    async fn end(mut self) -> (String, (String, Value)) {
        while let Some(piece) = self.body.next().await {
            self.answer.text += std::str::from_utf8(&piece.unwrap()).unwrap();
        }
        let mut events = self.answer.events();
        let last = events.pop().unwrap();
        let deltas = events.iter().filter(|(name, _)| name == "delta");
        let text = deltas.map(|(_, data)| data["text"].as_str().unwrap());
        (text.collect(), last)
    }
}

/// An upstream that sends a text event by event, each when released.
async fn stepwise() -> Upstream {
    let upstream = Upstream::start().await;
    let text = "a".repeat(HALF) + &"b".repeat(HALF);
    upstream.reply(Reply::Stepwise(text, COUNTED.0, COUNTED.1));
    upstream
}

/// The events of the first half.
fn first_half(provider: &str) -> usize {
    // `message_start`, `content_block_start`, the text.
    if provider == "anthropic" { 3 } else { 1 }
}

/// A request of a model that does not reason.
fn ask(provider: &str) -> Value {
    let mut body = json!({"prompt": "Tell me of the sea", "provider": provider, "stream": true,
        "parameters": {"max_tokens": 200}});
    if provider == "gemini" {
        body["model"] = json!("gemini-2.5-flash-lite");
    }
    body
}

async fn cancel(app: &TestApp, account: &Account, uuid: &str) -> Answer {
    let path = format!("/v1/generate/{uuid}/cancel");
    app.post(&account.key, &path, &json!({})).await
}

/// The cost of the usage at the prices of the record.
fn bill(record: &Value) -> String {
    let part = |price: &str, tokens: &str| {
        let price = record["metadata"]["pricing"][price].as_str().unwrap();
        let price: Credits = price.parse().unwrap();
        price.micros() * record["usage"][tokens].as_i64().unwrap()
    };
    let exact = part("input_per_million", "input_tokens");
    let exact = exact + part("output_per_million", "output_tokens");
    Credits::from_micros((exact + 999_999) / 1_000_000).to_string()
}

/// Asserts that a record is a text that was cancelled after its first half.
#[track_caller]
fn assert_first_half(record: &Value) {
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["result"], "a".repeat(HALF));
    assert_eq!(record["metadata"]["finish_reason"], "cancelled");
    assert_eq!(record["metadata"]["attempts"], 1);
    assert_eq!(record["error"], Value::Null);
    assert_eq!(record["credits"]["held"], "0");
    assert_eq!(record["credits"]["charged"], bill(record));
}

#[sqlx::test]
async fn what_was_delivered_is_kept_and_charged(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = stepwise().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1").await;
    let mut left = Credits::from_micros(1_000_000);
    // The 18 bytes of the prompt and the 200 of the text, where the vendor has reported no counts.
    for (n, (provider, input, output, estimated)) in [
        ("openai", 5, 50, true),
        ("anthropic", 10, 50, true),
        ("gemini", 10, 77, false),
    ]
    .into_iter()
    .enumerate()
    {
        let mut stream = Stream::post(&app, &account.key, &[], &ask(provider)).await;
        upstream.send_events(first_half(provider));
        stream.until("delta", 1).await;
        let uuid = stream.uuid();
        let record = cancel(&app, &account, &uuid).await.expect(200);
        assert_first_half(&record);
        let mut usage = json!({"input_tokens": input, "output_tokens": output,
            "total_tokens": input + output});
        if estimated {
            usage["estimated"] = json!(true);
        }
        assert_eq!(record["usage"], usage, "{provider}");
        if provider != "gemini" {
            let id = &record["metadata"]["provider_request_id"];
            assert_eq!(id, "req_up", "{provider}");
        }
        // The stream reports the same and ends, and so does the call upstream.
        let (text, last) = stream.end().await;
        assert_eq!(last, ("completed".to_owned(), record.clone()));
        assert_eq!(record["result"], text);
        upstream.ended(n + 1).await;
        assert_eq!(app.record(&account, &uuid).await, record);
        cancel(&app, &account, &uuid)
            .await
            .error(409, "already_finished");
        let charged: Credits = bill(&record).parse().unwrap();
        assert_ne!(charged, Credits::ZERO);
        left = Credits::from_micros(left.micros() - charged.micros());
        let balance = app.balance(&account).await;
        assert_eq!(balance, (left.to_string(), "0".to_owned()));
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn before_anything_is_delivered_it_is_free(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = stepwise().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1").await;
    // Anthropic has begun its response, but sent no text yet.
    for (n, (provider, events)) in [("openai", 0), ("anthropic", 2), ("gemini", 0)]
        .into_iter()
        .enumerate()
    {
        let stream = Stream::post(&app, &account.key, &[], &ask(provider)).await;
        upstream.arrived(n + 1).await;
        upstream.send_events(events);
        upstream.all_sent().await;
        let record = cancel(&app, &account, &stream.uuid()).await.expect(200);
        assert_eq!(record["status"], "failed", "{record}");
        assert_eq!(record["error"]["code"], "cancelled");
        assert_eq!(record["result"], Value::Null);
        assert_eq!(record["metadata"]["finish_reason"], Value::Null);
        assert_eq!(record["credits"]["charged"], "0");
        assert_eq!(stream.end().await.1, ("failed".to_owned(), record));
        upstream.ended(n + 1).await;
    }
    assert_eq!(app.balance(&account).await.0, "1");
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_caller_that_went_away_pays_for_what_it_got(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = stepwise().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1").await;
    for (n, provider) in ["openai", "anthropic"].into_iter().enumerate() {
        let mut stream = Stream::post(&app, &account.key, &[], &ask(provider)).await;
        upstream.send_events(first_half(provider));
        stream.until("delta", 1).await;
        let uuid = stream.uuid();
        drop(stream);
        // The second half and the vendor's counts: all but the last event.
        upstream.send_events(3);
        upstream.all_sent().await;
        let record = cancel(&app, &account, &uuid).await.expect(200);
        assert_first_half(&record);
        assert_eq!(record["usage"]["output_tokens"], 50);
        upstream.ended(n + 1).await;
    }
    // A caller who got nothing pays nothing.
    let stream = Stream::post(&app, &account.key, &[], &ask("openai")).await;
    let uuid = stream.uuid();
    drop(stream);
    upstream.send_events(2);
    upstream.all_sent().await;
    let record = cancel(&app, &account, &uuid).await.expect(200);
    assert_eq!(record["error"]["code"], "cancelled");
    assert_eq!(record["credits"]["charged"], "0");
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_came_after_the_vendors_count_is_charged_too(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let said = |text: String| json!({"choices": [{"index": 0, "delta": {"content": text}}]});
    let counted = json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 77}});
    // The last one is never released.
    let (first, second) = (said("a".repeat(HALF)), said("b".repeat(HALF)));
    let events = [first, counted, second, said("c".to_owned())];
    let events = events.map(|event| format!("data: {event}\n\n"));
    upstream.reply(Reply::Steps(events.to_vec()));
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1").await;
    let mut body = ask("openai");
    for (max_tokens, at_most) in [(200, false), (1, true)] {
        body["parameters"]["max_tokens"] = json!(max_tokens);
        let mut stream = Stream::post(&app, &account.key, &[], &body).await;
        upstream.send_events(3);
        stream.until("delta", 2).await;
        let record = cancel(&app, &account, &stream.uuid()).await.expect(200);
        assert_eq!(record["result"], "a".repeat(HALF) + &"b".repeat(HALF));
        assert_eq!(
            record["usage"],
            json!({"input_tokens": 10, "output_tokens": 127, "total_tokens": 137, "estimated": true})
        );
        // Never more than was held.
        let charged = if at_most {
            record["credits"]["estimated"].as_str().unwrap().to_owned()
        } else {
            bill(&record)
        };
        assert_eq!(record["credits"]["charged"], charged);
    }
    app.assert_settled().await;
}
