//! `n` of a chat: several choices, held for as many times the limit of output.

use axum::body::Bytes;
use gensvc::domain::credits::Credits;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{CHAT, MODELS, ask, error, events, record, with};
use crate::common::{Account, Answer, End, Recorded, Reply, TestApp, Upstream};

/// Called by Chat Completions in most tests: 10 credits a million tokens of input, 50 of output.
const LUNA: &str = MODELS[1];

async fn start(options: PgConnectOptions, upstream: &Upstream) -> (TestApp, Account) {
    let app = TestApp::upstream(options, upstream).await;
    let account = app.account("10").await;
    (app, account)
}

fn asked(n: u32, stream: bool) -> Value {
    let more = json!({"n": n, "stream": stream, "stream_options": {"include_usage": true}});
    with(ask(LUNA, "Choose"), &more)
}

fn call(index: u64, id: &str) -> Value {
    json!({"index": index, "id": id, "type": "function",
        "function": {"name": "f", "arguments": "{\"a\":1}"}})
}

fn usage(output: u64) -> Value {
    json!({"prompt_tokens": 10, "completion_tokens": output, "total_tokens": 10 + output})
}

fn chunk(index: u64, delta: &Value, reason: &Value) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [
        {"index": index, "delta": delta, "finish_reason": reason}]})
}

/// Three interleaved choices: a text, one that ends at the limit, and two calls.
fn chunks() -> Vec<Value> {
    vec![
        chunk(
            1,
            &json!({"role": "assistant", "content": "On"}),
            &Value::Null,
        ),
        chunk(
            0,
            &json!({"role": "assistant", "content": "Ze"}),
            &Value::Null,
        ),
        chunk(2, &json!({"tool_calls": [call(0, "c1")]}), &Value::Null),
        chunk(1, &json!({"content": "e"}), &Value::Null),
        chunk(0, &json!({"content": "ro"}), &json!("stop")),
        chunk(
            2,
            &json!({"tool_calls": [call(1, "c2")]}),
            &json!("tool_calls"),
        ),
        chunk(1, &json!({}), &json!("length")),
        json!({"id": "c", "choices": [], "usage": usage(9)}),
    ]
}

fn streamed(chunks: &[Value]) -> String {
    let chunks = chunks.iter().map(|chunk| format!("data: {chunk}\n\n"));
    chunks.chain(["data: [DONE]\n\n".to_owned()]).collect()
}

fn whole() -> Value {
    let choice = |index: u64, message: Value, reason: &str| json!({"index": index, "message": message, "finish_reason": reason});
    let text = |text: &str| json!({"role": "assistant", "content": text});
    let calls = json!({"role": "assistant", "content": null,
        "tool_calls": [call(0, "c1"), call(1, "c2")]});
    json!({"id": "c", "object": "chat.completion", "model": "m", "usage": usage(9), "choices": [
        choice(2, calls, "tool_calls"), choice(0, text("Zero"), "stop"),
        choice(1, text("One"), "length")]})
}

fn answer(request: &Recorded) -> Reply {
    if request.body["stream"] == true {
        Reply::Raw(200, "text/event-stream", streamed(&chunks()))
    } else {
        Reply::Status(200, whole())
    }
}

/// The choices of an answer, or of the events of a stream: text, names of calls, reason.
fn choices(body: &Value) -> Vec<(String, usize, Value)> {
    let mut found = vec![(String::new(), 0, Value::Null); 3];
    let chunks = body
        .as_array()
        .map_or(std::slice::from_ref(body), Vec::as_slice);
    for choice in chunks
        .iter()
        .flat_map(|chunk| chunk["choices"].as_array().into_iter().flatten())
    {
        let own = &mut found[usize::try_from(choice["index"].as_u64().unwrap()).unwrap()];
        let piece = choice.get("delta").unwrap_or(&choice["message"]);
        own.0 += piece["content"].as_str().unwrap_or_default();
        let calls = piece["tool_calls"].as_array().into_iter().flatten();
        own.1 += calls.filter(|call| call["function"]["name"] == "f").count();
        if !choice["finish_reason"].is_null() {
            own.2 = choice["finish_reason"].clone();
        }
    }
    found
}

fn expected() -> Vec<(String, usize, Value)> {
    vec![
        ("Zero".to_owned(), 0, json!("stop")),
        ("One".to_owned(), 0, json!("length")),
        (String::new(), 2, json!("tool_calls")),
    ]
}

