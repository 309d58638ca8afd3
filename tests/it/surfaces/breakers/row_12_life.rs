//! Life: pieces of calls are passed on as they come. The signs of life in a silence are with the
//! streams themselves (`src/api/surfaces/stream/tests.rs`) and with each dialect's writer.

use std::time::Duration;

use axum::body::Body;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::time::timeout;
use tower::ServiceExt as _;

use super::{MODELS, PATHS, function, prompt, stream_of, with};
use crate::{
    common::{Reply, TestApp, Upstream},
    envelope::raw,
};

const PATIENCE: Duration = Duration::from_secs(30);

/// The beginning of a call of each vendor, two pieces of its arguments, and the end.
fn pieces(vendor: &str) -> Vec<String> {
    if vendor == "openai" {
        let call = |call: Value| json!({"choices": [{"delta": {"tool_calls": [call]}}]});
        let more = |piece: &str| call(json!({"index": 0, "function": {"arguments": piece}}));
        let end = json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]});
        return vec![
            stream_of(&[call(
                json!({"index": 0, "id": "c", "function": {"name": "f"}}),
            )]),
            stream_of(&[more("{\"a\":")]),
            stream_of(&[more("1}")]),
            stream_of(&[end]) + "data: [DONE]\n\n",
        ];
    }
    let more = |piece: &str| {
        let delta = json!({"type": "input_json_delta", "partial_json": piece});
        stream_of(&[json!({"type": "content_block_delta", "index": 0, "delta": delta})])
    };
    let call = json!({"type": "tool_use", "id": "c", "name": "f", "input": {}});
    let usage = json!({"input_tokens": 9, "output_tokens": 3});
    vec![
        stream_of(&[
            json!({"type": "message_start", "message": {"usage": usage}}),
            json!({"type": "content_block_start", "index": 0, "content_block": call}),
        ]),
        more("{\"a\":"),
        more("1}"),
        stream_of(&[
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage}),
            json!({"type": "message_stop"}),
        ]),
    ]
}

#[sqlx::test]
async fn pieces_of_calls_are_not_held_back(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    for model in &MODELS[1..3] {
        let vendor = model.split('/').next().unwrap();
        for path in PATHS {
            upstream.reply(Reply::Steps(pieces(vendor)));
            let tools = json!([function(path, "f")]);
            let body = with(
                prompt(path, model, "x"),
                &json!({"stream": true, "tools": tools}),
            );
            let json = [("content-type", "application/json")];
            let body = Body::from(body.to_string());
            let request = raw(http::Method::POST, path, &account.key, &json, body);
            let response = tokio::spawn(app.app.router.clone().oneshot(request));
            upstream.send_events(1);
            let response = response.await.unwrap().unwrap();
            let mut body = response.into_body().into_data_stream();
            let mut seen = String::new();
            // Each is there before the next one is sent.
            for wanted in ["\"f\"", r#""{\"a\":""#, r#""1}""#] {
                while !seen.contains(wanted) {
                    let piece = timeout(PATIENCE, body.next()).await;
                    let piece = piece.unwrap_or_else(|_| panic!("no {wanted} in {seen}"));
                    seen += std::str::from_utf8(&piece.unwrap().unwrap()).unwrap();
                }
                upstream.send_events(1);
            }
            while body.next().await.is_some() {}
        }
    }
    app.assert_settled().await;
}
