//! Reading of chat requests, and every byte of written answers.

use serde_json::Map;

use super::*;
use crate::{
    dialect::{Answer, Head, Writer},
    domain::{
        conversation::{
            Delta, Format, Function, Json, Message, Parameters, Part, Role, Schema, Stop, ToolCall,
            ToolChoice, ToolResult, Tools,
        },
        usage::TextUsage,
        validate::{Body, FieldError},
    },
};

fn read(body: Value) -> Result<ChatRequest, Vec<FieldError>> {
    let members: Map<String, Value> = serde_json::from_value(body).unwrap();
    let (request, errors) = ChatRequest::parse(&members);
    if errors.is_empty() {
        return Ok(request.unwrap());
    }
    Err(errors)
}

fn writer(include_usage: bool) -> ChatWriter {
    let head = Head {
        id: "abc".to_owned(),
        created: 7,
        model: "m".to_owned(),
        input_tokens: 9,
    };
    ChatWriter::new(head, include_usage, BTreeSet::new())
}

fn answer(stop: Stop) -> Answer {
    Answer {
        parts: vec![Part::text("Hi\n\"you\"")],
        stop,
        usage: TextUsage {
            input_tokens: 11,
            output_tokens: 5,
            total_tokens: 16,
            cached_input_tokens: Some(4),
            cache_write_tokens: Some(1),
            cache_write_long_tokens: None,
            reasoning_tokens: Some(2),
            searches: None,
            estimated: false,
        },
        own: Map::new(),
    }
}

#[test]
fn a_dialogue_keeps_its_order() {
    let request = read(json!({"model": "openai/gpt", "max_tokens": 5, "temperature": 0.5, "stop": "END",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            // In the form in which an SDK sends our answer back.
            {"role": "assistant", "content": "c", "refusal": null, "annotations": [], "tool_calls": null},
            {"role": "system", "content": "Now in French."},
            {"role": "user", "content": "d"},
        ]}))
    .unwrap();
    let text = |text: &str| Part::text(text);
    let conversation = Conversation {
        system: Some("Be brief.\n\nBe kind.".to_owned()),
        messages: vec![
            Message {
                role: Role::User,
                parts: vec![text("a"), text("b")],
            },
            Message::text(Role::Assistant, "c"),
            Message::text(Role::System, "Now in French."),
            Message::text(Role::User, "d"),
        ],
        ..Conversation::default()
    };
    let sampling = Sampling {
        temperature: Some(0.5),
        top_p: None,
        stop: vec!["END".to_owned()],
        ..Sampling::default()
    };
    let dialogue = DialogueRequest {
        max_tokens: Some(5),
        sampling,
        ..DialogueRequest::new(Surface::OpenAiChat, "openai/gpt".to_owned(), conversation)
    };
    assert_eq!(dialogue.prompt, "d");
    let expected = ChatRequest {
        dialogue,
        include_usage: false,
        custom: BTreeSet::new(),
    };
    assert_eq!(request, expected);
}

#[test]
fn what_changes_nothing_is_taken() {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}],
        "stream_options": {"include_obfuscation": true}, "max_completion_tokens": 5, "max_tokens": 5});
    for (name, values) in fixed() {
        for value in values {
            body[name] = value;
            assert!(read(body.clone()).is_ok(), "{name}");
        }
    }
    for name in UNSUPPORTED {
        body[*name] = Value::Null;
    }
    assert!(read(body).is_ok());
}

#[test]
fn the_name_in_a_result_is_counted() {
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "1", "name": "n".repeat(1_000)}]});
    let others = read(body).unwrap().dialogue.others;
    assert_eq!((others.names.len(), others.bytes), (0, 1_000));
}

#[test]
fn two_limits_must_agree() {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}],
        "max_completion_tokens": 5, "max_tokens": 6});
    assert_eq!(read(body).unwrap_err()[0].param, "max_tokens");
}