#[sqlx::test]
async fn choices_keep_their_indexes_and_are_charged_once(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    upstream.play(answer);
    for stream in [false, true] {
        let key = [("idempotency-key", if stream { "s" } else { "w" })];
        for replayed in [false, true] {
            let body = asked(3, stream);
            let answer = app.post_with(&account.key, CHAT, &key, &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert_eq!(answer.header("idempotent-replayed") == "true", replayed);
            let body = if stream {
                let events = events(CHAT, &answer.text);
                let usages = events.iter().filter(|event| event["usage"].is_object());
                assert_eq!(usages.count(), 1);
                json!(events)
            } else {
                answer.expect(200)
            };
            assert_eq!(choices(&body), expected(), "{body}");
            let record = record(&app, &account, &answer).await;
            assert_eq!(record["result"], "Zero");
            assert_eq!(record["parameters"]["n"], 3);
            // Bytes of the question, 8 for the message and 64; three times 64 tokens of output.
            let held = Credits::from_micros((6 + 8 + 64) * 25 / 2 + 3 * 64 * 50);
            assert_eq!(record["credits"]["estimated"], held.to_string());
            let charged = Credits::from_micros(10 * 10 + 9 * 50);
            assert_eq!(record["credits"]["charged"], charged.to_string());
        }
    }
    assert_eq!(upstream.count(), 2);
    assert_eq!(upstream.requests()[0].body["n"], 3);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_missing_choice_fails_and_is_free(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let before = app.balance(&account).await;
    let message = json!({"role": "assistant", "content": "x"});
    let choice = |index: u64| json!({"index": index, "message": message, "finish_reason": "stop"});
    let of = |choices: &[Value]| json!({"id": "c", "choices": choices, "usage": usage(3)});
    for body in [
        of(&[choice(0)]),
        of(&[choice(0), choice(1)]),
        of(&[choice(0), choice(0), choice(1)]),
        of(&[choice(0), choice(1), choice(3)]),
    ] {
        upstream.reply(Reply::Status(200, body));
        let answer = app.post(&account.key, CHAT, &asked(3, false)).await;
        error(CHAT, &answer, 502, "provider_error");
    }
    // A choice has no end, or the stream is cut at any point.
    for end in 4..7 {
        let mut chunks = chunks();
        chunks.remove(end);
        upstream.reply(Reply::Raw(200, "text/event-stream", streamed(&chunks)));
        let answer = app.post(&account.key, CHAT, &asked(3, true)).await;
        assert!(answer.text.contains("\"error\""), "{}", answer.text);
    }
    let text = streamed(&chunks()[..7]);
    let end = text.find("data: [DONE]").unwrap();
    for after in (0..end - 1).step_by(7) {
        let ends = [End::Clean, End::Cut][after / 7 % 2];
        let bytes = Bytes::copy_from_slice(&text.as_bytes()[..after]);
        upstream.reply(Reply::Stream(bytes, ends));
        let answer = app.post(&account.key, CHAT, &asked(3, true)).await;
        let is_error = answer.status != 200 || answer.text.contains("\"error\"");
        assert!(is_error, "{after}: {}", answer.text);
    }
    assert_eq!(app.balance(&account).await, before);
    app.assert_settled().await;
}

#[sqlx::test]
async fn a_count_above_the_hold_is_charged_as_the_hold(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    for (output, charged) in [
        (json!(100_000), None),
        (json!(192), Some(10 * 10 + 192 * 50)),
        // Nothing is counted: a token for each four bytes of "x" and its two others.
        (Value::Null, Some(2 * 10 + 50)),
    ] {
        let choices = [0, 1, 2].map(|index| {
            json!({"index": index, "message": {"role": "assistant", "content": "x"},
                "finish_reason": "stop"})
        });
        let usage = match &output {
            Value::Null => Value::Null,
            output => json!({"prompt_tokens": 10, "completion_tokens": output}),
        };
        let body = json!({"id": "c", "choices": choices, "usage": usage});
        upstream.reply(Reply::Status(200, body));
        let answer = app.post(&account.key, CHAT, &asked(3, false)).await;
        answer.expect(200);
        let record = record(&app, &account, &answer).await;
        let credits = &record["credits"];
        match charged {
            Some(micros) => {
                assert_eq!(credits["charged"], Credits::from_micros(micros).to_string());
            }
            None => assert_eq!(credits["charged"], credits["estimated"]),
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn only_one_of_all_refused_choices_is_an_error(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let body = |reasons: [&str; 2]| {
        let choices = [0, 1].map(|at| {
            let is_refused = reasons[at] == "content_filter";
            let content = if is_refused { Value::Null } else { json!("x") };
            json!({"index": at, "message": {"role": "assistant", "content": content},
                "finish_reason": reasons[at]})
        });
        Reply::Status(
            200,
            json!({"id": "c", "choices": choices, "usage": usage(3)}),
        )
    };
    upstream.reply(body(["content_filter", "stop"]));
    let answer = app.post(&account.key, CHAT, &asked(2, false)).await;
    let choices = &answer.expect(200)["choices"];
    assert_eq!(choices[0]["finish_reason"], "content_filter");
    assert_eq!(choices[1]["message"]["content"], "x");
    let before = app.balance(&account).await;
    upstream.reply(body(["content_filter", "content_filter"]));
    let answer = app.post(&account.key, CHAT, &asked(2, false)).await;
    error(CHAT, &answer, 400, "content_policy");
    assert_eq!(app.balance(&account).await, before);
    app.assert_settled().await;
}

#[sqlx::test]
async fn several_choices_are_refused_by_name_elsewhere(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    for model in [MODELS[0], MODELS[2], MODELS[3]] {
        for n in [1, 2] {
            let answer = app
                .post(&account.key, CHAT, &with(ask(model, "x"), &json!({"n": n})))
                .await;
            if n == 1 {
                answer.expect(200);
                continue;
            }
            let refused = error(CHAT, &answer, 400, "unsupported_parameter");
            assert_eq!(refused["param"], "n");
        }
    }
    for n in [0, 9] {
        let answer = app
            .post(&account.key, CHAT, &with(ask(LUNA, "x"), &json!({"n": n})))
            .await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.json()["error"]["param"], "n");
    }
    // Without a limit, the account must be able to pay for it n times.
    let poor = app.account("0.1").await;
    let mut body = with(ask(LUNA, "Choose"), &json!({"n": 4}));
    body.as_object_mut().unwrap().remove("max_tokens");
    upstream.be_lenient();
    upstream.reply(Reply::Status(500, json!({})));
    app.post(&poor.key, CHAT, &body).await;
    let limit = (100_000 - (6 + 8 + 64) * 25 / 2) / 50 / 4;
    let sent = upstream.requests().pop().unwrap().body;
    assert_eq!(sent["max_completion_tokens"], limit);
    app.assert_settled().await;
}

/// A stream of chunks for two choices.
async fn two(app: &TestApp, account: &Account, upstream: &Upstream, chunks: &[Value]) -> Answer {
    let reply = Reply::Raw(200, "text/event-stream", streamed(chunks));
    upstream.reply(reply);
    app.post(&account.key, CHAT, &asked(2, true)).await
}

#[sqlx::test]
async fn a_stream_of_a_server_that_ignores_n_is_charged(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let chunks = [
        chunk(0, &json!({"content": "Zero"}), &json!("stop")),
        json!({"id": "c", "choices": [], "usage": usage(4)}),
    ];
    let answer = two(&app, &account, &upstream, &chunks).await;
    let found = choices(&json!(events(CHAT, &answer.text)));
    assert_eq!(found[0], ("Zero".to_owned(), 0, json!("stop")));
    assert_eq!(found[1], (String::new(), 0, Value::Null));
    let record = record(&app, &account, &answer).await;
    let charged = Credits::from_micros(10 * 10 + 4 * 50);
    assert_eq!(record["credits"]["charged"], charged.to_string());
    // Cut between two choices.
    let bytes = format!("data: {}\n\n", chunks[0]);
    upstream.reply(Reply::Stream(Bytes::from(bytes), End::Clean));
    let answer = app.post(&account.key, CHAT, &asked(2, true)).await;
    assert!(answer.text.contains("\"error\""), "{}", answer.text);
    app.assert_settled().await;
}

#[sqlx::test]
async fn the_reason_of_a_choice_fits_its_calls(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let chunks = [
        chunk(0, &json!({"tool_calls": [call(0, "c1")]}), &json!("stop")),
        chunk(1, &json!({"content": "x"}), &json!("tool_calls")),
        json!({"id": "c", "choices": [], "usage": usage(4)}),
    ];
    let answer = two(&app, &account, &upstream, &chunks).await;
    let found = choices(&json!(events(CHAT, &answer.text)));
    assert_eq!(
        (&found[0].2, &found[1].2),
        (&json!("tool_calls"), &json!("stop"))
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn refused_choices_end_as_one_answer_does(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let filtered = json!("content_filter");
    // Thinking that the caller received is charged.
    let thoughts = [0, 1].map(|at| chunk(at, &json!({"reasoning_content": "Hm"}), &filtered));
    let counts = json!({"id": "c", "choices": [], "usage": usage(4)});
    let chunks = [&thoughts[..], &[counts]].concat();
    let answer = two(&app, &account, &upstream, &chunks).await;
    let seen = record(&app, &account, &answer).await;
    assert_eq!(seen["status"], "completed", "{seen}");
    let charged = Credits::from_micros(10 * 10 + 4 * 50);
    assert_eq!(seen["credits"]["charged"], charged.to_string());
    // A refusal is not the end of its choice.
    let cut = [
        chunk(0, &json!({"refusal": "I "}), &Value::Null),
        chunk(1, &json!({"content": "x"}), &json!("stop")),
    ];
    let answer = two(&app, &account, &upstream, &cut).await;
    assert!(answer.text.contains("\"error\""), "{}", answer.text);
    app.assert_settled().await;
}

#[sqlx::test]
async fn all_pieces_of_a_chunk_are_read(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = start(options, &upstream).await;
    let piece = |index: u64, text: &str| json!({"index": index, "delta": {"content": text}});
    let chunks = [
        json!({"id": "c", "choices": [piece(0, "Ze"), piece(1, "One"), piece(0, "ro")]}),
        chunk(0, &json!({}), &json!("stop")),
        chunk(1, &json!({}), &json!("stop")),
    ];
    let answer = two(&app, &account, &upstream, &chunks).await;
    let found = choices(&json!(events(CHAT, &answer.text)));
    assert_eq!((&*found[0].0, &*found[1].0), ("Zero", "One"));
    app.assert_settled().await;
}
