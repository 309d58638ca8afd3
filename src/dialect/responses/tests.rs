//! Reading of requests, and the order of the events of answers.

mod own;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::*;
use crate::{
    dialect::{Answer, Head, Writer},
    domain::{
        conversation::{Delta, Format, Stop, ToolCall, ToolChoice, ToolResult},
        usage::{TextUsage, TokenCounts},
        validate::{Body, FieldError},
    },
};

const ID: &str = "01a3185c500072abc0ffee0123456789";

fn read(body: Value) -> Result<ResponsesRequest, Vec<FieldError>> {
    let members: Map<String, Value> = serde_json::from_value(body).unwrap();
    let (request, errors) = ResponsesRequest::parse(&members);
    if errors.is_empty() {
        return Ok(request.unwrap());
    }
    Err(errors)
}

fn call(signature: Option<&str>) -> ToolCall {
    ToolCall {
        id: "c".to_owned(),
        name: "f".to_owned(),
        arguments: "{\"a\":1}".to_owned(),
        thought_signature: signature.map(str::to_owned),
    }
}

fn parts() -> Vec<Part> {
    vec![
        Part::Thinking {
            text: "Hm.".to_owned(),
            signature: "s".to_owned(),
        },
        Part::Redacted {
            data: "r".to_owned(),
        },
        Part::text("Hi\nyou"),
        Part::ToolCall(call(Some("g"))),
        Part::ToolCall(call(None)),
    ]
}

fn answer(parts: Vec<Part>, stop: Stop) -> Answer {
    Answer {
        parts,
        stop,
        usage: TextUsage::from_counts(TokenCounts::default(), 4, 4),
        own: Map::new(),
    }
}

fn writer(body: Value) -> ResponsesWriter {
    let head = Head {
        id: ID.to_owned(),
        created: 7,
        model: "m".to_owned(),
        input_tokens: 9,
    };
    ResponsesWriter::new(head, read(body).unwrap().echo)
}

fn asked() -> Value {
    json!({"model": "m", "input": "x", "include": ["reasoning.encrypted_content"]})
}

#[test]
fn items_become_messages() {
    let request = read(json!({"model": "m", "instructions": "Be brief.", "input": [
        {"role": "developer", "content": "Be kind."},
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "a"},
            {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "low"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "signature:s"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "b", "annotations": [], "logprobs": []}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "redacted:gemini:g"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"a\":1}", "status": "completed"},
        {"type": "function_call", "call_id": "d", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "1"},
        {"type": "function_call_output", "call_id": "d", "output": [{"type": "input_text", "text": "2"}]},
        {"role": "user", "content": "e"}],
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": true}],
        "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": false,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true}},
        "reasoning": {"effort": "low", "summary": "auto"}, "max_output_tokens": 9, "store": false}))
    .unwrap();
    let dialogue = request.dialogue;
    let conversation = &dialogue.conversation;
    assert_eq!(
        conversation.system.as_deref(),
        Some("Be brief.\n\nBe kind.")
    );
    let roles: Vec<Role> = conversation.messages.iter().map(|m| m.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::User, Role::User]);
    let [asked, said, results, _] = &conversation.messages[..] else {
        unreachable!()
    };
    assert!(matches!(
        &asked.parts[..],
        [Part::Text { .. }, Part::Image(_)]
    ));
    let thought = Part::Thinking {
        text: "Hm.".to_owned(),
        signature: "s".to_owned(),
    };
    assert_eq!(said.parts[0], thought);
    assert_eq!(said.parts[1], Part::text("b"));
    assert_eq!(said.parts[2], Part::ToolCall(call(Some("g"))));
    assert_eq!(said.parts.len(), 4);
    let result = |id: &str, text: &str| {
        Part::ToolResult(ToolResult {
            call_id: id.to_owned(),
            parts: vec![Part::text(text)],
            is_error: false,
        })
    };
    assert_eq!(results.parts, [result("c", "1"), result("d", "2")]);
    assert_eq!(conversation.tools.choice, ToolChoice::Named("f".to_owned()));
    assert!(conversation.tools.one_at_a_time);
    assert!(matches!(&conversation.format, Format::Schema(schema) if schema.strict == Some(true)));
    assert_eq!(dialogue.sampling.reasoning.effort, Some(Effort::Low));
    assert_eq!(
        (dialogue.max_tokens, dialogue.prompt.as_str()),
        (Some(9), "e")
    );
}

