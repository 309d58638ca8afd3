//! Usage: last, and only when asked; what a vendor does not count changes nothing.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    CHAT, MESSAGES, MODELS, PATHS, RESPONSES, events, prompt, record, stream_of, usage, with,
};
use crate::common::{Recorded, Reply, TestApp, Upstream};

/// A stream that counts too early, nothing, and a part once more.
fn restless(request: &Recorded) -> Reply {
    let stream = if request.path.starts_with("/openai") {
        let chunk = |choices: Value, usage: Value| json!({"choices": choices, "usage": usage});
        let text = json!([{"delta": {"content": "Hi."}}]);
        let end = json!([{"delta": {}, "finish_reason": "stop"}]);
        let whole = json!({"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12});
        let events = [
            chunk(text, json!({"prompt_tokens": 9, "completion_tokens": 1})),
            chunk(end, Value::Null),
            chunk(json!([]), whole),
            chunk(json!([]), Value::Null),
            chunk(
                json!([]),
                json!({"prompt_tokens": 9, "completion_tokens": null}),
            ),
        ];
        stream_of(&events) + "data: [DONE]\n\n"
    } else {
        let end = |usage: Value| json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage});
        stream_of(&[
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hi."}}),
            end(json!({"input_tokens": null, "cache_read_input_tokens": null, "output_tokens": 3})),
            end(Value::Null),
            end(json!({"input_tokens": 9, "output_tokens": null})),
            json!({"type": "message_stop"}),
        ])
    };
    Reply::Raw(200, "text/event-stream", stream)
}

#[sqlx::test]
async fn it_comes_last_and_only_when_asked(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.play(restless);
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for model in &MODELS[1..3] {
        for path in PATHS {
            let mut body = with(prompt(path, model, "x"), &json!({"stream": true}));
            if path == CHAT {
                body["stream_options"] = json!({"include_usage": true});
            }
            let answer = app.post(&account.key, path, &body).await;
            let found = usage(path, &answer.text);
            let (input, output) = match path {
                CHAT => (&found["prompt_tokens"], &found["completion_tokens"]),
                _ => (&found["input_tokens"], &found["output_tokens"]),
            };
            assert_eq!((input, output), (&json!(9), &json!(3)), "{path} {model}");
            if path == RESPONSES {
                assert_eq!(found["output_tokens_details"]["reasoning_tokens"], 0);
                assert_eq!(found["input_tokens_details"]["cached_tokens"], 0);
            }
            let record = record(&app, &account, &answer).await;
            assert_eq!(record["usage"].get("estimated"), None, "{record}");
            let all = events(path, &answer.text);
            if path == CHAT {
                let (last, before) = all[..all.len() - 1].split_last().unwrap();
                assert_eq!(last["choices"], json!([]));
                assert!(
                    before.iter().all(|chunk| chunk["usage"].is_null()),
                    "{before:?}"
                );
                for options in [json!(null), json!({}), json!({"include_usage": false})] {
                    body["stream_options"] = options;
                    let answer = app.post(&account.key, path, &body).await;
                    let all = events(path, &answer.text);
                    assert!(
                        all.iter().all(|chunk| chunk.get("usage").is_none()),
                        "{all:?}"
                    );
                }
            } else if path == MESSAGES {
                let ends = all.iter().filter(|event| event["type"] == "message_delta");
                assert_eq!(ends.count(), 1);
            }
        }
    }
    app.assert_settled().await;
}
