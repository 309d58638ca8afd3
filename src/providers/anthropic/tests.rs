//! Anthropic Messages against a fake upstream.

mod failures;

use serde_json::{Value, json};

use super::*;
use crate::{
    domain::{
        conversation::{Conversation, Sampling},
        usage::TokenCounts,
    },
    providers::{
        ProviderErrorKind,
        tests::fake::{Reply, Seen, TIMEOUT, Upstream, dialogue, recorded, setup, streamed},
    },
};

fn call() -> TextCall {
    TextCall {
        model: "claude-haiku-5-5".to_owned(),
        conversation: Conversation::from_prompt("Say hi.".to_owned(), Some("Be brief.".to_owned()))
            .into(),
        max_tokens: 256,
        sampling: Sampling::default(),
        ..TextCall::default()
    }
}

fn adapter(base: &str, settings: AnthropicModel) -> Anthropic {
    let setup = setup(base, TIMEOUT).with("claude-haiku-5-5", settings);
    Anthropic::new(&setup, client).unwrap()
}

async fn ask(
    reply: Reply,
    streaming: bool,
) -> (Result<TextAnswer, ProviderError>, Vec<String>, Vec<Seen>) {
    let upstream = Upstream::start(reply).await;
    let adapter = adapter(&upstream.base, AnthropicModel::default());
    let (result, deltas) = if streaming {
        streamed(&adapter, &call()).await
    } else {
        (adapter.generate(&call(), None).await, Vec::new())
    };
    (result, deltas, upstream.seen())
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn message(content: &Value, stop: &str, usage: &Value) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-haiku-5-5-20260901",
        "content": content, "stop_reason": stop, "stop_sequence": null, "usage": usage})
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "model": "claude-haiku-5-5",
        "content": [], "stop_reason": null,
        "usage": {"input_tokens": 43, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 5, "output_tokens": 1}}})
}

fn delta(text: &str) -> Value {
    json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": text}})
}

fn end(stop: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null},
        "usage": {"input_tokens": 61, "output_tokens": 30, "output_tokens_details": {"thinking_tokens": 20}}})
}

fn stop() -> Value {
    json!({"type": "message_stop"})
}

#[tokio::test]
async fn sends_what_the_sdk_sends() {
    let plain = recorded(include_str!(
        "../../../tests/fixtures/sdk/anthropic_plain.json"
    ));
    let stream = recorded(include_str!(
        "../../../tests/fixtures/sdk/anthropic_stream.json"
    ));
    let settings = AnthropicModel {
        effort: Some("low".to_owned()),
        thinking: Some("disabled".to_owned()),
        ..AnthropicModel::default()
    };
    for (want, streaming) in [(plain, false), (stream, true)] {
        for suffix in ["", "/", "/v1", "/v1/"] {
            let upstream = Upstream::start(Reply::status(400, &[], "{}")).await;
            let adapter = adapter(&format!("{}{suffix}", upstream.base), settings.clone());
            let _refused = if streaming {
                streamed(&adapter, &call()).await.0
            } else {
                adapter.generate(&call(), None).await
            };
            let [seen] = &upstream.seen()[..] else {
                panic!("not one request")
            };
            assert_eq!(
                (&seen.method, &seen.path, &seen.body),
                (&want.method, &want.path, &want.body)
            );
            for (name, value) in &want.headers {
                // SDK 2.x sends the key as a bearer token. We use the header that the API documents
                // first; older gateways know no other.
                let (name, value) = match value.strip_prefix("Bearer ") {
                    Some(key) => ("x-api-key", key),
                    None => (name.as_str(), value.as_str()),
                };
                assert_eq!(seen.header(name), Some(value), "{name}");
            }
            assert_eq!(seen.header("authorization"), None);
        }
    }
}

#[tokio::test]
async fn sends_every_message_of_a_conversation() {
    let upstream = Upstream::start(Reply::status(400, &[], "{}")).await;
    let adapter = adapter(&upstream.base, AnthropicModel::default());
    let call = TextCall {
        conversation: dialogue().into(),
        ..call()
    };
    let _refused = adapter.generate(&call, None).await;
    let blocks = json!([{"type": "text", "text": "And"}, {"type": "text", "text": "goodbye?"}]);
    let body = &upstream.seen()[0].body;
    assert_eq!(body["system"], "Be brief.");
    assert_eq!(
        body["messages"],
        json!([{"role": "user", "content": "Say hi."}, {"role": "assistant", "content": "Hi."},
            {"role": "user", "content": blocks}])
    );
}

