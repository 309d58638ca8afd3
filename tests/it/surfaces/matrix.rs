//! Checks the table in docs/sdks.md of the features that a surface does not fully support with a kind
//! of upstream, by sending real requests. `UPDATE=1` writes the table.

use std::fmt::Write as _;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{CHAT, MESSAGES, RESPONSES, error, events, with};
use crate::common::{
    Account, Answer, CONFIG_FILE, DEFAULT_APIS, Recorded, Reply, TestApp, Upstream, upstream::text,
    vendors::png,
};

const TEXT: &str = "/v1/generate/text";
const SURFACES: [(&str, &str); 4] = [
    ("Chat Completions", CHAT),
    ("Responses", RESPONSES),
    ("Messages", MESSAGES),
    ("`/v1`", TEXT),
];
const UPSTREAMS: [(&str, &str); 6] = [
    ("OpenAI through Responses", "openai/gpt-6-luna"),
    ("OpenAI through Chat Completions", "openai/gpt-4.1"),
    ("Anthropic", "anthropic/claude-haiku-5-5"),
    ("Gemini", "gemini/gemini-3.5-flash-lite"),
    ("compatible servers", "acme/acme-1"),
    ("the sandbox", "sandbox/sandbox-text-1"),
];
const FEATURES: [&str; 7] = [
    "text",
    "tools",
    "parallel calls",
    "structured output",
    "images",
    "documents",
    "reasoning sent back",
];
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/sdks.md");
const DOCUMENT: &str = include_str!("../../../docs/sdks.md");
const MARKS: [&str; 2] = ["<!-- surfaces and upstreams -->\n", "<!-- end -->\n"];
const HEADER: &str = "| feature | from | to | result |\n|---|---|---|---|\n";
const SIGNATURE: &str = "gAAAA.rs_1";

fn schema() -> Value {
    json!({"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"],
        "additionalProperties": false})
}

fn asked(path: &str, model: &str, input: &Value) -> Value {
    match path {
        RESPONSES => json!({"model": model, "max_output_tokens": 64, "input": input,
            "include": ["reasoning.encrypted_content"]}),
        _ => json!({"model": model, "max_tokens": 64, "messages": input}),
    }
}

fn tools(path: &str) -> Value {
    json!([match path {
        CHAT => json!({"type": "function", "function": {"name": "f", "parameters": schema()}}),
        RESPONSES => json!({"type": "function", "name": "f", "parameters": schema(),
            "strict": false}),
        _ => json!({"name": "f", "input_schema": schema()}),
    }])
}

fn user(content: &Value) -> Value {
    json!({"role": "user", "content": content})
}

/// Tool calls of an assistant, and their results.
fn calls(path: &str, ids: &[&str]) -> Vec<Value> {
    let each = |of: fn(&str) -> Value| ids.iter().map(|id| of(id)).collect::<Vec<_>>();
    match path {
        CHAT => {
            let calls = each(|id| {
                json!({"id": id, "type": "function",
                    "function": {"name": "f", "arguments": "{\"amount\":1}"}})
            });
            let results =
                each(|id| json!({"role": "tool", "tool_call_id": id, "content": of_call(id)}));
            let said = json!({"role": "assistant", "content": null, "tool_calls": calls});
            [vec![said], results].concat()
        }
        RESPONSES => {
            let calls = each(|id| {
                json!({"type": "function_call", "call_id": id, "name": "f",
                    "arguments": "{\"amount\":1}"})
            });
            [calls, each(result)].concat()
        }
        _ => {
            let calls = each(
                |id| json!({"type": "tool_use", "id": id, "name": "f", "input": {"amount": 1}}),
            );
            let results = each(
                |id| json!({"type": "tool_result", "tool_use_id": id, "content": of_call(id)}),
            );
            vec![
                json!({"role": "assistant", "content": calls}),
                user(&json!(results)),
            ]
        }
    }
}

fn result(id: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": of_call(id)})
}

fn of_call(id: &str) -> String {
    format!("result of {id}")
}

fn image() -> String {
    BASE64_STANDARD.encode(png(32, 32))
}

