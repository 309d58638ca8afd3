//! Chat Completions against a fake upstream.

mod errors;
mod failures;
mod streams;

use serde_json::{Value, json};

use super::*;
use crate::{
    catalogue::vendor::ModelSettings as _,
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
        model: "gpt-6-luna".to_owned(),
        conversation: Conversation::from_prompt("Say hi.".to_owned(), Some("Be brief.".to_owned()))
            .into(),
        max_tokens: 256,
        sampling: Sampling {
            temperature: Some(0.5),
            ..Sampling::default()
        },
        ..TextCall::default()
    }
}

/// Settings of the real `OpenAI`, with which the SDK call was recorded.
fn real() -> OpenAiModel {
    OpenAiModel {
        api: Api::Chat,
        token_field: TokenField::MaxCompletionTokens,
        system_role: SystemRole::Developer,
        reasoning_effort: Some("none".to_owned()),
        reasoning: true,
        explicit_cache: true,
        service_tier: Some("default".to_owned()),
        stream_usage: true,
        no_obfuscation: true,
        thought_signatures: false,
    }
}

fn adapter(base: &str, key: Option<&str>, settings: OpenAiModel) -> OpenAi {
    let setup = Setup {
        api_key: key.map(Into::into),
        ..setup(base, TIMEOUT)
    };
    OpenAi::new(&setup.with("gpt-6-luna", settings), client).unwrap()
}

/// Makes one call in the form that fits the reply.
async fn ask(
    reply: Reply,
    streaming: bool,
) -> (Result<TextAnswer, ProviderError>, Vec<String>, Vec<Seen>) {
    let upstream = Upstream::start(reply).await;
    let adapter = adapter(&upstream.base, Some("test-key"), OpenAiModel::default());
    let (result, deltas) = if streaming {
        streamed(&adapter, &call()).await
    } else {
        (adapter.generate(&call(), None).await, Vec::new())
    };
    (result, deltas, upstream.seen())
}

fn answer(content: &Value, finish: &str, usage: &Value) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion", "model": "gpt-6-luna-2026-09-01",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content, "refusal": null},
            "finish_reason": finish}],
        "usage": usage})
}

fn chunk(delta: &Value, finish: Option<&str>) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "gpt-6-luna",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": null, "obfuscation": "x"})
}

#[tokio::test]
async fn sends_what_the_sdk_sends() {
    let plain = recorded(include_str!(
        "../../../tests/fixtures/sdk/openai_plain.json"
    ));
    let stream = recorded(include_str!(
        "../../../tests/fixtures/sdk/openai_stream.json"
    ));
    for (want, streaming) in [(plain, false), (stream, true)] {
        for suffix in ["", "/", "/v1", "/v1/"] {
            let upstream = Upstream::start(Reply::status(400, &[], "{}")).await;
            let adapter = adapter(
                &format!("{}{suffix}", upstream.base),
                Some("test-key"),
                real(),
            );
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
                assert_eq!(seen.header(name), Some(value.as_str()), "{name}");
            }
        }
    }
}

#[tokio::test]
async fn sends_every_message_of_a_conversation() {
    let upstream = Upstream::start(Reply::status(400, &[], "{}")).await;
    let adapter = adapter(&upstream.base, None, OpenAiModel::default());
    let call = TextCall {
        conversation: dialogue().into(),
        ..call()
    };
    let _refused = adapter.generate(&call, None).await;
    assert_eq!(
        upstream.seen()[0].body["messages"],
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hi."},
            {"role": "assistant", "content": "Hi."},
            {"role": "user", "content": "And\n\ngoodbye?"}])
    );
}

#[tokio::test]
async fn the_default_suits_compatible_servers() {
    for streaming in [false, true] {
        let upstream = Upstream::start(Reply::status(400, &[], "{}")).await;
        let adapter = adapter(&upstream.base, None, OpenAiModel::default());
        let bare = TextCall {
            conversation: Conversation::from_prompt("Say hi.".to_owned(), None).into(),
            sampling: Sampling::default(),
            ..call()
        };
        let _refused = if streaming {
            streamed(&adapter, &bare).await.0
        } else {
            adapter.generate(&bare, None).await
        };
        let seen = &upstream.seen()[0];
        let mut want = json!({"model": "gpt-6-luna", "max_tokens": 256,
            "messages": [{"role": "user", "content": "Say hi."}]});
        if streaming {
            want["stream"] = json!(true);
            want["stream_options"] = json!({"include_usage": true});
        }
        assert_eq!(seen.body, want);
        assert_eq!(seen.header("authorization"), None);
    }
    let mistral = OpenAiModel {
        stream_usage: false,
        ..OpenAiModel::default()
    };
    assert_eq!(
        {
            let call = call();
            let conversation = call.conversation.get();
            serde_json::to_value(request::body(&call, &conversation, &mistral, true))
        }
        .unwrap()
        .get("stream_options"),
        None
    );
}