#[test]
fn what_keeps_state_or_is_no_function_is_named() {
    for (more, param) in [
        (json!({"previous_response_id": "r"}), "previous_response_id"),
        (json!({"conversation": "c"}), "conversation"),
        (json!({"background": true}), "background"),
        (json!({"store": true}), "store"),
        (json!({"prompt": {"id": "p"}}), "prompt"),
        (json!({"max_tool_calls": 0}), "max_tool_calls"),
        (json!({"service_tier": "priority"}), "service_tier"),
        (json!({"top_logprobs": 1}), "top_logprobs"),
        (
            json!({"include": ["message.output_text.logprobs"]}),
            "include",
        ),
        (
            json!({"tools": [{"type": "code_interpreter"}]}),
            "tools[0].type",
        ),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"reasoning": {"mode": "pro"}}), "reasoning.mode"),
        (
            json!({"input": [{"type": "item_reference", "id": "x"}]}),
            "input[0].type",
        ),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}),
            "input[0].content[0].file_id",
        ),
        (
            json!({"prompt_cache_options": {"prewarm": true}}),
            "prompt_cache_options.prewarm",
        ),
    ] {
        let mut body = asked();
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let errors = read(body).unwrap_err();
        assert_eq!(errors[0].param, param, "{errors:?}");
    }
    let mut body = asked();
    body["include"] = json!(["web_search_call.action.sources"]);
    let request = read(body).unwrap();
    assert_eq!(request.dialogue.left_out, ["include"]);
    assert!(!request.dialogue.visibility().encrypted);
    // What passes to OpenAI and is refused for others.
    let mut body = asked();
    body["text"] = json!({"verbosity": "low"});
    body["truncation"] = json!("auto");
    body["stop"] = json!("x");
    let whole = writer(body.clone()).whole(&answer(parts(), Stop::Done));
    assert!(whole.contains(r#""truncation":"auto""#), "{whole}");
    let others = read(body).unwrap().dialogue.others;
    assert_eq!(others.names, ["text.verbosity", "truncation", "stop"]);
    // Members without effect, as the SDK sends them.
    let body = json!({"model": "m", "stream_options": {"include_obfuscation": true}, "input": [{"role": "user", "content": "x"}], "store": false,
        "background": false, "previous_response_id": null, "tools": [], "include": [],
        "truncation": "disabled", "service_tier": "auto", "metadata": {"a": "b"}, "user": "u",
        "client_metadata": {"a": "b"}, "reasoning": {"context": "all_turns"}});
    assert_eq!(
        read(body).unwrap().dialogue.left_out,
        ["client_metadata", "metadata", "user", "reasoning.context"]
    );
}

/// Returns every event of an answer in these pieces.
fn streamed(mut writer: ResponsesWriter, pieces: &[Delta], end: &Answer) -> Vec<Value> {
    let mut text = writer.begin();
    for piece in pieces {
        text += &writer.piece(piece);
        text += &writer.keep_alive();
    }
    text += &writer.end(end);
    let events = text.strip_suffix("\n\n").unwrap().split("\n\n");
    let events = events.map(|event| {
        let (name, data) = event.split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(name, format!("event: {}", data["type"].as_str().unwrap()));
        data
    });
    events.collect()
}

/// BerriAI/litellm#28899, #27442: events out of order, and usage without its details.
#[test]
#[expect(clippy::too_many_lines, reason = "the events of every kind of part")]
fn the_events_have_their_order() {
    let arguments = ["{\"a\"", ":1}"].map(str::to_owned);
    let begun = ToolCall {
        arguments: String::new(),
        ..call(Some("g"))
    };
    let [first, second] = arguments;
    let pieces = [
        Delta::Thinking("H".to_owned()),
        Delta::Thinking("m.".to_owned()),
        Delta::Signature("s".to_owned()),
        Delta::Redacted("r".to_owned()),
        Delta::Text("Hi\nyou".to_owned()),
        Delta::ToolCall(begun),
        Delta::Arguments(first),
        Delta::Arguments(second),
        Delta::ToolCall(call(None)),
    ];
    let end = answer(parts(), Stop::Tools);
    let events = streamed(writer(asked()), &pieces, &end);
    for (n, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], n, "{event}");
    }
    let life = |event: &&Value| event["type"] != "response.in_progress";
    let mut kinds: Vec<String> = Vec::new();
    for event in events.iter().filter(life) {
        let kind = event["type"]
            .as_str()
            .unwrap()
            .trim_start_matches("response.");
        let at = event["output_index"].as_u64();
        kinds.push(at.map_or(kind.to_owned(), |at| format!("{kind} {at}")));
    }
    let text = |at: u8| {
        [
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
        ]
        .map(|kind| format!("{kind} {at}"))
    };
    let arguments = |at: u8, pieces: usize| {
        let mut kinds = vec!["output_item.added"];
        kinds.extend(vec!["function_call_arguments.delta"; pieces]);
        kinds.extend(["function_call_arguments.done", "output_item.done"]);
        kinds.into_iter().map(move |kind| format!("{kind} {at}"))
    };
    let plain =
        |at: u8| ["output_item.added", "output_item.done"].map(|kind| format!("{kind} {at}"));
    let mut expected = vec!["created".to_owned()];
    expected.extend(
        [
            "output_item.added",
            "reasoning_summary_part.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.done",
            "reasoning_summary_part.done",
            "output_item.done",
        ]
        .map(|kind| format!("{kind} 0")),
    );
    expected.extend(plain(1));
    expected.extend(text(2));
    expected.extend(plain(3));
    expected.extend(arguments(4, 2));
    expected.extend(arguments(5, 1));
    expected.push("completed".to_owned());
    assert_eq!(kinds, expected);
    let last = &events.last().unwrap()["response"];
    // The completed events equal the final items and a response that is not streamed.
    let done = events
        .iter()
        .filter(|e| e["type"] == "response.output_item.done");
    let done: Vec<&Value> = done.map(|event| &event["item"]).collect();
    assert_eq!(
        done,
        last["output"]
            .as_array()
            .unwrap()
            .iter()
            .collect::<Vec<_>>()
    );
    let body: Value = serde_json::from_str(&writer(asked()).whole(&end)).unwrap();
    assert_eq!(&body, last);
    assert_eq!(last["status"], "completed");
    let usage = &last["usage"];
    assert!(usage["output_tokens_details"]["reasoning_tokens"].is_u64());
    assert!(usage["input_tokens_details"]["cached_tokens"].is_u64());
    // Each item can be referred to by its id, and is then the same.
    let mut items = vec![json!({"role": "user", "content": "x"})];
    for (at, item) in last["output"].as_array().unwrap().iter().enumerate() {
        assert_eq!(referenced(item["id"].as_str().unwrap()), Some((ID, at)));
        assert_eq!(
            end.response_items(ID, &BTreeSet::from([at])).get(&at),
            Some(item)
        );
        items.push(item.clone());
    }
    let again = read(json!({"model": "m", "input": items})).unwrap();
    assert_eq!(again.dialogue.conversation.messages[1].parts, end.parts);
}

