//! Null is absent: for each optional field of each surface, as the document lists them.

use serde_json::{Map, Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{CHAT, MESSAGES, MODELS, RESPONSES, ask, with};
use crate::common::{TestApp, Upstream};

/// Fields that the packages know and the document does not.
const OTHERS: [&str; 12] = [
    "seed",
    "logit_bias",
    "verbosity",
    "audio",
    "prediction",
    "top_k",
    "container",
    "mcp_servers",
    "prompt",
    "max_tool_calls",
    "functions",
    "something_new",
];

fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => document.pointer(&reference[1..]).unwrap(),
        None => schema,
    }
}

/// The variants of a schema that describe an object.
fn objects<'a>(document: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let schema = resolve(document, schema);
    let variants = ["oneOf", "anyOf", "allOf"].iter();
    let variants = variants
        .filter_map(|name| schema[name].as_array())
        .flatten();
    let within = variants.flat_map(|variant| objects(document, variant));
    let own = schema["properties"].is_object().then_some(schema);
    own.into_iter().chain(within).collect()
}

/// `value` with null in one optional field, at any depth, once for each.
fn with_nulls(document: &Value, schema: &Value, value: &Value, add: &mut dyn FnMut(Value)) {
    if let Value::Array(items) = value {
        let schema = resolve(document, schema);
        let variants = schema["oneOf"].as_array().into_iter().flatten();
        let lists = variants.chain([schema]).map(|list| resolve(document, list));
        for list in lists.filter(|list| list["items"].is_object()) {
            for (at, item) in items.iter().enumerate() {
                with_nulls(document, &list["items"], item, &mut |changed| {
                    let mut items = items.clone();
                    items[at] = changed;
                    add(json!(items));
                });
            }
        }
        return;
    }
    let Value::Object(members) = value else {
        return;
    };
    for schema in objects(document, schema) {
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        for (name, of_member) in schema["properties"].as_object().unwrap() {
            let changed = |new: Value| {
                let mut members: Map<String, Value> = members.clone();
                members.insert(name.clone(), new);
                Value::Object(members)
            };
            if !members.contains_key(name) && !required.contains(&name.as_str()) {
                add(changed(Value::Null));
            }
            if let Some(member) = members.get(name) {
                with_nulls(document, of_member, member, &mut |new| add(changed(new)));
            }
        }
    }
}

#[sqlx::test]
async fn null_is_absent_in_every_optional_field(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    // Bodies of the vendor's own dialect go with the nulls within their members.
    upstream.be_lenient();
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1000").await;
    let document = app.get("", "/openapi.json").await.expect(200);
    let function =
        json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}});
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let chat = with(
        ask("", "x"),
        &json!({"tools": [function], "stream_options": {},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        "messages": [{"role": "system", "content": [{"type": "text", "text": "x"}]},
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
            {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "1"}]}),
    );
    let tool_use = json!([{"type": "tool_use", "id": "c", "name": "f", "input": {}}]);
    let result = json!([{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "1"}]}]);
    let messages = with(
        ask("", "x"),
        &json!({"tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto"}, "thinking": {"type": "adaptive"}, "output_config": {},
        "system": [{"type": "text", "text": "x"}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]},
            {"role": "assistant", "content": tool_use}, {"role": "user", "content": result}]}),
    );
    let responses = json!({"model": "", "max_output_tokens": 64, "reasoning": {}, "stream_options": {},
        "tools": [{"type": "function", "name": "f"}], "text": {"format": {"type": "text"}},
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "1"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}]}]});
    for (path, schema, body) in [
        (CHAT, "ChatCompletionRequest", chat),
        (MESSAGES, "MessagesRequest", messages),
        (RESPONSES, "ResponsesRequest", responses),
    ] {
        let schema = &document["components"]["schemas"][schema];
        let mut bodies = Vec::new();
        with_nulls(&document, schema, &body, &mut |body| bodies.push(body));
        assert!(bodies.len() > 30, "{path}: {}", bodies.len());
        let other = |name: &&str| with(body.clone(), &json!({ *name: null }));
        bodies.extend(OTHERS.iter().map(other));
        for (at, mut body) in bodies.into_iter().enumerate() {
            // One model of another dialect, and now and then one of the same.
            for model in [MODELS[2], MODELS[1], MODELS[3]]
                .iter()
                .take(if at % 7 == 0 { 3 } else { 1 })
            {
                body["model"] = json!(model);
                let answer = app.post(&account.key, path, &body).await;
                assert_eq!(answer.status, 200, "{path} {body} {}", answer.text);
                let sent = upstream.requests().pop().unwrap().body;
                let mut members = sent.as_object().unwrap().values();
                assert!(members.all(|value| !value.is_null()), "{path} {sent}");
            }
        }
    }
    let image = json!({"model": "sandbox/sandbox-image-1", "prompt": "x", "background": null, "n": null, "size": null, "moderation": null,
        "quality": null, "response_format": null, "stream": null, "user": null, "new": null});
    app.post(&account.key, "/openai/v1/images/generations", &image)
        .await
        .expect(200);
    app.assert_settled().await;
}
