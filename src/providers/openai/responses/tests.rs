//! Responses against a fake upstream.

use serde_json::{Value, json};

use super::super::{Api, OpenAi, OpenAiModel, SystemRole, client};
use crate::{
    domain::{
        conversation::{
            Conversation, Delta, Effort, EncryptedReasoning, Format, Function, Json, Message,
            Parameters, Part, Reasoning, Role, Sampling, Schema, Stop, Thinking, ToolCall,
            ToolChoice, ToolResult, Tools, Visibility,
        },
        generation::Surface,
        json::Members,
        usage::TokenCounts,
    },
    providers::{
        DeltaSink, ProviderError, ProviderErrorKind, TextAnswer, TextCall, TextProvider as _,
        tests::fake::{Reply, Seen, TIMEOUT, Upstream, setup},
    },
    request::Original,
};

fn real() -> OpenAiModel {
    OpenAiModel {
        api: Api::Responses,
        system_role: SystemRole::Developer,
        reasoning_effort: Some("low".to_owned()),
        service_tier: Some("default".to_owned()),
        no_obfuscation: true,
        ..OpenAiModel::default()
    }
}

fn call() -> TextCall {
    TextCall {
        model: "gpt-6.1-sol".to_owned(),
        conversation: Conversation::from_prompt("Say hi.".to_owned(), Some("Be brief.".to_owned()))
            .into(),
        max_tokens: 256,
        is_dialogue: true,
        ..TextCall::default()
    }
}

struct Asked {
    result: Result<TextAnswer, ProviderError>,
    pieces: Vec<Delta>,
    seen: Vec<Seen>,
}

async fn ask_as(reply: Reply, call: &TextCall, settings: OpenAiModel, streaming: bool) -> Asked {
    let upstream = Upstream::start(reply).await;
    let setup = setup(&upstream.base, TIMEOUT).with("gpt-6.1-sol", settings);
    let adapter = OpenAi::new(&setup, client).unwrap();
    let mut pieces = Vec::new();
    let result = if streaming {
        let visibility = Visibility::of(Surface::AnthropicMessages);
        let (sink, mut source) = DeltaSink::channel(visibility);
        let result = adapter.generate(call, Some(&sink)).await;
        drop(sink);
        while let Some(piece) = source.recv().await {
            pieces.push(piece);
        }
        result
    } else {
        adapter.generate(call, None).await
    };
    Asked {
        result,
        pieces,
        seen: upstream.seen(),
    }
}

async fn ask(reply: Reply, streaming: bool) -> Asked {
    ask_as(reply, &call(), real(), streaming).await
}

async fn sent(call: &TextCall, settings: OpenAiModel, streaming: bool) -> Seen {
    let asked = ask_as(Reply::status(400, &[], "{}"), call, settings, streaming).await;
    asked.seen.into_iter().next().unwrap()
}

fn usage() -> Value {
    json!({"input_tokens": 100, "output_tokens": 40, "total_tokens": 140,
        "input_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 50,
            "cache_write_tokens_details": {"ttl_30m_tokens": 45, "ttl_12h_tokens": 5}},
        "output_tokens_details": {"reasoning_tokens": 12}})
}

fn counts() -> TokenCounts {
    TokenCounts {
        input: Some(100),
        output: Some(40),
        cached_input: Some(30),
        cache_write: Some(50),
        cache_write_long: Some(5),
        reasoning: Some(12),
        searches: None,
        uncounted_bytes: 0,
    }
}

fn response(status: &str, output: &Value) -> Value {
    json!({"id": "resp_1", "object": "response", "model": "gpt-6.1-sol-2026-10-01",
        "status": status, "error": null, "incomplete_details": null, "output": output,
        "usage": usage()})
}

fn message(text: &str) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn function_call(id: &str) -> Value {
    json!({"id": format!("fc_{id}"), "type": "function_call", "call_id": id, "name": "f",
        "arguments": "{\"a\":1}", "status": "completed"})
}

fn reasoning() -> Value {
    json!({"id": "rs_1", "type": "reasoning", "encrypted_content": "gAA:A=",
        "summary": [{"type": "summary_text", "text": "hm"}, {"type": "summary_text", "text": "so"}]})
}

