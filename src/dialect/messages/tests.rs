//! Reading of message requests, and every byte of written answers.

use serde_json::Map;

use super::*;
use crate::{
    dialect::{Answer, Head, Writer},
    domain::{
        conversation::{
            Delta, Effort, Format, Function, Json, Message as Turn, Parameters, Part, Reasoning,
            Role, Schema, Stop, Thinking, ToolCall, ToolChoice, ToolResult, Tools,
        },
        usage::TextUsage,
        validate::{Body, FieldError},
    },
};

fn read<T: Body>(body: Value) -> Result<T, Vec<FieldError>> {
    let members: Map<String, Value> = serde_json::from_value(body).unwrap();
    let (request, errors) = T::parse(&members);
    if errors.is_empty() {
        return Ok(request.unwrap());
    }
    Err(errors)
}

fn writer() -> MessagesWriter {
    MessagesWriter::new(Head {
        id: "abc".to_owned(),
        created: 7,
        model: "m".to_owned(),
        input_tokens: 9,
    })
}

fn answer(text: &str, stop: Stop) -> Answer {
    Answer {
        parts: Some(text)
            .filter(|t| !t.is_empty())
            .map(Part::text)
            .into_iter()
            .collect(),
        stop,
        usage: TextUsage {
            input_tokens: 11,
            output_tokens: 5,
            total_tokens: 16,
            cached_input_tokens: Some(4),
            cache_write_tokens: Some(1),
            cache_write_long_tokens: None,
            reasoning_tokens: None,
            searches: None,
            estimated: false,
        },
        own: Map::new(),
    }
}

const USAGE: &str = concat!(
    r#""usage":{"input_tokens":6,"cache_creation_input_tokens":1,"#,
    r#""cache_read_input_tokens":4,"output_tokens":5,"#,
    r#""cache_creation":{"ephemeral_5m_input_tokens":1,"ephemeral_1h_input_tokens":0}}"#
);

#[test]
fn cache_writes_are_split_by_their_lifetime() {
    let mut answer = answer("Hi", Stop::Done);
    let split = |answer: &Answer| {
        let whole: Value = serde_json::from_str(&writer().whole(answer)).unwrap();
        whole["usage"]["cache_creation"].clone()
    };
    answer.usage.cache_write_tokens = Some(7);
    answer.usage.cache_write_long_tokens = Some(5);
    let expected = json!({"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 5});
    assert_eq!(split(&answer), expected);
    // The vendor reported no cache writes.
    answer.usage.cache_write_tokens = None;
    answer.usage.cache_write_long_tokens = None;
    assert_eq!(split(&answer), Value::Null);

    let mut writer = writer();
    writer.set_counts(crate::domain::usage::TokenCounts {
        input: Some(20),
        cache_write: Some(7),
        cache_write_long: Some(5),
        ..Default::default()
    });
    let begun = writer.begin();
    let begun: Value = serde_json::from_str(begun.split_once("data: ").unwrap().1).unwrap();
    assert_eq!(begun["message"]["usage"]["cache_creation"], expected);
}

#[test]
fn a_dialogue_keeps_its_order() {
    let request: MessagesRequest = read(
        json!({"model": "m", "max_tokens": 5, "stop_sequences": ["A"],
        "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
        "thinking": {"type": "disabled"}, "service_tier": "auto", "tools": null,
        "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
            {"role": "system", "content": "c"}]}),
    )
    .unwrap();
    let conversation = Conversation {
        system: Some("Be brief.\n\nBe kind.".to_owned()),
        messages: vec![
            Turn::text(Role::User, "a"),
            Turn::text(Role::Assistant, "b"),
            Turn::text(Role::System, "c"),
        ],
        ..Conversation::default()
    };
    let sampling = Sampling {
        stop: vec!["A".to_owned()],
        reasoning: Reasoning {
            thinking: Some(Thinking::Off),
            effort: None,
        },
        ..Sampling::default()
    };
    let dialogue = DialogueRequest {
        max_tokens: Some(5),
        sampling,
        ..DialogueRequest::new(Surface::AnthropicMessages, "m".to_owned(), conversation)
    };
    assert_eq!(dialogue.prompt, "a");
    assert_eq!(request, MessagesRequest(dialogue));
}

#[test]
fn tokens_are_counted_of_a_dialogue_without_a_limit() {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "a"}]});
    assert!(read::<CountRequest>(body.clone()).is_ok());
    assert_eq!(
        read::<MessagesRequest>(body).unwrap_err()[0].param,
        "max_tokens"
    );
}

#[test]
fn a_limit_of_0_is_read() {
    let body =
        json!({"model": "m", "max_tokens": 0, "messages": [{"role": "user", "content": "a"}]});
    let MessagesRequest(request) = read(body).unwrap();
    assert_eq!(request.max_tokens, Some(0));
}

