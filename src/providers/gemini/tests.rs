//! Gemini against a fake upstream.

mod errors;
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
        model: "gemini-3.5-flash-lite".to_owned(),
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

fn adapter(base: &str, settings: GeminiModel) -> Gemini {
    let setup = setup(base, TIMEOUT).with("gemini-3.5-flash-lite", settings);
    Gemini::new(&setup, client).unwrap()
}

async fn ask(
    reply: Reply,
    streaming: bool,
) -> (Result<TextAnswer, ProviderError>, Vec<String>, Vec<Seen>) {
    let upstream = Upstream::start(reply).await;
    let adapter = adapter(&upstream.base, GeminiModel::default());
    let (result, deltas) = if streaming {
        streamed(&adapter, &call()).await
    } else {
        (adapter.generate(&call(), None).await, Vec::new())
    };
    (result, deltas, upstream.seen())
}

fn answer(parts: &Value, finish: Option<&str>, usage: &Value) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": finish, "index": 0}],
        "usageMetadata": usage, "modelVersion": "gemini-3.5-flash-lite", "responseId": "resp-1"})
}

fn error(code: u16, status: &str, details: &Value) -> Value {
    json!({"error": {"code": code, "message": "secret prompt", "status": status, "details": details}})
}

fn hi() -> Value {
    json!([{"text": "Hi", "thoughtSignature": "s"}])
}

#[tokio::test]
async fn sends_what_the_sdk_sends() {
    let plain = recorded(include_str!(
        "../../../tests/fixtures/sdk/gemini_plain.json"
    ));
    let stream = recorded(include_str!(
        "../../../tests/fixtures/sdk/gemini_stream.json"
    ));
    let settings = GeminiModel {
        thinking_level: Some("LOW".to_owned()),
        thinking_budget: None,
    };
    for (mut want, streaming) in [(plain, false), (stream, true)] {
        // The SDK writes this one field in snake case, which protobuf's JSON accepts as well. The
        // REST reference writes it as below.
        let thinking = &mut want.body["generationConfig"]["thinkingConfig"];
        *thinking = json!({"thinkingLevel": thinking["thinking_level"]});
        // The 3.x SDK calls v1, the reference v1beta. A version in the base URL decides.
        let beta = want.path.replace("/v1/", "/v1beta/");
        for (suffix, path) in [
            ("/v1", &want.path),
            ("/v1/", &want.path),
            ("", &beta),
            ("/", &beta),
            ("/v1beta", &beta),
        ] {
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
                (&want.method, path, &want.body)
            );
            for name in ["content-type", "x-goog-api-key"] {
                let recorded = want.header(name);
                assert!(recorded.is_some());
                assert_eq!(seen.header(name), recorded, "{name}");
            }
        }
    }
}

#[tokio::test]
async fn sends_every_message_of_a_conversation() {
    let upstream = Upstream::start(Reply::status(400, &[], "{}")).await;
    let adapter = adapter(&upstream.base, GeminiModel::default());
    let call = TextCall {
        conversation: dialogue().into(),
        ..call()
    };
    let _refused = adapter.generate(&call, None).await;
    let body = &upstream.seen()[0].body;
    assert_eq!(
        body["systemInstruction"]["parts"],
        json!([{"text": "Be brief."}])
    );
    assert_eq!(
        body["contents"],
        json!([{"role": "user", "parts": [{"text": "Say hi."}]},
            {"role": "model", "parts": [{"text": "Hi."}]},
            {"role": "user", "parts": [{"text": "And"}, {"text": "goodbye?"}]}])
    );
}

#[tokio::test]
async fn only_what_was_given_is_sent() {
    let upstream = Upstream::start(Reply::status(400, &[], "{}")).await;
    let settings = GeminiModel {
        thinking_level: None,
        thinking_budget: Some(0),
    };
    let adapter = adapter(&upstream.base, settings);
    let bare = TextCall {
        conversation: Conversation::from_prompt("Say hi.".to_owned(), None).into(),
        sampling: Sampling::default(),
        ..call()
    };
    let _refused = adapter.generate(&bare, None).await;
    let _refused = adapter
        .generate(
            &TextCall {
                model: "models/../x".to_owned(),
                ..bare
            },
            None,
        )
        .await;
    let seen = upstream.seen();
    let contents = json!([{"role": "user", "parts": [{"text": "Say hi."}]}]);
    assert_eq!(
        seen[0].body,
        json!({"contents": contents,
        "generationConfig": {"maxOutputTokens": 256, "thinkingConfig": {"thinkingBudget": 0}}})
    );
    assert_eq!(
        seen[1].body,
        json!({"contents": contents, "generationConfig": {"maxOutputTokens": 256}})
    );
    assert_eq!(seen[1].path, "/v1beta/models/..%2Fx:generateContent");
}