fn thought() -> Part {
    let signature = EncryptedReasoning {
        id: "rs_1",
        content: "gAA:A=",
    };
    Part::Thinking {
        text: "hm\n\nso".to_owned(),
        signature: signature.signature(),
    }
}

fn called(id: &str, arguments: &str) -> Part {
    Part::ToolCall(ToolCall {
        id: id.to_owned(),
        name: "f".to_owned(),
        arguments: arguments.to_owned(),
        thought_signature: None,
    })
}

fn event(kind: &str, more: Value) -> Value {
    let mut event = more;
    event["type"] = json!(kind);
    event["sequence_number"] = json!(0);
    event
}

/// The events of an answer: reasoning, a text and two calls.
fn events() -> Vec<Value> {
    let item = |at: usize, kind: &str, item: &Value| {
        event(
            &format!("response.output_item.{kind}"),
            json!({"output_index": at, "item": item}),
        )
    };
    let piece = |at: usize, kind: &str, delta: &str| {
        event(
            &format!("response.{kind}.delta"),
            json!({"output_index": at, "item_id": "x", "delta": delta}),
        )
    };
    let mut begun = function_call("c1");
    begun["arguments"] = json!("");
    let part = |index: u32| {
        event(
            "response.reasoning_summary_part.added",
            json!({"output_index": 0, "summary_index": index}),
        )
    };
    let output = json!([
        reasoning(),
        message("Hello there."),
        function_call("c1"),
        function_call("c2")
    ]);
    vec![
        event(
            "response.created",
            json!({"response": {"id": "resp_1", "model": "gpt-6.1-sol"}}),
        ),
        event(
            "response.in_progress",
            json!({"response": {"id": "resp_1"}}),
        ),
        item(
            0,
            "added",
            &json!({"id": "rs_1", "type": "reasoning", "summary": []}),
        ),
        part(0),
        piece(0, "reasoning_summary_text", "hm"),
        part(1),
        piece(0, "reasoning_summary_text", "so"),
        item(0, "done", &reasoning()),
        item(
            1,
            "added",
            &json!({"id": "msg_1", "type": "message", "content": []}),
        ),
        event("response.content_part.added", json!({"output_index": 1})),
        piece(1, "output_text", "Hello "),
        piece(1, "output_text", "there."),
        event(
            "response.output_text.done",
            json!({"output_index": 1, "text": "Hello there."}),
        ),
        item(1, "done", &message("Hello there.")),
        item(2, "added", &begun),
        piece(2, "function_call_arguments", "{\"a\""),
        piece(2, "function_call_arguments", ":1}"),
        item(2, "done", &function_call("c1")),
        item(3, "added", &function_call("c2")),
        item(3, "done", &function_call("c2")),
        event("response.tomorrow", json!({"new": 1})),
        event(
            "response.completed",
            json!({"response": response("completed", &output)}),
        ),
    ]
}

fn dialogue() -> Conversation {
    let text = |role, text: &str| Message::text(role, text);
    let schema = json!({"type": "object", "properties": {"a": {}}});
    let function = |name: &str, parameters, strict| Function {
        name: name.to_owned(),
        description: Some("d".to_owned()),
        parameters,
        strict,
    };
    let result = |id: &str, parts: Vec<Part>, is_error| {
        Part::ToolResult(ToolResult {
            call_id: id.to_owned(),
            parts,
            is_error,
        })
    };
    let image = crate::domain::conversation::Image {
        source: crate::domain::conversation::ImageSource::Url("https://x.test/i.png".to_owned()),
        detail: None,
    };
    Conversation {
        system: Some("Be brief.".to_owned()),
        messages: vec![
            Message {
                role: Role::User,
                parts: vec![Part::text("Look:"), Part::Image(image.clone())],
            },
            Message {
                role: Role::Assistant,
                parts: vec![
                    thought(),
                    Part::text("I call."),
                    called("c1", "{\"a\":1}"),
                    called("c2", "{}"),
                    // Nothing follows it.
                    thought(),
                ],
            },
            Message {
                role: Role::User,
                parts: vec![
                    result("c1", vec![Part::text("r"), Part::Image(image)], false),
                    result("c2", vec![Part::text("broken")], true),
                    Part::text("Go on."),
                ],
            },
            text(Role::System, "Be briefer."),
        ],
        tools: Tools {
            functions: vec![
                function("f", schema.as_object().map(Parameters::of), None),
                function("g", None, Some(true)),
            ],
            choice: ToolChoice::Named("f".to_owned()),
            one_at_a_time: true,
        },
        format: Format::Schema(Schema {
            name: None,
            description: None,
            schema: Json::from(&schema),
            strict: Some(true),
        }),
    }
}

