//! What is read from a chat, and every byte of what is written.

use serde_json::Map;

use super::*;
use crate::domain::validate::{Body, FieldError};

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
    ChatWriter {
        head,
        include_usage,
    }
}

fn answer(stop: Stop) -> Answer {
    Answer {
        text: "Hi\n\"you\"".to_owned(),
        stop,
        usage: TextUsage {
            input_tokens: 11,
            output_tokens: 5,
            total_tokens: 16,
            cached_input_tokens: Some(4),
            cache_write_tokens: Some(1),
            cache_write_long_tokens: None,
            reasoning_tokens: Some(2),
            estimated: false,
        },
    }
}

#[test]
fn a_dialogue_keeps_its_order() {
    let request = read(json!({"model": "openai/gpt", "max_tokens": 5, "temperature": 0.5, "stop": "END",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            // As an SDK sends an answer of ours back.
            {"role": "assistant", "content": "c", "refusal": null, "annotations": [], "tool_calls": null},
            {"role": "system", "content": "Now in French."},
            {"role": "user", "content": "d"},
        ]}))
    .unwrap();
    let text = |text: &str| crate::domain::conversation::Part::Text(text.to_owned());
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
    };
    let sampling = Sampling {
        temperature: Some(0.5),
        top_p: None,
        stop: vec!["END".to_owned()],
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
    };
    assert_eq!(request, expected);
}

#[test]
fn what_changes_nothing_is_taken() {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}],
        "stream_options": {"include_obfuscation": false}, "max_completion_tokens": 5, "max_tokens": 5});
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
            writer.text("Hi\n"),
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
        assert_eq!(writer.failed("{}"), "data: {}\n\n");
    }
}