#[test]
fn a_whole_answer() {
    let expected = concat!(
        r#"{"id":"chatcmpl-abc","object":"chat.completion","created":7,"model":"m","choices":[{"index":0,"#,
        r#""message":{"role":"assistant","content":"Hi\n\"you\"","refusal":null},"logprobs":null,"#,
        r#""finish_reason":"length"}],"usage":{"prompt_tokens":11,"completion_tokens":5,"total_tokens":16,"#,
        r#""prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":1},"completion_tokens_details":{"reasoning_tokens":2}}}"#,
    );
    assert_eq!(writer(false).whole(&answer(Stop::Limit)), expected);
}

#[test]
fn a_stream_is_written_as_the_grammar_has_it() {
    let chunk = |delta: &str, finish: &str, usage: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-abc\",\"object\":\"chat.completion.chunk\",\"created\":7,\
             \"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\
             \"finish_reason\":{finish}}}]{usage}}}\n\n"
        )
    };
    for include_usage in [false, true] {
        let mut writer = writer(include_usage);
        let null = if include_usage { ",\"usage\":null" } else { "" };
        let role = r#"{"role":"assistant","content":""}"#;
        assert_eq!(writer.begin(), chunk(role, "null", null));
        assert_eq!(
            writer.piece(&Delta::Text("Hi\n".to_owned())),
            chunk(r#"{"content":"Hi\n"}"#, "null", null)
        );
        assert_eq!(writer.keep_alive(), chunk("{}", "null", null));
        let usage = concat!(
            "data: {\"id\":\"chatcmpl-abc\",\"object\":\"chat.completion.chunk\",\"created\":7,",
            "\"model\":\"m\",\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":5,",
            "\"total_tokens\":16,\"prompt_tokens_details\":{\"cached_tokens\":4,\"cache_write_tokens\":1},",
            "\"completion_tokens_details\":{\"reasoning_tokens\":2}}}\n\n",
        );
        let last = if include_usage { usage } else { "" };
        let end = chunk("{}", "\"stop\"", null) + last + "data: [DONE]\n\n";
        let sequence = Stop::Sequence("x".to_owned());
        assert_eq!(writer.end(&answer(sequence)), end);
        assert_eq!(writer.failed("{}", None), "data: {}\n\n");
    }
}

fn weather(arguments: &str) -> ToolCall {
    ToolCall {
        id: "call_1".to_owned(),
        name: "weather".to_owned(),
        arguments: arguments.to_owned(),
        thought_signature: None,
    }
}

#[test]
fn tools_and_their_results_are_read() {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let mut signed = weather("{}");
    signed.id = "call_2".to_owned();
    signed.thought_signature = Some("sig".to_owned());
    let request = read(json!({"model": "m", "parallel_tool_calls": false, "reasoning_effort": "high",
        "tools": [{"type": "function", "function": {"name": "weather", "description": "Of a city.",
            "parameters": schema, "strict": true}}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
        "messages": [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "call_1", "type": "function",
                    "function": {"name": "weather", "arguments": "{\"city\":\"Bonn\"}"}},
                {"id": "call_2", "type": "function", "function": {"name": "weather", "arguments": "{}"},
                    "extra_content": {"google": {"thought_signature": "sig"}}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "warm"},
            {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "cold"}]},
        ]}))
    .unwrap();
    let result = |id: &str, text: &str| {
        Part::ToolResult(ToolResult {
            call_id: id.to_owned(),
            parts: vec![Part::text(text)],
            is_error: false,
        })
    };
    let conversation = request.dialogue.conversation;
    let calls = [weather("{\"city\":\"Bonn\"}"), signed].map(Part::ToolCall);
    assert_eq!(conversation.messages[1].parts, calls);
    // Consecutive results are one message.
    let results = [result("call_1", "warm"), result("call_2", "cold")];
    assert_eq!(conversation.messages[2].parts, results);
    assert_eq!(conversation.messages.len(), 3);
    let tools = Tools {
        functions: vec![Function {
            name: "weather".to_owned(),
            description: Some("Of a city.".to_owned()),
            parameters: schema.as_object().map(Parameters::of),
            strict: Some(true),
        }],
        choice: ToolChoice::Named("weather".to_owned()),
        one_at_a_time: true,
    };
    assert_eq!(conversation.tools, tools);
    let format = Format::Schema(Schema {
        name: Some("n".to_owned()),
        description: None,
        schema: Json::from(&schema),
        strict: None,
    });
    assert_eq!(conversation.format, format);
}

