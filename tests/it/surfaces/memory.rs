//! What requests keep in memory: bounded in bytes, shared by account, and not longer than needed.

use std::{convert::Infallible, fmt::Write as _, sync::Arc, time::Duration};

use axum::body::{Body, Bytes};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures_util::{StreamExt as _, stream};
use gensvc::request::SpeechFormat;
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::task::{JoinHandle, yield_now};
use tower::ServiceExt as _;

use super::{CHAT, MESSAGES, MODELS, RESPONSES, ROUTES, ask, error, events, record, text_of, with};
use crate::{
    common::{
        Answer, End, Reply, TestApp, Upstream,
        bucket::Bucket,
        vendors::{openai_images, png, speech},
    },
    envelope::raw,
};

const SMALL: (&str, &str) = ("GENSVC__SERVER__MEMORY_MIB", "4");
const COUNT: &str = "/openai/v1/responses/input_tokens";

/// Bytes in use, by the metrics.
async fn used(app: &TestApp) -> u64 {
    let text = app.metrics(&[("host", "localhost")]).await.text;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("gensvc_memory_used_bytes "));
    line.unwrap().parse().unwrap()
}

fn overloaded(path: &str, answer: &Answer) {
    error(path, answer, 503, "overloaded");
    assert!(!answer.header("retry-after").is_empty());
    assert_eq!(answer.header("x-should-retry"), "true");
}