#[tokio::test]
async fn plain_answers() {
    let usage = json!({"prompt_tokens": 16, "completion_tokens": 363, "total_tokens": 379,
        "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 300}});
    let parts = json!([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Hi"}]);
    for (content, finish, text) in [
        (json!("Hi ✓"), "stop", "Hi ✓"),
        (parts, "stop", "Hi"),
        (json!("H"), "length", "H"),
        (json!(""), "length", ""),
        (Value::Null, "length", ""),
        (Value::Null, "model_length", ""),
    ] {
        let (result, _, _) = ask(Reply::json(&answer(&content, finish, &usage)), false).await;
        let got = result.unwrap();
        assert_eq!(got.text(), text);
        assert_eq!(got.request_id.as_deref(), Some("req-1"));
        assert_eq!(
            got.usage,
            TokenCounts {
                input: Some(16),
                output: Some(363),
                cached_input: Some(4),
                cache_write: Some(5),
                reasoning: Some(300),
                ..TokenCounts::default()
            }
        );
    }
    // Uses the body's id if the header is missing.
    let body = answer(&json!("Hi"), "stop", &Value::Null).to_string();
    let (result, _, _) = ask(Reply::status(200, &[], &body), false).await;
    let got = result.unwrap();
    assert_eq!(
        (got.request_id.as_deref(), got.usage),
        (Some("chatcmpl-1"), TokenCounts::default())
    );
}

#[tokio::test]
async fn cache_writes_have_two_names() {
    for (usage, want) in [
        (json!({"cache_creation_input_tokens": 4}), Some(4)),
        (
            json!({"cache_creation_input_tokens": 4,
                "prompt_tokens_details": {"cache_write_tokens": 0}}),
            Some(4),
        ),
        (json!({"prompt_tokens_details": {}}), None),
    ] {
        let (result, _, _) = ask(Reply::json(&answer(&json!("Hi"), "stop", &usage)), false).await;
        assert_eq!(result.unwrap().usage.cache_write, want, "{usage}");
    }
}

#[tokio::test]
async fn usage_is_believed_only_where_it_can_be() {
    let counts = |usage: TokenCounts| {
        (
            usage.input,
            usage.output,
            usage.cached_input,
            usage.reasoning,
        )
    };
    for (usage, want) in [
        // xAI: only the total includes reasoning.
        (
            json!({"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 334,
            "completion_tokens_details": {"reasoning_tokens": 320}}),
            (Some(12), Some(322), None, Some(320)),
        ),
        // Ollama: exactly three; Groq: also floats; DeepSeek: its own cache count.
        (
            json!({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}),
            (Some(3), Some(4), None, None),
        ),
        (
            json!({"queue_time": 0.1, "prompt_tokens": 3, "completion_tokens": 4, "total_time": 0.5}),
            (Some(3), Some(4), None, None),
        ),
        (
            json!({"prompt_tokens": 3, "completion_tokens": 4, "prompt_cache_hit_tokens": 2}),
            (Some(3), Some(4), Some(2), None),
        ),
        (
            json!({"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 1}),
            (Some(9), Some(4), None, None),
        ),
        (
            json!({"prompt_tokens": -1, "completion_tokens": 4.5, "total_tokens": 3}),
            (None, None, None, None),
        ),
        (
            json!({"prompt_tokens": "3", "completion_tokens": null}),
            (None, None, None, None),
        ),
        (
            json!({"prompt_tokens": 3, "total_tokens": 10}),
            (Some(3), None, None, None),
        ),
        (
            json!({"prompt_tokens": 3, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}}),
            (Some(8), Some(4), Some(5), None),
        ),
        (json!({}), (None, None, None, None)),
        (json!([1]), (None, None, None, None)),
        (json!("many"), (None, None, None, None)),
    ] {
        let (result, _, _) = ask(Reply::json(&answer(&json!("Hi"), "stop", &usage)), false).await;
        assert_eq!(counts(result.unwrap().usage), want, "{usage}");
    }
}

#[test]
fn developer_role_is_that_of_the_settings() {
    for (vendor, system_role, expected) in [
        (COMPATIBLE.vendor.dialogue, SystemRole::System, false),
        (COMPATIBLE.vendor.dialogue, SystemRole::Developer, true),
        (ADAPTERS.vendor.dialogue, SystemRole::System, true),
    ] {
        for api in [Api::Chat, Api::Responses] {
            let settings = OpenAiModel {
                api,
                system_role,
                ..OpenAiModel::default()
            };
            assert_eq!(settings.dialogue(vendor).developer_role, expected);
        }
    }
}

#[test]
fn current_models_are_called_by_responses() {
    for id in [
        "gpt-6-luna",
        "gpt-6.1-sol",
        "gpt-5.4",
        "gpt-5.4-mini-2026-03-05",
        "gpt-5.10",
        "gpt-5-pro",
        "gpt-5.3-codex",
        "ft:gpt-5.6-luna:org::1",
        "gpt-10",
    ] {
        assert!(has_responses(id), "{id}");
    }
    for id in [
        "gpt-5.3", "gpt-5", "gpt-4o", "gpt-4.1", "o3", "m", "gpt-", "gpt-5x",
    ] {
        assert!(!has_responses(id), "{id}");
    }
}