/// Strings that the provider's request contains if it uses the feature.
fn proofs(feature: &str) -> Vec<String> {
    match feature {
        "text" => vec!["Tell it.".to_owned()],
        "parallel calls" => ["c1", "c2"].map(of_call).into(),
        "images" => vec![image()],
        "documents" => vec!["JVBERi0x".to_owned()],
        // In the schema.
        _ => vec!["\"amount\"".to_owned()],
    }
}

#[track_caller]
fn assert_sent(upstream: &Upstream, feature: &str) {
    let sent = upstream.requests().pop().unwrap().text;
    for proof in proofs(feature) {
        assert!(sent.contains(&proof), "{feature}: {sent}");
    }
}

/// A request that uses a feature, other than the last one.
fn request(path: &str, model: &str, feature: &str) -> Value {
    let image = image();
    let url = format!("data:image/png;base64,{image}");
    let pdf = BASE64_STANDARD.encode("%PDF-1.7\n");
    let file = format!("data:application/pdf;base64,{pdf}");
    let content = match (feature, path) {
        ("images", CHAT) => json!([{"type": "image_url", "image_url": {"url": url}}]),
        ("images", RESPONSES) => json!([{"type": "input_image", "image_url": url}]),
        ("images", _) => json!([{"type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": image}}]),
        ("documents", CHAT) => json!([{"type": "file",
            "file": {"filename": "a.pdf", "file_data": file}}]),
        ("documents", RESPONSES) => json!([{"type": "input_file", "filename": "a.pdf",
            "file_data": file}]),
        ("documents", _) => json!([{"type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": pdf}}]),
        _ => json!("Tell it."),
    };
    let mut input = vec![user(&content)];
    if feature == "parallel calls" {
        input.extend(calls(path, &["c1", "c2"]));
    }
    let mut body = asked(path, model, &json!(input));
    if ["tools", "parallel calls"].contains(&feature) {
        body["tools"] = tools(path);
    }
    if feature == "structured output" {
        let (schema, name) = (schema(), "n");
        match path {
            CHAT => {
                body["response_format"] = json!({"type": "json_schema",
                    "json_schema": {"name": name, "schema": schema, "strict": true}});
            }
            RESPONSES => {
                body["text"] = json!({"format": {"type": "json_schema", "name": name,
                    "schema": schema, "strict": true}});
            }
            _ => {
                body["output_config"] =
                    json!({"format": {"type": "json_schema", "schema": schema}});
            }
        }
    }
    body
}