#[sqlx::test]
async fn a_request_beyond_the_budget_is_refused_before_its_hold(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::with(options, &[SMALL]).await;
    let account = app.account("10").await;
    for path in ROUTES {
        let large = ask(MODELS[0], &"a".repeat(2 << 20));
        overloaded(path, &app.post(&account.key, path, &large).await);
        // Many small values take more memory than their text.
        let values = with(ask(MODELS[0], "x"), &json!({"x": vec![0; 100_000]}));
        overloaded(path, &app.post(&account.key, path, &values).await);
        app.post(&account.key, path, &ask(MODELS[0], "x"))
            .await
            .expect(200);
    }
    let input = json!({"model": MODELS[0], "input": "a".repeat(2 << 20)});
    overloaded(COUNT, &app.post(&account.key, COUNT, &input).await);
    assert_eq!(used(&app).await, 0);
    let metrics = app.metrics(&[("host", "localhost")]).await.text;
    assert!(metrics.contains("gensvc_memory_budget_bytes 4194304"));
    assert!(
        metrics.contains("gensvc_memory_refusals_total 5"),
        "{metrics}"
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn an_account_gets_half_of_the_budget(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream_with(options, &upstream, &[SMALL]).await;
    let (busy, other) = (app.account("1000").await, app.account("1000").await);
    upstream.hold();
    let body = ask(MODELS[1], &"a".repeat(600 << 10));
    let key = busy.key.clone();
    let posts: Vec<_> = (0..3).map(|_| app.post(&key, CHAT, &body)).collect();
    let mut posts = posts.into_iter();
    let (first, second, third) = (
        posts.next().unwrap(),
        posts.next().unwrap(),
        posts.next().unwrap(),
    );
    let steps = async {
        upstream.arrived(1).await;
        // The body once, sent as it came.
        let one = used(&app).await;
        assert!((600 << 10..700 << 10).contains(&one), "{one}");
        overloaded(CHAT, &second.await);
        let for_other = ask(MODELS[0], "x");
        app.post(&other.key, CHAT, &for_other).await.expect(200);
        upstream.release(1);
    };
    let (answer, ()) = tokio::join!(first, steps);
    answer.expect(200);
    upstream.release(1);
    third.await.expect(200);
    assert_eq!(used(&app).await, 0);
    app.assert_settled().await;
}

/// Sends a body that never arrives completely.
fn arriving(app: &Arc<TestApp>, key: &str, bytes: usize) -> JoinHandle<Answer> {
    let part = Bytes::from(vec![b' '; bytes]);
    let first = stream::once(async { Ok::<_, Infallible>(part) });
    let body = Body::from_stream(first.chain(stream::pending()));
    let json = [("content-type", "application/json")];
    let request = raw(Method::POST, CHAT, key, &json, body);
    let app = Arc::clone(app);
    tokio::spawn(async move { app.send(request).await })
}

#[sqlx::test]
async fn bodies_that_arrive_share_the_budget(_: PgPoolOptions, options: PgConnectOptions) {
    let app = Arc::new(TestApp::with(options, &[SMALL]).await);
    let (busy, other) = (app.account("10").await, app.account("10").await);
    let arriving = || arriving(&app, &busy.key, 900 << 10);
    let two = [arriving(), arriving()];
    while used(&app).await < 1_800 << 10 {
        yield_now().await;
    }
    overloaded(CHAT, &arriving().await.unwrap());
    let large = ask(MODELS[0], &"a".repeat(300 << 10));
    app.post(&other.key, CHAT, &large).await.expect(200);
    for one in two {
        one.abort();
    }
    while used(&app).await > 0 {
        yield_now().await;
    }
}

/// A cancel has no body, and so needs no memory for one.
#[sqlx::test]
async fn a_cancel_needs_no_memory(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.reply(Reply::Stepwise("abcd".to_owned(), 10, 3));
    let app = Arc::new(TestApp::upstream_with(options, &upstream, &[SMALL]).await);
    let account = app.account("10").await;
    let body = with(ask(MODELS[1], "x"), &json!({"stream": true}));
    let running = app.spawn_post(&account.key, CHAT, &[], body);
    upstream.arrived(1).await;
    let record = app.history(&account).await.remove(0);
    let path = format!("/v1/generate/{}/cancel", record["uuid"].as_str().unwrap());
    // The account's half of the budget, to the last bytes.
    let sizes = (4..20).rev().map(|exponent| 1 << exponent);
    let mut filling = Vec::new();
    for bytes in [512 << 10; 3].into_iter().chain(sizes) {
        let before = used(&app).await;
        let one = arriving(&app, &account.key, bytes);
        for _ in 0..1_000 {
            if one.is_finished() || used(&app).await != before {
                break;
            }
            yield_now().await;
        }
        filling.push(one);
    }
    let small = ask(MODELS[0], "x");
    overloaded(CHAT, &app.post(&account.key, CHAT, &small).await);
    let cancelled = app.call(Method::POST, &account.key, &path, &[], None).await;
    cancelled.expect(200);
    error(CHAT, &running.await.unwrap(), 400, "cancelled");
    for one in filling {
        one.abort();
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_body_is_dropped_when_the_provider_answers(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.reply(Reply::Stepwise("abcd".to_owned(), 10, 3));
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1000").await;
    for model in [MODELS[1], MODELS[2]] {
        for path in ROUTES {
            let text = "a".repeat(1 << 20);
            let body = with(ask(model, &text), &json!({"stream": true}));
            let json = [("content-type", "application/json")];
            let request = raw(
                Method::POST,
                path,
                &account.key,
                &json,
                body.to_string().into(),
            );
            let response = tokio::spawn(app.app.router.clone().oneshot(request));
            upstream.send_events(4);
            let mut body = response
                .await
                .unwrap()
                .unwrap()
                .into_body()
                .into_data_stream();
            body.next().await.unwrap().unwrap();
            assert!(used(&app).await < 1 << 10, "{path} {model}");
            upstream.send_events(10);
            while let Some(piece) = body.next().await {
                piece.unwrap();
            }
        }
    }
    assert_eq!(used(&app).await, 0);
}

/// The text and the images of a body reach each vendor, also where they are sent again.
#[sqlx::test]
async fn large_images_are_sent_whole_to_every_vendor(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1000").await;
    let noise: Vec<u8> = (0..40_000).map(|_| fastrand::u8(..)).collect();
    // After the header decoders ignore what follows the end.
    let files = [png(8, 8).to_vec(), png(16, 8).to_vec()].map(|png| [png, noise.clone()].concat());
    let data = files.map(|file| BASE64_STANDARD.encode(file));
    let chat = data.each_ref().map(|data| {
        json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}})
    });
    let messages = data.each_ref().map(|data| {
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}})
    });
    for (path, content) in [(CHAT, json!(chat)), (MESSAGES, json!(messages))] {
        for model in &MODELS[1..] {
            let before = upstream.count();
            upstream.reply(Reply::Status(429, json!({"error": {"message": "later"}})));
            let mut body = ask(model, "x");
            body["messages"][0]["content"] = content.clone();
            app.post(&account.key, path, &body).await;
            let requests = upstream.requests();
            let sent = &requests[before..];
            assert_eq!(sent.len(), 3, "{path} {model}");
            for request in sent {
                let text = request.body.to_string();
                let length: usize = request.headers["content-length"]
                    .to_str()
                    .unwrap()
                    .parse()
                    .unwrap();
                assert_eq!(length, request.text.len());
                assert!(
                    data.iter().all(|data| text.contains(data)),
                    "{path} {model}"
                );
                assert_eq!(request.body, sent[0].body);
            }
        }
    }
    assert_eq!(used(&app).await, 0);
}