#[test]
fn a_limit_and_a_failure_are_told_at_the_end() {
    let end = answer(vec![Part::text("Hi")], Stop::Limit);
    let events = streamed(writer(asked()), &[Delta::Text("Hi".to_owned())], &end);
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(last["response"]["status"], "incomplete");
    let reason = &last["response"]["incomplete_details"]["reason"];
    assert_eq!(reason, "max_output_tokens");
    let mut failing = writer(asked());
    failing.begin();
    failing.piece(&Delta::Text("Hi".to_owned()));
    failing.piece(&Delta::Thinking("Hm".to_owned()));
    let error = r#"{"error":{"code":"provider_error","message":"It failed."}}"#;
    let failed = failing.failed(error, None);
    let data: Value = serde_json::from_str(failed.split_once("data: ").unwrap().1).unwrap();
    assert_eq!(data["type"], "response.failed");
    assert_eq!(data["response"]["status"], "failed");
    let error = json!({"code": "provider_error", "message": "It failed."});
    assert_eq!(data["response"]["error"], error);
    // What there is so far.
    let output = &data["response"]["output"];
    assert_eq!(output.as_array().unwrap().len(), 2, "{output}");
    assert_eq!(output[0]["content"][0]["text"], "Hi");
    assert_eq!(output[0]["status"], "completed");
    assert_eq!(output[1]["summary"][0]["text"], "Hm");
    assert_eq!(output[1]["status"], "incomplete");
    let none = json!({"input_tokens": 0, "output_tokens": 0, "total_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0}});
    assert_eq!(data["response"]["usage"], none);
    // Codex must not retry these: each attempt would be charged.
    for (kind, code, expected) in [
        ("invalid_request_error", "cancelled", "invalid_prompt"),
        ("invalid_request_error", "content_policy", "invalid_prompt"),
        (
            "invalid_request_error",
            "context_length_exceeded",
            "context_length_exceeded",
        ),
        ("server_error", "provider_error", "provider_error"),
    ] {
        let error = json!({"error": {"type": kind, "code": code, "message": "m"}});
        let failed = failing.failed(&error.to_string(), Some(&end.usage));
        let data: Value = serde_json::from_str(failed.split_once("data: ").unwrap().1).unwrap();
        let expected = json!({"code": expected, "message": "m"});
        assert_eq!(data["response"]["error"], expected);
        let total = &data["response"]["usage"]["total_tokens"];
        assert_eq!(*total, end.usage.total_tokens);
    }
    // Unless requested, encrypted reasoning is not returned.
    let plain = json!({"model": "m", "input": "x"});
    let body = writer(plain).whole(&answer(parts(), Stop::Done));
    assert!(!body.contains("encrypted_content"), "{body}");
}