#[tokio::test]
async fn a_conversation_becomes_items() {
    let call = TextCall {
        conversation: dialogue().into(),
        sampling: Sampling {
            temperature: Some(0.5),
            top_p: Some(0.9),
            ..Sampling::default()
        },
        ..call()
    };
    let seen = sent(&call, real(), true).await;
    assert_eq!((&*seen.method, &*seen.path), ("POST", "/v1/responses"));
    let schema = json!({"type": "object", "properties": {"a": {}}});
    let summary = json!([{"type": "summary_text", "text": "hm\n\nso"}]);
    let image =
        json!({"type": "input_image", "image_url": "https://x.test/i.png", "detail": "auto"});
    assert_eq!(
        seen.body,
        json!({"model": "gpt-6.1-sol", "input": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "input_text", "text": "Look:"}, image]},
                {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "gAA:A="},
                {"role": "assistant", "content": "I call."},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"a\":1}"},
                {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1",
                    "output": [{"type": "input_text", "text": "r"}, image]},
                {"type": "function_call_output", "call_id": "c2", "output": "Error: broken"},
                {"role": "user", "content": "Go on."},
                {"role": "developer", "content": "Be briefer."}],
            "tools": [
                {"type": "function", "name": "f", "description": "d", "parameters": schema, "strict": false},
                {"type": "function", "name": "g", "description": "d", "parameters": null, "strict": true}],
            "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": false,
            "text": {"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": true}},
            "max_output_tokens": 256, "temperature": 0.5, "top_p": 0.9, "reasoning": {"effort": "low"},
            "include": ["reasoning.encrypted_content"], "service_tier": "default", "store": false,
            "stream": true, "stream_options": {"include_obfuscation": false}})
    );
}

#[tokio::test]
async fn a_compatible_server_is_sent_no_more_than_it_needs() {
    let settings = OpenAiModel {
        api: Api::Responses,
        ..OpenAiModel::default()
    };
    let seen = sent(&call(), settings, true).await;
    assert_eq!(
        seen.body,
        json!({"model": "gpt-6.1-sol", "input": [{"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Say hi."}], "max_output_tokens": 256, "store": false,
            "stream": true})
    );
}

#[tokio::test]
async fn thinking_becomes_an_effort_beside_tools() {
    let none = OpenAiModel {
        reasoning_effort: Some("none".to_owned()),
        ..real()
    };
    for (thinking, effort, sends) in [
        (None, None, "none"),
        (Some(Thinking::Off), None, "none"),
        (None, Some(Effort::High), "high"),
        (Some(Thinking::Budget(30_000)), None, "high"),
    ] {
        let call = TextCall {
            conversation: dialogue().into(),
            sampling: Sampling {
                reasoning: Reasoning { thinking, effort },
                ..Sampling::default()
            },
            ..call()
        };
        let seen = sent(&call, none.clone(), false).await;
        let mut expected = json!({ "effort": sends });
        if matches!(thinking, Some(Thinking::Budget(_))) {
            expected["summary"] = json!("auto");
        }
        assert_eq!(seen.body["reasoning"], expected, "{thinking:?}");
    }
    let explicit = OpenAiModel {
        explicit_cache: true,
        ..real()
    };
    let plain = TextCall {
        is_dialogue: false,
        ..call()
    };
    let seen = sent(&plain, explicit.clone(), false).await;
    assert_eq!(
        seen.body["prompt_cache_options"],
        json!({"mode": "explicit"})
    );
    assert_eq!(seen.body.get("include"), None);
    let seen = sent(&call(), explicit, false).await;
    assert_eq!(seen.body.get("prompt_cache_options"), None);
}