#[sqlx::test]
async fn an_oversized_event_of_a_provider_fails_the_generation(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1000").await;
    let zeros = "0,".repeat(600 << 10);
    let oversized = format!("data: {{\"x\":[{zeros}0],\"choices\":[]}}\n\n");
    let lines = format!("{}\n", "data: 0,\n".repeat(150 << 10));
    for event in [oversized, lines] {
        upstream.reply(Reply::Stream(event.into(), End::Clean));
        let body = with(ask(MODELS[1], "x"), &json!({"stream": true}));
        let answer = app.post(&account.key, CHAT, &body).await;
        error(CHAT, &answer, 502, "provider_error");
    }
    // More values than any answer has.
    let values = format!("{{\"x\":[{}0]}}", "0,".repeat(1_000_000));
    upstream.reply(Reply::Raw(200, "application/json", values));
    let answer = app.post(&account.key, CHAT, &ask(MODELS[1], "x")).await;
    error(CHAT, &answer, 502, "provider_error");
    assert_eq!(app.balance(&account).await.0, "1000");
    app.assert_settled().await;
}

/// A client that reads nothing until the end gets the whole answer, whose record agrees.
#[sqlx::test]
async fn a_slow_reader_gets_the_whole_answer(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1000").await;
    let mut stream = String::new();
    for n in 0..600 {
        let piece = format!("{n:03}é{}", "a".repeat(1_000));
        let event = json!({"id": "c", "choices": [{"index": 0, "delta": {"content": piece}}]});
        write!(stream, "data: {event}\n\n").unwrap();
    }
    let last = json!({"id": "c", "usage": {"prompt_tokens": 10, "completion_tokens": 30},
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    write!(stream, "data: {last}\n\ndata: [DONE]\n\n").unwrap();
    upstream.reply(Reply::Stream(stream.into(), End::Clean));
    let openai = |more: &Value| with(ask(MODELS[1], "x"), &with(json!({"stream": true}), more));
    let responses = json!({"model": MODELS[1], "input": "x", "stream": true});
    for (path, body) in [
        (
            CHAT,
            openai(&json!({"stream_options": {"include_usage": true}})),
        ),
        (MESSAGES, openai(&json!({}))),
        (RESPONSES, responses),
        (
            "/v1/generate/text",
            json!({"provider": "openai", "model": "gpt-6-luna", "prompt": "x", "stream": true}),
        ),
    ] {
        let json = [("content-type", "application/json")];
        let request = raw(
            Method::POST,
            path,
            &account.key,
            &json,
            Body::from(body.to_string()),
        );
        let response = app.app.router.clone().oneshot(request).await.unwrap();
        app.idle().await;
        // Far less than the answer.
        let kept = used(&app).await;
        assert!((1..300 << 10).contains(&kept), "{path} {kept}");
        let answer = Answer::read(response).await;
        let result = if path == "/v1/generate/text" {
            let events = answer.events();
            let (last, pieces) = events.split_last().unwrap();
            assert_eq!(last.0, "completed");
            let pieces = pieces.iter().filter(|(name, _)| name == "delta");
            let text: String = pieces
                .map(|(_, data)| data["text"].as_str().unwrap())
                .collect();
            assert_eq!(last.1["result"], text);
            text
        } else {
            let record = record(&app, &account, &answer).await;
            assert_eq!(record["status"], "completed");
            let text = if path == RESPONSES {
                let events = events(path, &answer.text);
                let deltas = events
                    .iter()
                    .filter(|e| e["type"] == "response.output_text.delta");
                deltas.map(|e| e["delta"].as_str().unwrap()).collect()
            } else {
                text_of(path, &events(path, &answer.text))
            };
            assert_eq!(record["result"], text);
            text
        };
        assert!(
            result.starts_with("000é") && result.len() > 600_000,
            "{path}"
        );
        assert_eq!(used(&app).await, 0, "{path}");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_stream_ends_at_its_accounts_half_of_the_budget(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream_with(options, &upstream, &[SMALL]).await;
    let account = app.account("1000").await;
    let piece =
        json!({"id": "c", "choices": [{"index": 0, "delta": {"content": "a".repeat(1_000)}}]});
    let stream = format!("data: {piece}\n\n").repeat(3_000);
    upstream.reply(Reply::Stream(stream.into(), End::Clean));
    let openai = with(ask(MODELS[1], "x"), &json!({"stream": true}));
    for path in [CHAT, MESSAGES] {
        let answer = app.post(&account.key, path, &openai).await;
        let text = text_of(path, &events(path, &answer.text));
        // Of 2 MiB; a piece takes four times its bytes, and a reservation grows in larger steps.
        assert!((100_000..1 << 20).contains(&text.len()), "{}", text.len());
        let record = record(&app, &account, &answer).await;
        assert_eq!(record["metadata"]["finish_reason"], "length");
        let result = record["result"].as_str().unwrap();
        let end = &answer.text[answer.text.len().saturating_sub(600)..];
        assert!(result == text, "{} {} {end}", result.len(), text.len());
        assert_eq!(used(&app).await, 0, "{path}");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn invalid_fields_are_refused_before_answers_are_read(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let unknown = json!([{"type": "item_reference", "id": format!("msg_{:032x}_0", 1)}]);
    for path in [RESPONSES, COUNT] {
        for (more, param) in [
            (json!({"prompt": vec![0; 1_000]}), "prompt"),
            (json!({"tools": 1}), "tools"),
        ] {
            let body = with(json!({"model": MODELS[0], "input": unknown}), &more);
            let refused = app.post(&account.key, path, &body).await;
            assert_eq!(refused.status, 400, "{}", refused.text);
            assert_eq!(refused.json()["error"]["param"], param, "{}", refused.text);
        }
        let body = json!({"model": MODELS[0], "input": unknown});
        let refused = app.post(&account.key, path, &body).await;
        let refused = error(path, &refused, 400, "unsupported_parameter");
        assert_eq!(refused["param"], "input[0].id");
    }
}

/// The expected file counts before its call; without room the job is retried.
#[sqlx::test]
async fn speech_waits_for_memory(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let file = speech(SpeechFormat::Mp3, "x").await;
    upstream.reply(Reply::File("audio/mpeg", file));
    upstream.hold();
    let app = TestApp::vendors(options, &upstream, &[SMALL]).await;
    let (account, other) = (app.account("100").await, app.account("100").await);
    // A minute of 16 kB per second, twice: half of the budget.
    let body = json!({"prompt": "a".repeat(900), "provider": "elevenlabs"});
    let mut queued = Vec::new();
    for account in [&account, &account, &other] {
        queued.push((account, app.queue(account, "audio", &body).await));
    }
    assert_eq!(app.app.runner.work_step().await.unwrap(), 3);
    upstream.arrived(2).await;
    let retried = async {
        while app.app.runner.running() > 2 {
            yield_now().await;
        }
    };
    let retried = tokio::time::timeout(Duration::from_secs(30), retried).await;
    assert!(retried.is_ok(), "it is submitted");
    assert_eq!(upstream.count(), 2);
    assert!(used(&app).await >= 3_800_000);
    upstream.release(3);
    for (account, uuid) in queued {
        let record = app.until_finished(account, &uuid).await;
        assert_eq!(record["status"], "completed", "{record}");
    }
    assert_eq!(used(&app).await, 0);
    app.assert_settled().await;
}

#[sqlx::test]
async fn images_count_until_they_are_stored(_: PgPoolOptions, options: PgConnectOptions) {
    let (bucket, upstream) = (Bucket::start().await, Upstream::start().await);
    let image = png(1_024, 1_024);
    upstream.reply(openai_images(&[image.clone(), image.clone()]));
    let app = Arc::new(TestApp::vendors(options, &upstream, &bucket.env()).await);
    let account = app.account("100").await;
    let held = bucket.hold().await;
    let body = json!({"prompt": "x", "provider": "openai", "parameters": {"n": 2}});
    let answer = app.spawn_post(&account.key, "/v1/generate/image", &[], body);
    bucket.arrived().await;
    assert!(used(&app).await >= 2 * image.len() as u64);
    drop(held);
    answer.await.unwrap().expect(200);
    assert_eq!(used(&app).await, 0);
    app.assert_settled().await;
}