#[tokio::test]
async fn an_older_version_takes_a_temperature() {
    let upstream = Upstream::start(Reply::status(400, &[], "{}")).await;
    let settings = AnthropicModel {
        version: "2023-06-01".to_owned(),
        ..AnthropicModel::default()
    };
    let adapter = adapter(&upstream.base, settings);
    let bare = TextCall {
        conversation: Conversation::from_prompt("Say hi.".to_owned(), None).into(),
        sampling: Sampling {
            temperature: Some(0.25),
            ..Sampling::default()
        },
        ..call()
    };
    let _refused = adapter.generate(&bare, None).await;
    let seen = &upstream.seen()[0];
    assert_eq!(seen.header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(
        seen.body,
        json!({"model": "claude-haiku-5-5", "max_tokens": 256, "temperature": 0.25,
        "messages": [{"role": "user", "content": "Say hi."}]})
    );
    // A model without settings gets the current version.
    let _refused = adapter
        .generate(
            &TextCall {
                model: "other".to_owned(),
                ..bare
            },
            None,
        )
        .await;
    assert_eq!(
        upstream.seen()[1].header("anthropic-version"),
        Some("2026-10-21")
    );
}

#[tokio::test]
async fn plain_answers() {
    let usage = json!({"input_tokens": 12, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 4,
        "cache_creation": {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 2},
        "output_tokens": 29, "output_tokens_details": {"thinking_tokens": 9}});
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
    let redacted = json!({"type": "redacted_thinking", "data": "x"});
    let tool = json!({"type": "tool_use", "id": "t", "name": "f", "input": {}});
    for (content, stop, want) in [
        (
            json!([thinking, redacted, text("Hi "), tool, text("✓")]),
            "end_turn",
            "Hi ✓",
        ),
        (json!([text("H")]), "max_tokens", "H"),
        (json!([thinking]), "max_tokens", ""),
        (json!([]), "model_context_window_exceeded", ""),
        (json!([text("H")]), "stop_sequence", "H"),
        (json!([text("H")]), "pause_turn", "H"),
        // Hidden reasoning.
        (json!([]), "end_turn", ""),
        (json!([thinking]), "end_turn", ""),
    ] {
        let body = message(&content, stop, &usage).to_string();
        let reply = Reply::status(200, &[("request-id", "req_1")], &body);
        let got = ask(reply, false).await.0.unwrap();
        assert_eq!(
            (got.text().as_str(), got.request_id.as_deref()),
            (want, Some("req_1"))
        );
        assert_eq!(
            got.usage,
            TokenCounts {
                input: Some(19),
                output: Some(29),
                cached_input: Some(4),
                cache_write: Some(3),
                cache_write_long: Some(2),
                reasoning: Some(9),
                ..TokenCounts::default()
            }
        );
    }
}

#[tokio::test]
async fn cache_writes_count_without_their_sum() {
    for (usage, input, written, long) in [
        (
            json!({"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 2}),
            17,
            Some(5),
            Some(2),
        ),
        (
            json!({"ephemeral_1h_input_tokens": 2}),
            14,
            Some(2),
            Some(2),
        ),
        (json!({}), 12, None, None),
        (Value::Null, 12, None, None),
    ] {
        let usage = json!({"input_tokens": 12, "output_tokens": 3, "cache_creation": usage});
        let body = message(&json!([text("Hi")]), "end_turn", &usage);
        let got = ask(Reply::json(&body), false).await.0.unwrap().usage;
        assert_eq!(
            (got.input, got.cache_write, got.cache_write_long),
            (Some(input), written, long),
            "{usage}"
        );
    }
}

#[tokio::test]
async fn usage_is_believed_only_where_it_can_be() {
    for (usage, input, output) in [
        (
            json!({"input_tokens": 12, "output_tokens": 3}),
            Some(12),
            Some(3),
        ),
        (
            json!({"input_tokens": 12, "cache_read_input_tokens": null, "output_tokens": 0}),
            Some(12),
            Some(0),
        ),
        (
            json!({"input_tokens": 12, "cache_creation_input_tokens": -4, "output_tokens": 3}),
            None,
            Some(3),
        ),
        (
            json!({"cache_read_input_tokens": 4, "output_tokens": 1.5}),
            None,
            None,
        ),
        (
            json!({"input_tokens": u64::MAX, "cache_read_input_tokens": 1, "output_tokens": "3"}),
            None,
            None,
        ),
        (Value::Null, None, None),
        (json!("lies"), None, None),
    ] {
        let got = ask(
            Reply::json(&message(&json!([text("Hi")]), "end_turn", &usage)),
            false,
        )
        .await
        .0
        .unwrap();
        assert_eq!(
            (got.usage.input, got.usage.output),
            (input, output),
            "{usage}"
        );
        assert_eq!(got.request_id.as_deref(), Some("req-1"));
    }
}

#[tokio::test]
async fn streams() {
    let block = json!({"type": "content_block_start", "index": 1, "content_block": text("")});
    let thinking = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}});
    let signature = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}});
    let items = [
        start(),
        json!({"type": "ping"}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}),
        thinking,
        signature,
        json!({"type": "content_block_stop", "index": 0}),
        block,
        delta("Hi"),
        json!({"type": "an_event_of_tomorrow", "x": 1}),
        delta(" you"),
        json!({"type": "content_block_stop", "index": 1}),
        end("end_turn"),
        stop(),
    ];
    let (result, deltas, _) = ask(Reply::events(&items), true).await;
    let got = result.unwrap();
    assert_eq!(
        (got.text().as_str(), &deltas[..]),
        ("Hi you", &["Hi".to_owned(), " you".to_owned()][..])
    );
    assert_eq!(got.request_id.as_deref(), Some("msg_1"));
    // 61 replaces 43; the cache counts of the start remain.
    assert_eq!(
        got.usage,
        TokenCounts {
            input: Some(68),
            output: Some(30),
            cached_input: Some(5),
            cache_write: Some(2),
            reasoning: Some(20),
            ..TokenCounts::default()
        }
    );
    // The output count of the start is not a real count.
    let mut bare = end("end_turn");
    bare["usage"] = Value::Null;
    let items = [start(), delta("Hi"), bare, stop()];
    let (result, _, _) = ask(Reply::events(&items), true).await;
    assert_eq!(result.unwrap().usage.output, None);
    let (result, _, _) = ask(Reply::events(&[start(), end("max_tokens"), stop()]), true).await;
    assert_eq!(result.unwrap().text(), "");
}
