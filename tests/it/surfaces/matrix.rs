//! The table in docs/sdks.md of what each surface supports with each kind of upstream. This test makes
//! it from real requests; `UPDATE=1` writes it.

use std::fmt::Write as _;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{CHAT, MESSAGES, RESPONSES, with};
use crate::common::{
    Account, Answer, CONFIG_FILE, DEFAULT_APIS, Recorded, Reply, TestApp, Upstream, upstream::text,
    vendors::png,
};

const TEXT: &str = "/v1/generate/text";
const SURFACES: [(&str, &str); 4] = [
    ("chat", CHAT),
    ("Responses", RESPONSES),
    ("Messages", MESSAGES),
    ("`/v1`", TEXT),
];
const UPSTREAMS: [(&str, &str); 6] = [
    ("OpenAI by Responses", "openai/gpt-6-luna"),
    ("OpenAI by chat", "openai/gpt-4.1"),
    ("Anthropic", "anthropic/claude-haiku-5-5"),
    ("Gemini", "gemini/gemini-3.5-flash-lite"),
    ("compatible", "acme/acme-1"),
    ("sandbox", "sandbox/sandbox-text-1"),
];
const FEATURES: [&str; 7] = [
    "text",
    "tools",
    "parallel calls",
    "structured output",
    "images",
    "documents",
    "reasoning, brought back",
];
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/sdks.md");
const DOCUMENT: &str = include_str!("../../../docs/sdks.md");
const MARKS: [&str; 2] = ["<!-- surfaces and upstreams -->\n", "<!-- end -->\n"];
const SIGNATURE: &str = "gAAAA.rs_1";

