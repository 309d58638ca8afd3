//! What is read from messages, and every byte of what is written.

use serde_json::Map;

use super::*;
use crate::domain::validate::{Body, FieldError};

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
        text: text.to_owned(),
        stop,
        usage: TextUsage {
            input_tokens: 11,
            output_tokens: 5,
            total_tokens: 16,
            cached_input_tokens: Some(4),
            cache_write_tokens: Some(1),
            cache_write_long_tokens: None,
            reasoning_tokens: None,
            estimated: false,
        },
    }
}

const USAGE: &str = concat!(
    r#""usage":{"input_tokens":6,"cache_creation_input_tokens":1,"#,
    r#""cache_read_input_tokens":4,"output_tokens":5}"#
);

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
    };
    let sampling = Sampling {
        stop: vec!["A".to_owned()],
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
    assert_eq!(writer.text("Hi"), event(open) + &delta("Hi"));
    assert_eq!(writer.text(" you"), delta(" you"));
    let end = [
        r#"{"type":"content_block_stop","index":0}"#.to_owned(),
        format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":"max_tokens","stop_sequence":null}},{USAGE}}}"#
        ),
        r#"{"type":"message_stop"}"#.to_owned(),
    ];
    let end: String = end.iter().map(|data| event(data)).collect();
    assert_eq!(writer.end(&answer("Hi you", Stop::Limit)), end);
    assert_eq!(writer.failed("{}"), "event: error\ndata: {}\n\n");
}

#[test]
fn a_stream_without_text_has_no_block() {
    let end = writer().end(&answer("", Stop::Limit));
    assert!(end.starts_with("event: message_delta\n"), "{end}");
}