#[tokio::test]
async fn plain_answers() {
    let usage = json!({"promptTokenCount": 9, "candidatesTokenCount": 28, "thoughtsTokenCount": 244,
        "cachedContentTokenCount": 4, "toolUsePromptTokenCount": 1, "totalTokenCount": 282});
    let parts = json!([{"text": "hm", "thought": true}, {"text": "Hi "}, {"inlineData": {}}, {"text": "✓", "thought": false}]);
    for (parts, finish, text) in [
        (parts, Some("STOP"), "Hi ✓"),
        (hi(), Some("MAX_TOKENS"), "Hi"),
        (hi(), None, "Hi"),
        (json!([]), Some("MAX_TOKENS"), ""),
        (Value::Null, Some("MAX_TOKENS"), ""),
        (
            json!([{"text": "hm", "thought": true}]),
            Some("MAX_TOKENS"),
            "",
        ),
    ] {
        let body = answer(&parts, finish, &usage).to_string();
        let got = ask(Reply::status(200, &[], &body), false).await.0.unwrap();
        assert_eq!(
            (got.text().as_str(), got.request_id.as_deref()),
            (text, Some("resp-1"))
        );
        assert_eq!(
            got.usage,
            TokenCounts {
                input: Some(10),
                output: Some(272),
                cached_input: Some(4),
                reasoning: Some(244),
                ..TokenCounts::default()
            }
        );
    }
}

#[tokio::test]
async fn usage_is_believed_only_where_it_can_be() {
    for (usage, parts, input, output) in [
        (
            json!({"promptTokenCount": 9, "candidatesTokenCount": 2}),
            hi(),
            Some(9),
            Some(2),
        ),
        (
            json!({"promptTokenCount": 9, "thoughtsTokenCount": 5}),
            json!([]),
            Some(9),
            Some(5),
        ),
        (json!({"promptTokenCount": 9}), json!([]), Some(9), Some(0)),
        // A text with zero tokens is implausible.
        (json!({"promptTokenCount": 9}), hi(), Some(9), None),
        (
            json!({"promptTokenCount": 9, "thoughtsTokenCount": 5}),
            hi(),
            Some(9),
            None,
        ),
        (json!({"candidatesTokenCount": 2}), hi(), None, Some(2)),
        (
            json!({"promptTokenCount": -9, "candidatesTokenCount": 2.5}),
            hi(),
            None,
            None,
        ),
        (
            json!({"promptTokenCount": "9", "candidatesTokenCount": 2, "thoughtsTokenCount": -1}),
            hi(),
            None,
            None,
        ),
        (json!(7), hi(), None, None),
    ] {
        let got = ask(
            Reply::json(&answer(&parts, Some("MAX_TOKENS"), &usage)),
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
    }
}

#[tokio::test]
async fn streams() {
    let usage = |output: u64| json!({"promptTokenCount": 9, "candidatesTokenCount": output, "thoughtsTokenCount": 3});
    let items = [
        answer(&json!([{"text": "hm", "thought": true}]), None, &usage(1)),
        answer(&hi(), None, &usage(2)),
        answer(&json!([{"text": " you"}]), None, &usage(4)),
        answer(&json!([{"text": ""}]), Some("STOP"), &usage(5)),
        json!({"usageMetadata": usage(6), "modelVersion": "gemini-3.5-flash-lite"}),
    ];
    let (result, deltas, _) = ask(Reply::events(&items), true).await;
    let got = result.unwrap();
    assert_eq!(
        (got.text().as_str(), &deltas[..]),
        ("Hi you", &["Hi".to_owned(), " you".to_owned()][..])
    );
    assert_eq!((got.usage.input, got.usage.output), (Some(9), Some(9)));
    assert_eq!(
        (got.usage.reasoning, got.request_id.as_deref()),
        (Some(3), Some("resp-1"))
    );
    let (result, _, _) = ask(
        Reply::events(&[answer(&json!([]), Some("MAX_TOKENS"), &usage(0))]),
        true,
    )
    .await;
    assert_eq!(result.unwrap().text(), "");
}