fn schema() -> Value {
    json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
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

/// Calls of an assistant, and their results.
fn calls(path: &str, ids: &[&str]) -> Vec<Value> {
    let each = |of: fn(&str) -> Value| ids.iter().map(|id| of(id)).collect::<Vec<_>>();
    match path {
        CHAT => {
            let calls = each(|id| {
                json!({"id": id, "type": "function",
                    "function": {"name": "f", "arguments": "{\"a\":1}"}})
            });
            let results = each(|id| json!({"role": "tool", "tool_call_id": id, "content": "1"}));
            let said = json!({"role": "assistant", "content": null, "tool_calls": calls});
            [vec![said], results].concat()
        }
        RESPONSES => {
            let calls = each(|id| {
                json!({"type": "function_call", "call_id": id, "name": "f",
                    "arguments": "{\"a\":1}"})
            });
            [calls, each(result)].concat()
        }
        _ => {
            let calls =
                each(|id| json!({"type": "tool_use", "id": id, "name": "f", "input": {"a": 1}}));
            let results =
                each(|id| json!({"type": "tool_result", "tool_use_id": id, "content": "1"}));
            vec![
                json!({"role": "assistant", "content": calls}),
                user(&json!(results)),
            ]
        }
    }
}

fn result(id: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": "1"})
}

/// A request that uses a feature, except the last one.
fn request(path: &str, model: &str, feature: &str) -> Value {
    let image = BASE64_STANDARD.encode(png(32, 32));
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
        _ => json!("x"),
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

/// An answer with reasoning that only its vendor can read, and a call.
fn thoughtful(request: &Recorded) -> Value {
    let usage = json!({"input_tokens": 9, "output_tokens": 3});
    if request.path.ends_with("/responses") {
        let thought = json!({"id": "rs_1", "type": "reasoning", "encrypted_content": SIGNATURE,
            "summary": []});
        let call = json!({"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "f",
            "arguments": "{\"a\":1}", "status": "completed"});
        return text::response("completed", &[thought, call], &usage);
    }
    if request.path.starts_with("/anthropic") {
        return json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "thinking", "thinking": "hm", "signature": SIGNATURE},
                {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}],
            "stop_reason": "tool_use", "usage": usage});
    }
    if request.path.starts_with("/gemini") {
        let call = json!({"functionCall": {"name": "f", "id": "c1", "args": {"a": 1}},
            "thoughtSignature": SIGNATURE});
        return json!({"candidates": [{"content": {"role": "model", "parts": [call]},
                "finishReason": "STOP", "index": 0}], "responseId": "r",
            "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 3}});
    }
    let message = json!({"role": "assistant", "content": null, "reasoning_content": SIGNATURE,
        "tool_calls": [{"id": "c1", "type": "function",
            "function": {"name": "f", "arguments": "{\"a\":1}"}}]});
    json!({"id": "c", "object": "chat.completion", "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3}})
}

/// The result of a request, as the table shows it.
fn cell(answer: &Answer) -> String {
    if answer.status == 400 {
        return "refused".to_owned();
    }
    assert_eq!(answer.status, 200, "{}", answer.text);
    match answer.header("x-gensvc-left-out") {
        "" => "yes".to_owned(),
        left_out => format!("without `{}`", left_out.replace(", ", "`, `")),
    }
}

/// Whether a vendor gets its reasoning back in the next turn.
async fn round_trip(
    app: &TestApp,
    account: &Account,
    upstream: &Upstream,
    path: &str,
    model: &str,
) -> &'static str {
    upstream.play(|request| Reply::Status(200, thoughtful(request)));
    let question = user(&json!("x"));
    let tools = json!({"tools": tools(path)});
    let body = with(asked(path, model, &json!([question])), &tools);
    let first = app.post(&account.key, path, &body).await.expect(200);
    let mut input = vec![question];
    match path {
        CHAT => {
            input.push(first["choices"][0]["message"].clone());
            input.extend(calls(path, &["c1"]).split_off(1));
        }
        RESPONSES => {
            input.extend(first["output"].as_array().unwrap().clone());
            input.push(result("c1"));
        }
        _ => {
            input.push(json!({"role": "assistant", "content": first["content"]}));
            input.extend(calls(path, &["c1"]).split_off(1));
        }
    }
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
    let mut table = format!("| from | to | {} |\n", FEATURES.join(" | "));
    table += &"|---".repeat(FEATURES.len() + 2);
    table += "|\n";
    for (surface, path) in SURFACES {
        for (to, model) in UPSTREAMS {
            let mut cells = Vec::new();
            for feature in FEATURES {
                if path == TEXT {
                    let (provider, model) = model.split_once('/').unwrap();
                    let body = json!({"provider": provider, "model": model, "prompt": "x"});
                    upstream.reply(Reply::Text("Hi.".to_owned(), 9, 3));
                    for stream in [false, true].into_iter().filter(|_| feature == "text") {
                        let body = with(body.clone(), &json!({ "stream": stream }));
                        assert_eq!(app.text(&account.key, body).await.status, 200);
                    }
                    cells.push(if feature == "text" { "yes" } else { "" }.to_owned());
                    continue;
                }
                if feature == FEATURES[6] {
                    let cell = if model.starts_with("sandbox") {
                        ""
                    } else {
                        round_trip(&app, &account, &upstream, path, model).await
                    };
                    cells.push(cell.to_owned());
                    continue;
                }
                upstream.play(|request| {
                    let ends = ["/count_tokens", "/input_tokens", ":countTokens"];
                    if ends.iter().any(|end| request.path.ends_with(end)) {
                        return Reply::Status(200, json!({"input_tokens": 9, "totalTokens": 9}));
                    }
                    Reply::Text("{\"a\":1}".to_owned(), 9, 3)
                });
                let body = request(path, model, feature);
                let plain = app.post(&account.key, path, &body).await;
                let body = with(body, &json!({"stream": true}));
                let streamed = app.post(&account.key, path, &body).await;
                assert_eq!(cell(&plain), cell(&streamed), "{path} {model} {feature}");
                cells.push(cell(&plain));
            }
            writeln!(table, "| {surface} | {to} | {} |", cells.join(" | ")).unwrap();
        }
    }
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