fn passed(body: &str) -> TextCall {
    let original = Original {
        members: Members::parse(&body.to_owned().into()).unwrap(),
        ..Original::default()
    };
    TextCall {
        original: Some(original.into()),
        ..call()
    }
}

#[tokio::test]
async fn a_body_passes_as_it_came() {
    let body = r#"{"input": [ {"type":"compaction","encrypted_content":"x"} ],"model":"openai/m",
        "max_output_tokens": 900, "tomorrow": 1.0, "stream": false, "stream_options": {"new": 1}}"#;
    let seen = sent(&passed(body), real(), false).await;
    assert_eq!(
        seen.body.to_string(),
        r#"{"input":[{"type":"compaction","encrypted_content":"x"}],"model":"gpt-6.1-sol","max_output_tokens":256,"tomorrow":1.0,"service_tier":"default","store":false}"#
    );
    let seen = sent(&passed(body), real(), true).await;
    assert_eq!(
        (&seen.body["stream"], &seen.body["stream_options"]),
        (
            &json!(true),
            &json!({"new": 1, "include_obfuscation": false})
        )
    );
}

#[tokio::test]
async fn whole_answers_are_read_in_order() {
    let output = json!([
        reasoning(),
        message("Hello there."),
        function_call("c1"),
        function_call("c2")
    ]);
    let asked = ask(Reply::json(&response("completed", &output)), false).await;
    let answer = asked.result.unwrap();
    let parts = vec![
        thought(),
        Part::text("Hello there."),
        called("c1", "{\"a\":1}"),
        called("c2", "{\"a\":1}"),
    ];
    assert_eq!((answer.parts, answer.stop), (parts, Stop::Tools));
    assert_eq!(answer.usage, counts());
    assert_eq!(answer.request_id.as_deref(), Some("req-1"));
}

#[tokio::test]
async fn a_stream_has_the_parts_of_the_whole() {
    let output = json!([
        reasoning(),
        message("Hello there."),
        function_call("c1"),
        function_call("c2")
    ]);
    let whole = ask(Reply::json(&response("completed", &output)), false).await;
    let whole = whole.result.unwrap();
    // Some servers send only the end, or items without their pieces.
    let all = events();
    let last = all.last().unwrap().clone();
    let done = all
        .iter()
        .filter(|event| event["type"] == "response.output_item.done");
    let done: Vec<Value> = done.chain([&last]).cloned().collect();
    for events in [all, done, vec![last]] {
        let asked = ask(Reply::events(&events), true).await;
        let answer = asked.result.unwrap();
        assert_eq!((&answer.parts, &answer.stop), (&whole.parts, &whole.stop));
        assert_eq!(answer.usage, counts());
        assert_eq!(answer.request_id.as_deref(), Some("resp_1"));
        let mut parts = Vec::new();
        for piece in asked.pieces {
            piece.add_to(&mut parts);
        }
        assert_eq!(parts, whole.parts);
    }
}

#[tokio::test]
async fn a_cut_stream_is_a_failure() {
    let events = events();
    let events = events.iter().map(|event| {
        let kind = event["type"].as_str().unwrap();
        format!("event: {kind}\ndata: {event}\n\n")
    });
    let whole = events.collect::<Vec<_>>().concat();
    let head = "HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    // The last event is complete without the blank line after it.
    for end in (0..whole.len() - 2).step_by(7).chain([whole.len() - 3]) {
        let body = &whole[..whole.floor_char_boundary(end)];
        let asked = ask(Reply::Raw(format!("{head}{body}")), true).await;
        assert!(
            asked.result.is_err(),
            "{}",
            &body[body.len().saturating_sub(80)..]
        );
    }
    for end in [
        "data: [DONE]\n\n",
        "event: response.output_text.done\ndata: {\"type\":\"response.output_text.done\"}\n\n",
    ] {
        let first = whole.split("event: response.completed").next().unwrap();
        let asked = ask(Reply::Raw(format!("{head}{first}{end}")), true).await;
        assert_eq!(asked.result.unwrap_err().detail, "stream was cut");
    }
}