#[test]
fn a_whole_answer() {
    for (text, stop, content, end) in [
        (
            "Hi",
            Stop::Sequence("X".to_owned()),
            r#"[{"type":"text","text":"Hi"}]"#,
            r#""stop_reason":"stop_sequence","stop_sequence":"X""#,
        ),
        // Reasoning used up the limit.
        (
            "",
            Stop::Limit,
            "[]",
            r#""stop_reason":"max_tokens","stop_sequence":null"#,
        ),
        (
            "Hi",
            Stop::Done,
            r#"[{"type":"text","text":"Hi"}]"#,
            r#""stop_reason":"end_turn","stop_sequence":null"#,
        ),
    ] {
        let expected = format!(
            "{{\"id\":\"msg_abc\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\
             \"content\":{content},{end},{USAGE}}}"
        );
        assert_eq!(writer().whole(&answer(text, stop)), expected);
    }
}

#[test]
fn a_stream_is_written_as_the_grammar_has_it() {
    let event = |data: &str| {
        let name = data.split('"').nth(3).unwrap();
        format!("event: {name}\ndata: {data}\n\n")
    };
    let mut writer = writer();
    let start = concat!(
        r#"{"type":"message_start","message":{"id":"msg_abc","type":"message","role":"assistant","#,
        r#""model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":9,"#,
        r#""cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1}}}"#,
    );
    assert_eq!(writer.begin(), event(start));
    assert_eq!(writer.keep_alive(), event(r#"{"type":"ping"}"#));
    let open =
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
    let delta = |text: &str| {
        let delta = format!(r#"{{"type":"text_delta","text":"{text}"}}"#);
        event(&format!(
            r#"{{"type":"content_block_delta","index":0,"delta":{delta}}}"#
        ))
    };
    assert_eq!(
        writer.piece(&Delta::Text("Hi".to_owned())),
        event(open) + &delta("Hi")
    );
    assert_eq!(writer.piece(&Delta::Text(" you".to_owned())), delta(" you"));
    let end = [
        r#"{"type":"content_block_stop","index":0}"#.to_owned(),
        format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":"max_tokens","stop_sequence":null}},{USAGE}}}"#
        ),
        r#"{"type":"message_stop"}"#.to_owned(),
    ];
    let end: String = end.iter().map(|data| event(data)).collect();
    assert_eq!(writer.end(&answer("Hi you", Stop::Limit)), end);
    assert_eq!(writer.failed("{}", None), "event: error\ndata: {}\n\n");
}

#[test]
fn a_stream_without_text_has_no_block() {
    let end = writer().end(&answer("", Stop::Limit));
    assert!(end.starts_with("event: message_delta\n"), "{end}");
}

fn call(id: &str, arguments: &str, signature: Option<&str>) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: "weather".to_owned(),
        arguments: arguments.to_owned(),
        thought_signature: signature.map(str::to_owned),
    }
}

fn thinking(text: &str, signature: &str) -> Part {
    Part::Thinking {
        text: text.to_owned(),
        signature: signature.to_owned(),
    }
}