#[test]
fn what_is_wrong_with_tools_is_named() {
    let user = json!({"role": "user", "content": "x"});
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    for (param, more) in [
        ("tool_choice", json!({"tool_choice": "required"})),
        (
            "tool_choice",
            json!({"tool_choice": "some",
            "tools": [{"type": "function", "function": {"name": "f"}}]}),
        ),
        (
            "tool_choice",
            json!({"tool_choice": {"type": "function", "function": {"name": "g"}},
            "tools": [{"type": "function", "function": {"name": "f"}}]}),
        ),
        ("tools[0].type", json!({"tools": [{"type": "web_search"}]})),
        (
            "tools[0].function",
            json!({"tools": [{"type": "function"}]}),
        ),
        (
            "tools[0].function.name",
            json!({"tools": [{"type": "function", "function": {}}]}),
        ),
        (
            "response_format.json_schema",
            json!({"response_format": {"type": "json_schema"}}),
        ),
        (
            "messages[0].content",
            json!({"messages": [{"role": "assistant"}]}),
        ),
        (
            "messages[0].tool_calls",
            json!({"messages": [{"role": "user", "content": "x", "tool_calls": [call]}]}),
        ),
        (
            "messages[1].tool_call_id",
            json!({"messages": [user, {"role": "tool", "content": "x"}]}),
        ),
        (
            "messages[0].content[0].image_url",
            json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
        ),
        (
            "messages[0].content[0].text",
            json!({"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
        ),
    ] {
        let mut body = json!({"model": "m", "messages": [user]});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let errors = read(body).unwrap_err();
        assert!(
            errors.iter().any(|error| error.param == param),
            "{param}: {errors:?}"
        );
    }
}

#[test]
fn calls_are_written_whole_and_in_pieces() {
    let mut second = weather("{}");
    second.id = "call_2".to_owned();
    second.thought_signature = Some("sig".to_owned());
    let parts = vec![
        Part::Thinking {
            text: "hm".to_owned(),
            signature: "s".to_owned(),
        },
        Part::ToolCall(weather("{\"a\":1}")),
        Part::ToolCall(second),
    ];
    let answer = Answer {
        parts: parts.clone(),
        ..answer(Stop::Tools)
    };
    let body: Value = serde_json::from_str(&writer(false).whole(&answer)).unwrap();
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "weather", "arguments": arguments}});
    let mut signed = call("call_2", "{}");
    signed["extra_content"] = json!({"google": {"thought_signature": "sig"}});
    let message = json!({"role": "assistant", "content": null, "refusal": null,
        "tool_calls": [call("call_1", "{\"a\":1}"), signed]});
    assert_eq!(body["choices"][0]["message"], message);
    assert_eq!(body["choices"][0]["finish_reason"], "tool_calls");

    let mut writer = writer(false);
    let deltas = [
        Delta::Thinking("hm".to_owned()),
        Delta::ToolCall(weather("")),
        Delta::Arguments("{\"a\"".to_owned()),
        Delta::Arguments(":1}".to_owned()),
        Delta::ToolCall(weather("{}")),
    ];
    let mut pieces = Vec::new();
    for delta in &deltas {
        let event = writer.piece(delta);
        let data = event.strip_prefix("data: ").unwrap().trim_end();
        let chunk: Value = serde_json::from_str(data).unwrap();
        pieces.push(chunk["choices"][0]["delta"].clone());
    }
    let begun = |index: usize, arguments: &str| {
        json!({"tool_calls": [{"index": index, "id": "call_1", "type": "function",
            "function": {"name": "weather", "arguments": arguments}}]})
    };
    let more = |arguments: &str| json!({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]});
    let expected = [
        json!({}),
        begun(0, ""),
        more("{\"a\""),
        more(":1}"),
        begun(1, "{}"),
    ];
    assert_eq!(pieces, expected);
}