/// An answer with a call, and reasoning that only its vendor can read.
fn thoughtful(request: &Recorded) -> Value {
    let usage = json!({"input_tokens": 9, "output_tokens": 3});
    if request.path.ends_with("/responses") {
        let thought = json!({"id": "rs_1", "type": "reasoning", "encrypted_content": SIGNATURE,
            "summary": []});
        let call = json!({"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "f",
            "arguments": "{\"amount\":1}", "status": "completed"});
        return text::response("completed", &[thought, call], &usage);
    }
    if request.path.starts_with("/anthropic") {
        return json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "thinking", "thinking": "hm", "signature": SIGNATURE},
                {"type": "tool_use", "id": "c1", "name": "f", "input": {"amount": 1}}],
            "stop_reason": "tool_use", "usage": usage});
    }
    if request.path.starts_with("/gemini") {
        let call = json!({"functionCall": {"name": "f", "id": "c1", "args": {"amount": 1}},
            "thoughtSignature": SIGNATURE});
        return json!({"candidates": [{"content": {"role": "model", "parts": [call]},
                "finishReason": "STOP", "index": 0}], "responseId": "r",
            "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 3}});
    }
    let message = json!({"role": "assistant", "content": null, "reasoning_content": SIGNATURE,
        "tool_calls": [{"id": "c1", "type": "function",
            "function": {"name": "f", "arguments": "{\"amount\":1}"}}]});
    json!({"id": "c", "object": "chat.completion", "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3}})
}

/// The result of a request, as the table shows it, or `yes`.
fn cell(path: &str, answer: &Answer) -> String {
    if answer.status == 400 {
        error(path, answer, 400, "unsupported_parameter");
        return "refused".to_owned();
    }
    assert_eq!(answer.status, 200, "{}", answer.text);
    match answer.header("x-gensvc-left-out") {
        "" => "yes".to_owned(),
        left_out => format!("`{}` left out", left_out.replace(", ", "`, `")),
    }
}

/// Feature, surfaces, upstreams and result.
type Row = [Vec<String>; 4];

/// Joins rows that differ only in one column.
fn join_rows(rows: Vec<Row>, column: usize) -> Vec<Row> {
    let mut joined: Vec<Row> = Vec::new();
    for row in rows {
        let is_like =
            |other: &&mut Row| (0..row.len()).all(|at| at == column || other[at] == row[at]);
        match joined.iter_mut().find(is_like) {
            Some(other) => other[column].extend_from_slice(&row[column]),
            None => joined.push(row),
        }
    }
    joined
}

/// Writes the table of results other than `yes`, ordered by feature.
fn write_table(rows: Vec<Row>) -> String {
    let mut rows = [1, 2, 0].into_iter().fold(rows, join_rows);
    rows.sort_by_key(|row| FEATURES.iter().position(|feature| *feature == row[0][0]));
    let mut table = HEADER.to_owned();
    for row in rows {
        let cells = row.map(|cell| cell.join(", "));
        writeln!(table, "| {} |", cells.join(" | ")).unwrap();
    }
    table
}

/// The assistant's message, or the output items, of an answer.
fn answered(path: &str, answer: &Answer, is_stream: bool) -> Vec<Value> {
    if !is_stream {
        let body = answer.expect(200);
        return match path {
            CHAT => vec![body["choices"][0]["message"].clone()],
            RESPONSES => body["output"].as_array().unwrap().clone(),
            _ => vec![json!({"role": "assistant", "content": body["content"]})],
        };
    }
    let events = events(path, &answer.text);
    match path {
        CHAT => {
            let mut message = json!({"role": "assistant", "content": null});
            for event in events.iter().filter(|event| event.is_object()) {
                let delta = event["choices"][0]["delta"].as_object();
                for (name, value) in delta.into_iter().flatten() {
                    match value {
                        Value::String(text) if name != "role" => {
                            let before = message[name].as_str().unwrap_or_default();
                            message[name] = json!(format!("{before}{text}"));
                        }
                        Value::Array(calls) => {
                            for call in calls {
                                if call.get("id").is_some() {
                                    let before = message[name].as_array();
                                    let before = before.cloned().unwrap_or_default();
                                    let mut call = call.clone();
                                    call.as_object_mut().unwrap().remove("index");
                                    message[name] = json!([before, vec![call]].concat());
                                } else {
                                    let more = call["function"]["arguments"].as_str().unwrap();
                                    let list = message[name].as_array_mut().unwrap();
                                    let all =
                                        &mut list.last_mut().unwrap()["function"]["arguments"];
                                    *all = json!(format!("{}{more}", all.as_str().unwrap()));
                                }
                            }
                        }
                        _ => {}
                    }
                }
            }
            vec![message]
        }
        RESPONSES => {
            let last = events.last().unwrap();
            last["response"]["output"].as_array().unwrap().clone()
        }
        _ => {
            let mut blocks: Vec<Value> = Vec::new();
            for event in &events {
                if let Some(block) = event.get("content_block") {
                    blocks.push(block.clone());
                }
                let Some(block) = blocks.last_mut() else {
                    continue;
                };
                let delta = &event["delta"];
                for name in ["text", "thinking", "signature"] {
                    if let Some(more) = delta[name].as_str() {
                        block[name] = json!(format!("{}{more}", block[name].as_str().unwrap()));
                    }
                }
                // The arguments come in one piece.
                if let Some(json) = delta["partial_json"]
                    .as_str()
                    .filter(|json| !json.is_empty())
                {
                    block["input"] = serde_json::from_str(json).unwrap();
                }
            }
            vec![json!({"role": "assistant", "content": blocks})]
        }
    }
}

/// Whether a vendor gets its reasoning back in the next turn.
async fn round_trip(
    app: &TestApp,
    account: &Account,
    upstream: &Upstream,
    path: &str,
    model: &str,
    is_stream: bool,
) -> &'static str {
    upstream.play(|request| Reply::Status(200, thoughtful(request)));
    let question = user(&json!("x"));
    let tools = json!({"tools": tools(path)});
    let body = with(asked(path, model, &json!([question])), &tools);
    let body = with(body, &json!({ "stream": is_stream }));
    let first = app.post(&account.key, path, &body).await;
    assert_eq!(first.status, 200, "{}", first.text);
    let mut input = vec![question];
    input.extend(answered(path, &first, is_stream));
    input.extend(calls(path, &["c1"]).split_off(1));
    let body = with(asked(path, model, &json!(input)), &tools);
    app.post(&account.key, path, &body).await.expect(200);
    let sent = upstream.requests().pop().unwrap().text;
    if sent.contains(SIGNATURE) {
        "yes"
    } else {
        "no"
    }
}

#[sqlx::test]
async fn the_page_shows_what_each_pair_loses(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let file = format!(
        "[providers.acme]\nkind = \"openai_compatible\"\nbase_url = \"{}/acme/v1\"\n\
         [[providers.acme.models]]\nid = \"acme-1\"\ntype = \"text\"\n\
         prices = {{ input_per_million = \"100\", output_per_million = \"1000\" }}\n\
         limits.images = {{ kind = \"flat\", tokens = 1000 }}\n",
        upstream.url()
    );
    let path = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let path = path.join(uuid::Uuid::now_v7().to_string());
    std::fs::write(&path, file).unwrap();
    let env = [(CONFIG_FILE, path.to_str().unwrap()), (DEFAULT_APIS, "1")];
    let app = TestApp::upstream_with(options, &upstream, &env).await;
    std::fs::remove_file(path).unwrap();
    let account = app.account("1000").await;
    let mut rows = Vec::new();
    for (surface, path) in SURFACES {
        for (to, model) in UPSTREAMS {
            if path == TEXT {
                let (provider, model) = model.split_once('/').unwrap();
                let body = json!({"provider": provider, "model": model, "prompt": "Tell it."});
                upstream.reply(Reply::Text("Hi.".to_owned(), 9, 3));
                for stream in [false, true] {
                    let body = with(body.clone(), &json!({ "stream": stream }));
                    assert_eq!(app.text(&account.key, body).await.status, 200);
                    if provider != "sandbox" {
                        assert_sent(&upstream, "text");
                    }
                }
                continue;
            }
            for feature in FEATURES {
                let result = if feature == FEATURES[6] {
                    if model.starts_with("sandbox") {
                        continue;
                    }
                    let trip =
                        |is_stream| round_trip(&app, &account, &upstream, path, model, is_stream);
                    let result = trip(false).await;
                    assert_eq!(trip(true).await, result, "{path} {model}");
                    result.to_owned()
                } else {
                    upstream.play(|request| {
                        let ends = ["/count_tokens", "/input_tokens", ":countTokens"];
                        if ends.iter().any(|end| request.path.ends_with(end)) {
                            return Reply::Status(
                                200,
                                json!({"input_tokens": 9, "totalTokens": 9}),
                            );
                        }
                        Reply::Text("{\"amount\":1}".to_owned(), 9, 3)
                    });
                    let body = request(path, model, feature);
                    let mut both = Vec::new();
                    for stream in [false, true] {
                        let body = with(body.clone(), &json!({ "stream": stream }));
                        let answer = app.post(&account.key, path, &body).await;
                        if answer.status == 200 && !model.starts_with("sandbox") {
                            assert_sent(&upstream, feature);
                        }
                        both.push(cell(path, &answer));
                    }
                    assert_eq!(both[0], both[1], "{path} {model} {feature}");
                    both.remove(0)
                };
                if result != "yes" {
                    rows.push([feature, surface, to, &result].map(|cell| vec![cell.to_owned()]));
                }
            }
        }
    }
    let table = write_table(rows);
    app.assert_settled().await;
    let shown = format!("{}{table}{}", MARKS[0], MARKS[1]);
    if std::env::var_os("UPDATE").is_some() {
        let (before, rest) = DOCUMENT.split_once(MARKS[0]).unwrap();
        let (_, after) = rest.split_once(MARKS[1]).unwrap();
        std::fs::write(PAGE, format!("{before}{shown}{after}")).unwrap();
        return;
    }
    assert!(
        DOCUMENT.contains(&shown),
        "docs/sdks.md is not current: run this test with UPDATE=1. It must show:\n{table}"
    );
}