#[test]
fn blocks_are_read_in_their_order() {
    let schema = json!({"type": "object"});
    let ephemeral = json!({"type": "ephemeral"});
    let MessagesRequest(request) = read(json!({"model": "m", "max_tokens": 5,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": schema}},
        "system": [{"type": "text", "text": "s", "cache_control": ephemeral}],
        "metadata": {"user_id": "u"},
        "tools": [{"name": "weather", "input_schema": schema, "cache_control": ephemeral},
            {"type": "custom", "name": "b", "description": "B.", "input_schema": {}, "strict": true}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
        "messages": [{"role": "user", "content": "x"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "r"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Bonn"}},
                {"type": "thinking", "thinking": "", "signature": "gemini:sig"},
                {"type": "tool_use", "id": "2", "name": "weather", "input": {}, "caller": {"type": "direct"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": "warm", "is_error": true},
                {"type": "tool_result", "tool_use_id": "2", "cache_control": ephemeral,
                    "content": [{"type": "text", "text": "cold"}]},
                {"type": "text", "text": "Well?"}]}]}))
    .unwrap();
    assert_eq!(request.left_out, ["metadata", "cache_control"]);
    let reasoning = Reasoning {
        thinking: Some(Thinking::Budget(2000)),
        effort: Some(Effort::Low),
    };
    assert_eq!(request.sampling.reasoning, reasoning);
    let function = |name: &str, description: Option<&str>, schema: &Value, strict| Function {
        name: name.to_owned(),
        description: description.map(str::to_owned),
        parameters: schema.as_object().map(Parameters::of),
        strict,
    };
    let tools = Tools {
        functions: vec![
            function("weather", None, &schema, None),
            function("b", Some("B."), &json!({}), Some(true)),
        ],
        choice: ToolChoice::Required,
        one_at_a_time: true,
    };
    assert_eq!(request.conversation.tools, tools);
    let format = Format::Schema(Schema {
        name: None,
        description: None,
        schema: Json::from(&schema),
        strict: None,
    });
    assert_eq!(request.conversation.format, format);
    let asked = [
        thinking("hm", "s"),
        Part::Redacted {
            data: "r".to_owned(),
        },
        Part::text("I look."),
        Part::ToolCall(call("1", "{\"city\":\"Bonn\"}", None)),
        Part::ToolCall(call("2", "{}", Some("sig"))),
    ];
    assert_eq!(request.conversation.messages[1].parts, asked);
    let result = |id: &str, text: &str, is_error| {
        Part::ToolResult(ToolResult {
            call_id: id.to_owned(),
            parts: vec![Part::text(text)],
            is_error,
        })
    };
    let results = [
        result("1", "warm", true),
        result("2", "cold", false),
        Part::text("Well?"),
    ];
    assert_eq!(request.conversation.messages[2].parts, results);
    assert_eq!(request.prompt, "Well?");
}

#[test]
fn what_is_wrong_with_blocks_is_named() {
    let content = |block: Value| json!({"messages": [{"role": "user", "content": [block]}]});
    for (param, more) in [
        ("tool_choice", json!({"tool_choice": {"type": "any"}})),
        (
            "tool_choice.name",
            json!({"tool_choice": {"type": "tool", "name": "g"},
            "tools": [{"name": "f", "input_schema": {}}]}),
        ),
        ("tools[0].input_schema", json!({"tools": [{"name": "f"}]})),
        (
            "tools[0].type",
            json!({"tools": [{"type": "web_search_20260318", "name": "web_search"}]}),
        ),
        (
            "tools[0].type",
            json!({"tools": [{"type": "computer_20251124", "name": "computer"}]}),
        ),
        (
            "tools[0].type",
            json!({"tools": [{"type": "bash_code_20250124", "name": "bash"}]}),
        ),
        (
            "thinking.budget_tokens",
            json!({"thinking": {"type": "enabled"}}),
        ),
        (
            "thinking.budget_tokens",
            json!({"thinking": {"type": "enabled", "budget_tokens": 0}}),
        ),
        (
            "output_config.format.type",
            json!({"output_config": {"format": {"type": "json_object"}}}),
        ),
        (
            "messages[0].content[0].source.type",
            content(json!({"type": "document", "source": {}})),
        ),
        (
            "messages[0].content[0].signature",
            content(json!({"type": "thinking", "thinking": "x"})),
        ),
        (
            "messages[0].content[0].tool_use_id",
            content(json!({"type": "tool_result"})),
        ),
        (
            "messages[0].content[0].source.data",
            content(json!({"type": "image",
            "source": {"type": "base64", "media_type": "image/png"}})),
        ),
        (
            "messages[0].content[0].source.type",
            content(json!({"type": "image",
            "source": {"type": "file", "file_id": "f"}})),
        ),
    ] {
        let mut body = json!({"model": "m", "max_tokens": 5,
            "messages": [{"role": "user", "content": "x"}]});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let errors = read::<MessagesRequest>(body).unwrap_err();
        assert!(
            errors.iter().any(|error| error.param == param),
            "{param}: {errors:?}"
        );
    }
}

#[test]
fn blocks_are_written_whole_and_in_pieces() {
    let parts = vec![
        thinking("hm", "s"),
        Part::text("I look."),
        Part::ToolCall(call("1", "{\"b\":1,\"a\":2}", None)),
        Part::ToolCall(call("2", "{}", Some("sig"))),
    ];
    let answer = Answer {
        parts,
        ..answer("", Stop::Tools)
    };
    let whole = writer().whole(&answer);
    let content = concat!(
        r#""content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"I look."},"#,
        r#"{"type":"tool_use","id":"1","name":"weather","input":{"b":1,"a":2}},"#,
        r#"{"type":"thinking","thinking":"","signature":"gemini:sig"},"#,
        r#"{"type":"tool_use","id":"2","name":"weather","input":{}}],"stop_reason":"tool_use""#,
    );
    assert!(whole.contains(content), "{whole}");

    let mut writer = writer();
    let deltas = [
        Delta::Thinking("h".to_owned()),
        Delta::Thinking("m".to_owned()),
        Delta::Signature("s".to_owned()),
        Delta::Thinking("again".to_owned()),
        Delta::Redacted("r".to_owned()),
        Delta::Text("I look.".to_owned()),
        Delta::ToolCall(call("1", "", None)),
        Delta::Arguments("{\"a\"".to_owned()),
        Delta::Arguments(":1}".to_owned()),
        Delta::ToolCall(call("2", "{}", Some("sig"))),
    ];
    let mut stream: String = deltas.iter().map(|delta| writer.piece(delta)).collect();
    stream += &writer.end(&answer);
    let events = stream.trim_end().split("\n\n").map(|event| {
        let (_, data) = event.split_once("\ndata: ").unwrap();
        let event: Value = serde_json::from_str(data).unwrap();
        let kind = event["type"].as_str().unwrap();
        match kind.strip_prefix("content_block_") {
            Some("start") => format!(
                "{}({}",
                event["index"],
                event["content_block"]["type"].as_str().unwrap()
            ),
            Some("delta") => {
                let mut added = event["delta"].as_object().unwrap().iter();
                let (name, value) = added.find(|(name, _)| *name != "type").unwrap();
                format!("{name}={}", value.as_str().unwrap())
            }
            Some(_) => format!("{})", event["index"]),
            None => kind.to_owned(),
        }
    });
    let expected = [
        "0(thinking",
        "thinking=h",
        "thinking=m",
        "signature=s",
        "0)",
        "1(thinking",
        "thinking=again",
        "1)",
        "2(redacted_thinking",
        "2)",
        "3(text",
        "text=I look.",
        "3)",
        "4(tool_use",
        "partial_json={\"a\"",
        "partial_json=:1}",
        "4)",
        "5(thinking",
        "signature=gemini:sig",
        "5)",
        "6(tool_use",
        "partial_json={}",
        "6)",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(events.collect::<Vec<_>>(), expected);
}

/// A request with U+0000 is refused, and the next turn sends the input back.
#[test]
fn inputs_have_no_nul() {
    const JSON: &str = r#"{"cmd":"tr '\u0000' \\u0000"}"#;
    const EXPECTED: &str = r#"{"cmd":"tr '\ufffd' \\u0000"}"#;
    let answer = Answer {
        parts: vec![Part::ToolCall(call("1", JSON, None))],
        ..answer("", Stop::Tools)
    };
    let whole = writer().whole(&answer);
    assert!(whole.contains(&format!("\"input\":{EXPECTED}")), "{whole}");
    for at in 0..=JSON.len() {
        let mut writer = writer();
        let deltas = [
            Delta::ToolCall(call("1", &JSON[..at], None)),
            Delta::Arguments(JSON[at..].to_owned()),
        ];
        let stream: String = deltas.iter().map(|delta| writer.piece(delta)).collect();
        assert_eq!(input(&(stream + &writer.end(&answer))), EXPECTED);
    }
    // The end of an input that was cut off is kept.
    let mut writer = writer();
    let stream = writer.piece(&Delta::ToolCall(call("1", r#"{"a":"\u00"#, None)));
    assert_eq!(input(&(stream + &writer.end(&answer))), r#"{"a":"\u00"#);
}

/// The input that a client reads from the events of a stream.
fn input(stream: &str) -> String {
    let events = stream.trim_end().split("\n\n").map(|event| {
        let (_, data) = event.split_once("\ndata: ").unwrap();
        serde_json::from_str::<Value>(data).unwrap()
    });
    let pieces = events.filter_map(|event| {
        let piece = event["delta"]["partial_json"].as_str();
        piece.map(str::to_owned)
    });
    pieces.collect()
}

/// A tool that is loaded later is read where that is done, however often.
#[test]
fn a_tool_counts_each_time_that_it_is_loaded() {
    let result = |id: &str| {
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id,
            "content": [{"type": "tool_reference", "tool_name": "large"}]}]})
    };
    let added = |tool: &Value| json!({"role": "system", "content": [{"type": "tool_addition", "tool": tool}]});
    let large = json!({"type": "tool_reference", "name": "large"});
    let bytes = |more: &[Value]| {
        let used = json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": "1", "name": "search", "input": {}}]});
        let messages = [json!({"role": "user", "content": "x"}), used].into_iter();
        let messages: Vec<Value> = messages.chain(more.iter().cloned()).collect();
        let read = read(json!({"model": "m", "max_tokens": 5, "messages": messages,
            "tools": [{"name": "search", "input_schema": {}},
                {"name": "large", "description": "d".repeat(1_000), "input_schema": {}, "defer_loading": true}]}));
        read.map(|MessagesRequest(request)| request.others.bytes)
    };
    let none = bytes(&[]).unwrap();
    for more in [result("1"), added(&large)] {
        let once = bytes(std::slice::from_ref(&more)).unwrap();
        let twice = bytes(&[more.clone(), more]).unwrap();
        assert!(
            once >= none + 1_000 && twice >= once + 1_000,
            "{once} {twice}"
        );
    }
    let defined = json!({"type": "tool_definition", "definition": {"type": "web_search_20250305"}});
    let errors = bytes(&[added(&defined)]).unwrap_err();
    assert_eq!(errors[0].param, "messages[2].content[0].tool");
}