#[tokio::test]
async fn only_known_ends_are_answers() {
    use ProviderErrorKind::{ContentPolicy, Failed, Overloaded, Rejected};
    let incomplete = |reason: &str| {
        let mut body = response("incomplete", &json!([message("He")]));
        body["incomplete_details"] = json!({ "reason": reason });
        body
    };
    let failed = |code: &str| {
        let mut body = response("failed", &json!([message("He")]));
        body["error"] = json!({"code": code, "message": "m"});
        body
    };
    let refusal = json!([{"type": "message", "role": "assistant",
        "content": [{"type": "refusal", "refusal": "No."}]}]);
    let refused =
        |body: &Value, kind: &str| event(&format!("response.{kind}"), json!({"response": body}));
    for (body, kind, name) in [
        (incomplete("content_filter"), ContentPolicy, "incomplete"),
        (incomplete("steered"), Failed, "incomplete"),
        (failed("server_error"), Failed, "failed"),
        (failed("rate_limit_exceeded"), Overloaded, "failed"),
        (failed("invalid_prompt"), ContentPolicy, "failed"),
        (failed("bio_policy"), ContentPolicy, "failed"),
        (failed("invalid_image_url"), Rejected, "failed"),
        (response("failed", &json!([])), Failed, "failed"),
        (
            response("in_progress", &json!([message("x")])),
            Failed,
            "completed",
        ),
        (
            response("cancelled", &json!([message("x")])),
            Failed,
            "completed",
        ),
        (response("completed", &refusal), ContentPolicy, "completed"),
        (json!({"status": "completed"}), Failed, "completed"),
        (
            json!({"status": "completed", "output": [{}]}),
            Failed,
            "completed",
        ),
        (
            json!({"status": "completed", "output": []}),
            Failed,
            "completed",
        ),
    ] {
        let error = ask(Reply::json(&body), false).await.result.unwrap_err();
        assert_eq!((error.kind, error.not_started), (kind, false), "{body}");
        // From a stream that delivered nothing before.
        let asked = ask(Reply::events(&[refused(&body, name)]), true).await;
        if !asked.pieces.is_empty() && kind == ContentPolicy {
            assert_eq!(asked.result.unwrap().stop, Stop::ContentFilter, "{body}");
            continue;
        }
        assert_eq!(asked.result.unwrap_err().kind, kind, "{body}");
    }
    for error in [
        json!({"type": "error", "code": "server_error", "message": "m", "param": null}),
        json!({"type": "error", "error": {"type": "server_error", "message": "m"}}),
        json!({"error": {"code": "server_error"}}),
    ] {
        let mut events = events();
        events.truncate(12);
        events.push(error);
        let error = ask(Reply::events(&events), true).await.result.unwrap_err();
        assert_eq!(error.kind, Failed);
    }
    // At the limit, with text and with only reasoning.
    for output in [json!([message("He")]), json!([])] {
        let mut body = response("incomplete", &output);
        body["incomplete_details"] = json!({"reason": "max_output_tokens"});
        let answer = ask(Reply::json(&body), false).await.result.unwrap();
        assert_eq!((answer.stop, answer.usage), (Stop::Limit, counts()));
    }
}

#[tokio::test]
async fn events_repeat_what_the_request_had() {
    let mut events = events();
    let tools = json!([{"type": "function", "name": "f", "description": "d".repeat(3 << 20)}]);
    events[0]["response"]["tools"] = tools.clone();
    let last = events.len() - 1;
    events[last]["response"]["tools"] = tools;
    let answer = ask(Reply::events(&events), true).await.result.unwrap();
    assert_eq!(answer.text(), "Hello there.");
}

#[tokio::test]
async fn a_refusal_after_text_ends_the_answer() {
    let mut events = events();
    events.truncate(11);
    let refusal = json!({"output_index": 1, "delta": "No."});
    events.push(event("response.refusal.delta", refusal));
    events.push(event(
        "response.completed",
        json!({"response": response("completed", &json!([]))}),
    ));
    let answer = ask(Reply::events(&events), true).await.result.unwrap();
    assert_eq!(
        (answer.text(), answer.stop),
        ("Hello ".to_owned(), Stop::ContentFilter)
    );
}

