//! The Responses API, without state, on every text provider.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{MODELS, RESPONSES, error, events, record, text_of, with};
use crate::common::{Account, Answer, Reply, TestApp, Upstream};

const COUNT: &str = "/openai/v1/responses/input_tokens";

pub(super) fn asked(model: &str, input: impl Into<Value>) -> Value {
    let input: Value = input.into();
    json!({"model": model, "input": input, "max_output_tokens": 500})
}

pub(super) fn functions() -> Value {
    let schema = json!({"type": "object", "required": ["city"],
        "properties": {"city": {"type": "string"}}});
    let names = ["weather", "time"].into_iter();
    names
        .map(|name| json!({"type": "function", "name": name, "parameters": schema, "strict": true}))
        .collect()
}

/// The text of an answer.
fn text(body: &Value) -> String {
    let items = body["output"].as_array().unwrap().iter();
    let messages = items.filter(|item| item["type"] == "message");
    let texts = messages.map(|item| item["content"][0]["text"].as_str().unwrap());
    texts.collect()
}

pub(super) async fn respond(app: &TestApp, account: &Account, body: &Value) -> Answer {
    app.post(&account.key, RESPONSES, body).await
}

#[sqlx::test]
async fn it_answers_with_every_provider(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.reply(Reply::Text("Hello there.".to_owned(), 10, 3));
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for model in MODELS {
        let answer = respond(&app, &account, &asked(model, json!("Hi"))).await;
        let body = answer.expect(200);
        assert_eq!(
            (&body["object"], &body["status"]),
            (&json!("response"), &json!("completed"))
        );
        assert_eq!(
            (&body["model"], &body["store"]),
            (&json!(model), &json!(false))
        );
        assert_eq!((&body["error"], &body["tools"]), (&Value::Null, &json!([])));
        let usage = &body["usage"];
        let count = |name: &str| usage[name].as_u64().unwrap();
        assert_eq!(
            count("total_tokens"),
            count("input_tokens") + count("output_tokens")
        );
        assert!(usage["output_tokens_details"]["reasoning_tokens"].is_u64());
        let record = record(&app, &account, &answer).await;
        assert_eq!(record["surface"], "openai.responses");
        assert_eq!(
            (&record["prompt"], &record["result"]),
            (&json!("Hi"), &json!(text(&body)))
        );
        let id = body["id"].as_str().unwrap();
        let uuid = record["uuid"].as_str().unwrap().replace('-', "");
        assert_eq!(id, format!("resp_{uuid}"));
        if model != MODELS[0] {
            assert_eq!(text(&body), "Hello there.");
        }
        let streamed = with(asked(model, json!("Hi")), &json!({"stream": true}));
        let streamed = respond(&app, &account, &streamed).await;
        assert_eq!(streamed.header("content-type"), "text/event-stream");
        let events = events(RESPONSES, &streamed.text);
        assert_eq!(text_of(RESPONSES, &events), text(&body));
        assert_eq!(events[0]["type"], "response.created");
        assert_eq!(events.last().unwrap()["type"], "response.completed");
        let counted = app
            .post(
                &account.key,
                &format!("{RESPONSES}/input_tokens"),
                &json!({"model": model, "input": "Hi", "instructions": "Be brief."}),
            )
            .await;
        let counted = counted.expect(200);
        assert_eq!(counted["object"], "response.input_tokens");
        assert!(counted["input_tokens"].as_u64().unwrap() >= 3);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn the_grammar_of_events_holds_with_calls_and_faults(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let tools = json!({"tools": functions(), "stream": true});
    let body = asked(MODELS[0], json!("[[tool:weather]] [[tool:time]]"));
    let streamed = respond(&app, &account, &with(body, &tools)).await;
    let all = events(RESPONSES, &streamed.text);
    let mut open = None;
    for (n, event) in all.iter().enumerate() {
        assert_eq!(event["sequence_number"], n);
        let at = event["output_index"].as_u64();
        match event["type"].as_str().unwrap() {
            "response.output_item.added" => assert_eq!(open.replace(at), None),
            "response.output_item.done" => assert_eq!(open.take(), Some(at)),
            "response.created" | "response.in_progress" | "response.completed" => {
                assert_eq!((open, at), (None, None));
            }
            _ => assert_eq!(open, Some(at), "{event}"),
        }
    }
    let last = &all.last().unwrap()["response"];
    let output = last["output"].as_array().unwrap();
    let calls: Vec<&Value> = output
        .iter()
        .filter(|i| i["type"] == "function_call")
        .collect();
    assert_eq!(calls.len(), 2, "{last}");
    for call in &calls {
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        assert!(arguments["city"].is_string());
    }
    // The next turn, with items by their ids and with the results of the calls.
    let mut input = vec![json!({"role": "user", "content": "[[tool:weather]] [[tool:time]]"})];
    input.extend(
        output
            .iter()
            .map(|item| json!({"type": "item_reference", "id": item["id"]})),
    );
    input.extend(calls.iter().map(|call| {
        json!({"type": "function_call_output", "call_id": call["call_id"], "output": "mild"})
    }));
    let body = with(
        asked(MODELS[0], json!(input)),
        &json!({"tools": functions()}),
    );
    let next = respond(&app, &account, &body).await.expect(200);
    assert!(!text(&next).is_empty(), "{next}");
    // Items of other accounts and items that do not exist are refused.
    let stranger = app.account("10").await;
    let refused = respond(&app, &stranger, &body).await;
    let refused = error(RESPONSES, &refused, 400, "unsupported_parameter");
    assert_eq!(refused["param"], "input[1].id");
    let unknown = json!([{"type": "item_reference", "id": "msg_1_0"}]);
    let refused = respond(&app, &account, &asked(MODELS[0], unknown)).await;
    error(RESPONSES, &refused, 400, "unsupported_parameter");
    // A failure after the first text, and before it.
    let fault = with(
        asked(MODELS[0], json!("[[fail]]")),
        &json!({"stream": true}),
    );
    let failed = respond(&app, &account, &fault).await;
    let last = events(RESPONSES, &failed.text).pop().unwrap();
    assert_eq!(last["type"], "response.failed");
    assert_eq!(last["response"]["error"]["code"], "provider_error");
    let usage = &last["response"]["usage"];
    assert_eq!(usage["input_tokens_details"]["cached_tokens"], 0, "{last}");
    assert_eq!(usage["output_tokens_details"]["reasoning_tokens"], 0);
    let output = &last["response"]["output"][0];
    assert_eq!(output["status"], "incomplete", "{last}");
    assert!(output["content"][0]["text"].is_string());
    let fault = with(
        asked(MODELS[0], json!("[[reject]]")),
        &json!({"stream": true}),
    );
    let failed = respond(&app, &account, &fault).await;
    error(RESPONSES, &failed, 400, "provider_rejected");
    let short = with(
        asked(MODELS[0], json!("Hi")),
        &json!({"max_output_tokens": 2}),
    );
    let short = respond(&app, &account, &short).await.expect(200);
    assert_eq!(short["status"], "incomplete");
    assert_eq!(
        short["incomplete_details"],
        json!({"reason": "max_output_tokens"})
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_is_brought_back_is_bounded(_: PgPoolOptions, options: PgConnectOptions) {
    let env = [("GENSVC__SERVER__MAX_SDK_BODY_BYTES", "65536")];
    let app = TestApp::with(options, &env).await;
    let account = app.account("10").await;
    let long = asked(MODELS[0], json!("x".repeat(2_000)));
    let first = respond(&app, &account, &long).await.expect(200);
    let reference = json!({"type": "item_reference", "id": first["output"][0]["id"]});
    let length = first["output"][0].to_string().len();
    let input = |n: usize| asked(MODELS[0], json!(vec![&reference; n]));
    let fits = 65_536 / length;
    app.post(&account.key, COUNT, &input(fits))
        .await
        .expect(200);
    let refused = app.post(&account.key, COUNT, &input(fits + 1)).await;
    assert_eq!(refused.status, 413, "{}", refused.text);
    let refused = respond(&app, &account, &input(fits + 1)).await;
    assert_eq!(refused.status, 413, "{}", refused.text);
    // As many answers, though there are none of these.
    let strangers = (0..65)
        .map(|n| json!({"type": "reasoning", "id": format!("rs_{n:032x}_0"), "summary": []}));
    let mut input: Vec<Value> = strangers.collect();
    input.push(reference);
    let refused = respond(&app, &account, &asked(MODELS[0], json!(input))).await;
    let refused = error(RESPONSES, &refused, 400, "out_of_range");
    assert_eq!(refused["param"], "input");
}

#[sqlx::test]
async fn structured_answers_follow_the_schema(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let schema = json!({"type": "object", "required": ["river"], "additionalProperties": false,
        "properties": {"river": {"type": "string"}}});
    let format = json!({"type": "json_schema", "name": "rivers", "schema": schema, "strict": true});
    let body = with(
        asked(MODELS[0], json!("A river")),
        &json!({"text": {"format": format}, "max_output_tokens": 500}),
    );
    let body = respond(&app, &account, &body).await.expect(200);
    let answered: Value = serde_json::from_str(&text(&body)).unwrap();
    assert!(answered["river"].is_string(), "{answered}");
    assert_eq!(body["text"]["format"], format);
}

#[sqlx::test]
async fn a_retry_joins_and_a_key_replays(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let body = with(
        asked(MODELS[0], json!("[[tool]]")),
        &json!({"tools": functions(), "stream": true}),
    );
    for (first, again) in [
        (
            ("x-stainless-retry-count", "0"),
            ("x-stainless-retry-count", "1"),
        ),
        (("idempotency-key", "k"), ("idempotency-key", "k")),
    ] {
        let first = app
            .post_with(&account.key, RESPONSES, &[first], &body)
            .await;
        let again = app
            .post_with(&account.key, RESPONSES, &[again], &body)
            .await;
        assert_eq!(again.header("idempotent-replayed"), "true");
        let last =
            |answer: &Answer| events(RESPONSES, &answer.text).pop().unwrap()["response"].clone();
        assert_eq!(last(&first)["output"], last(&again)["output"]);
        assert_eq!(last(&first)["id"], last(&again)["id"]);
    }
    app.assert_settled().await;
}