#[tokio::test]
async fn mixed_items_are_a_failure() {
    for (at, index) in [(10, 0), (15, 1)] {
        let mut events = events();
        events[at]["output_index"] = json!(index);
        let error = ask(Reply::events(&events), true).await.result.unwrap_err();
        assert_eq!(error.detail, "blocks are mixed");
    }
}

#[tokio::test]
async fn items_that_are_numbered_anew_at_the_end_come_once() {
    let item = |at: u32, kind: &str, item: &Value| {
        let kind = format!("response.output_item.{kind}");
        event(&kind, json!({"output_index": at, "item": item}))
    };
    let mut call = function_call("c1");
    call["arguments"] = json!("");
    let begun = json!({"id": "msg_1", "type": "message", "content": []});
    let thinking = [
        item(0, "added", &json!({"id": "rs_1", "type": "reasoning"})),
        item(0, "done", &reasoning()),
    ];
    let output = json!([reasoning(), message("Hello there."), function_call("c1")]);
    for head in [vec![item(0, "added", &begun)], thinking.to_vec()] {
        let rest = [
            event(
                "response.output_text.delta",
                json!({"output_index": 0, "item_id": "msg_1", "delta": "Hello there."}),
            ),
            item(0, "done", &message("Hello there.")),
            item(1, "added", &call),
            item(1, "done", &function_call("c1")),
            item(1, "done", &function_call("c1")),
            event(
                "response.completed",
                json!({"response": response("completed", &output)}),
            ),
        ];
        let events = [head, rest.to_vec()].concat();
        let answer = ask(Reply::events(&events), true).await.result.unwrap();
        assert_eq!(answer.text(), "Hello there.");
        let calls = answer.parts.iter();
        let calls = calls.filter(|part| matches!(part, Part::ToolCall(_)));
        assert_eq!(calls.count(), 1, "{:?}", answer.parts);
    }
}

#[tokio::test]
async fn a_stop_sequence_ends_the_text() {
    let call = TextCall {
        sampling: Sampling {
            stop: vec!["o t".to_owned()],
            ..Sampling::default()
        },
        ..call()
    };
    let output = json!([message("Hello there."), function_call("c1")]);
    for (reply, streaming) in [
        (Reply::json(&response("completed", &output)), false),
        (Reply::events(&events()), true),
    ] {
        let asked = ask_as(reply, &call, real(), streaming).await;
        let answer = asked.result.unwrap();
        assert_eq!(answer.text(), "Hell");
        assert_eq!(answer.stop, Stop::Sequence("o t".to_owned()));
        assert_eq!(answer.usage, counts());
        assert!(
            !answer
                .parts
                .iter()
                .any(|part| matches!(part, Part::ToolCall(_)))
        );
        assert_eq!(asked.seen[0].body.get("stop"), None);
    }
}

#[tokio::test]
async fn own_items_pass_to_callers_of_the_dialect_only() {
    let custom = json!({"id": "ctc_1", "type": "custom_tool_call", "call_id": "c3", "name": "x",
        "input": "y"});
    let mut namespaced = function_call("c1");
    namespaced["namespace"] = json!("n");
    let output = json!([reasoning(), custom, namespaced]);
    let body = response("completed", &output);
    let opaque = |block: &Value| Part::Opaque {
        block: block.clone(),
    };
    let expected: Vec<Part> = output.as_array().unwrap().iter().map(opaque).collect();
    let asked = ask_as(Reply::json(&body), &passed("{}"), real(), false).await;
    assert_eq!(asked.result.unwrap().parts, expected);
    let last = event("response.completed", json!({"response": body}));
    let asked = ask_as(Reply::events(&[last]), &passed("{}"), real(), true).await;
    assert_eq!(asked.result.unwrap().parts, expected);
    let error = ask(Reply::json(&body), false).await.result.unwrap_err();
    assert_eq!(error.detail, "answer has a part of an unknown kind");
    // Reasoning alone is not an answer.
    let mut alone = response("completed", &json!([reasoning()]));
    alone["usage"] = Value::Null;
    let asked = ask_as(Reply::json(&alone), &passed("{}"), real(), false).await;
    assert_eq!(asked.result.unwrap_err().detail, "empty answer");
}
