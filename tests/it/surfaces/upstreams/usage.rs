//! Token counts, and what is charged by them.

use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{
    ACME, CHAT, MESSAGES, MODELS, acme, answered, ask, both, chunk, error, request, said, sse,
};
use crate::common::{Reply, Upstream};

/// The tokens of input, cached input and output of a record, and whether they are estimated.
fn tokens(record: &Value) -> (u64, u64, u64, bool) {
    let usage = &record["usage"];
    let count = |name: &str| usage[name].as_u64().unwrap_or(0);
    (
        count("input_tokens"),
        count("cached_input_tokens"),
        count("output_tokens"),
        usage["estimated"] == true,
    )
}

#[sqlx::test]
async fn cached_tokens_beside_the_prompt_are_cached_input(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let text = "x".repeat(13_000);
    for (usage, charged) in [
        (
            json!({"prompt_tokens": 400, "completion_tokens": 20, "total_tokens": 12_420,
            "cache_read_input_tokens": 12_000}),
            "0.18",
        ),
        (
            json!({"prompt_tokens": 400, "completion_tokens": 20, "total_tokens": 420,
            "prompt_tokens_details": {"cached_tokens": 12_000}}),
            "0.18",
        ),
        (
            json!({"prompt_tokens": 400, "completion_tokens": 20, "cached_tokens": 12_000}),
            "0.18",
        ),
        (
            json!({"prompt_tokens": 12_400, "completion_tokens": 20, "total_tokens": 12_420,
            "cached_tokens": 12_000}),
            "0.18",
        ),
        // Nothing explains the rest of the total.
        (
            json!({"prompt_tokens": 400, "completion_tokens": 20, "total_tokens": 12_420}),
            "0.06",
        ),
        // xAI.
        (
            json!({"prompt_tokens": 400, "completion_tokens": 20, "total_tokens": 740,
            "completion_tokens_details": {"reasoning_tokens": 320}}),
            "0.38",
        ),
        // Above the hold of 13,000 bytes and 500 tokens.
        (
            json!({"prompt_tokens": 400, "completion_tokens": 9_000, "cached_tokens": 10_u64.pow(12)}),
            "hold",
        ),
    ] {
        upstream.play(said("Hello there.", &usage));
        for body in both(&request(CHAT, ACME, &text)) {
            let (_, record) = answered(&app, &account, CHAT, &body).await;
            let expected = if charged == "hold" {
                &record["credits"]["estimated"]
            } else {
                &json!(charged)
            };
            assert_eq!(&record["credits"]["charged"], expected, "{usage} {record}");
        }
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn zeros_that_cannot_be_are_missing(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let text = "x".repeat(2_000);
    for (usage, expected) in [
        (
            json!({"prompt_tokens": 0, "completion_tokens": 5}),
            (500, 0, 5, true),
        ),
        (
            json!({"prompt_tokens": 0, "completion_tokens": 5, "total_tokens": 5}),
            (500, 0, 5, true),
        ),
        (
            json!({"prompt_tokens": 600, "completion_tokens": 0}),
            (600, 0, 3, true),
        ),
        (
            json!({"prompt_tokens": -7, "completion_tokens": 5.5}),
            (500, 0, 3, true),
        ),
        (
            json!({"prompt_tokens": "600", "completion_tokens": "5"}),
            (500, 0, 3, true),
        ),
        (
            json!({"prompt_tokens": 0, "completion_tokens": 5, "cached_tokens": 900}),
            (900, 900, 5, false),
        ),
        (
            json!({"prompt_tokens": 600.0, "completion_tokens": 5.0}),
            (600, 0, 5, false),
        ),
    ] {
        upstream.play(said("Hello there.", &usage));
        for body in both(&request(CHAT, ACME, &text)) {
            let (_, record) = answered(&app, &account, CHAT, &body).await;
            assert_eq!(tokens(&record), expected, "{usage}");
        }
    }
    let model = MODELS[2];
    let message = json!({"id": "m", "type": "message", "model": "m", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "Hello there."}],
        "usage": {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0}});
    upstream.reply(Reply::Status(200, message));
    let (_, record) = answered(&app, &account, MESSAGES, &request(MESSAGES, model, &text)).await;
    assert_eq!(tokens(&record), (500, 0, 3, true));
    // A cache that was not used.
    let message = json!({"id": "m", "type": "message", "model": "m", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "Hello there."}],
        "usage": {"input_tokens": 600, "output_tokens": 5, "cache_creation": null,
            "cache_creation_input_tokens": null, "cache_read_input_tokens": null}});
    upstream.reply(Reply::Status(200, message));
    let (_, record) = answered(&app, &account, MESSAGES, &request(MESSAGES, model, &text)).await;
    assert_eq!(tokens(&record), (600, 0, 5, false));
    app.assert_settled().await;
}

#[sqlx::test]
async fn later_zeros_replace_no_count(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let chunk = |text: &str, finish: Option<&str>, usage: Value| {
        let mut chunk = chunk(&json!({"content": text}), finish);
        chunk["usage"] = usage;
        chunk
    };
    let full = json!({"prompt_tokens": 100, "completion_tokens": 4, "total_tokens": 154,
        "cache_read_input_tokens": 50});
    let zeros = json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0,
        "cache_read_input_tokens": 0});
    for last in [
        zeros,
        json!({"prompt_tokens": 100, "completion_tokens": 4}),
        json!({"prompt_tokens": -1}),
        json!({}),
    ] {
        upstream.reply(sse(&[
            chunk("Hello", None, full.clone()),
            chunk(" there.", Some("stop"), last.clone()),
        ]));
        let body = &both(&request(CHAT, ACME, "x"))[1];
        let (_, record) = answered(&app, &account, CHAT, body).await;
        assert_eq!(tokens(&record), (150, 50, 4, false), "{last}");
    }
    let model = MODELS[2];
    for (last, output) in [
        (
            json!({"input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 7}),
            7,
        ),
        (
            json!({"input_tokens": null, "cache_read_input_tokens": -1, "output_tokens": 7}),
            7,
        ),
        (
            json!({"input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0}),
            3,
        ),
    ] {
        upstream.reply(sse(&[
            json!({"type": "message_start", "message": {"id": "m", "model": "m",
                "usage": {"input_tokens": 100, "cache_read_input_tokens": 50, "output_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hello there."}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last}),
            json!({"type": "message_stop"}),
        ]));
        let body = &both(&request(MESSAGES, model, "x"))[1];
        let (_, record) = answered(&app, &account, MESSAGES, body).await;
        assert_eq!(tokens(&record), (150, 50, output, output == 3), "{last}");
    }
    let data = |text: &str, usage: Value| json!({"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "STOP"}], "usageMetadata": usage});
    upstream.reply(sse(&[
        data("Hello there.", json!({"promptTokenCount": 100, "cachedContentTokenCount": 50, "candidatesTokenCount": 4})),
        data("", json!({"promptTokenCount": 0, "cachedContentTokenCount": 0, "candidatesTokenCount": 0})),
    ]));
    let body = &both(&request(CHAT, MODELS[3], "x"))[1];
    let (_, record) = answered(&app, &account, CHAT, body).await;
    assert_eq!(tokens(&record), (100, 50, 4, false));
    app.assert_settled().await;
}

#[sqlx::test]
async fn counts_in_other_places_are_read(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let text = "x".repeat(2_000);
    let main = json!({"prompt_tokens": 1_000, "completion_tokens": 5, "total_tokens": 1_005});
    for more in [
        json!({"cached_tokens": 900}),
        json!({"num_cached_tokens": 900}),
        json!({"prompt_cache_hit_tokens": 900, "prompt_cache_miss_tokens": 100}),
        json!({"prompt_tokens_details": {"cached_tokens": 900}}),
    ] {
        let usage = super::with(main.clone(), &more);
        upstream.play(said("Hello there.", &usage));
        for body in both(&request(CHAT, ACME, &text)) {
            let (_, record) = answered(&app, &account, CHAT, &body).await;
            assert_eq!(tokens(&record), (1_000, 900, 5, false), "{usage}");
            assert_eq!(record["credits"]["charged"], "0.024");
        }
    }
    // Moonshot's streams have it in the choice.
    let mut last = chunk(&json!({"content": "Hello there."}), Some("stop"));
    last["choices"][0]["usage"] = super::with(main, &json!({"cached_tokens": 900}));
    upstream.reply(sse(&[last]));
    let body = &both(&request(CHAT, ACME, &text))[1];
    let (_, record) = answered(&app, &account, CHAT, body).await;
    assert_eq!(tokens(&record), (1_000, 900, 5, false));
    app.assert_settled().await;
}

#[sqlx::test]
async fn iterations_are_charged_by_their_sum(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let text = "x".repeat(2_000);
    let iteration = |kind: &str, input: u64, read: u64, output: u64| {
        json!({"type": kind, "input_tokens": input, "cache_read_input_tokens": read,
            "cache_creation_input_tokens": 0, "output_tokens": output})
    };
    for (iterations, expected) in [
        (
            json!([
                iteration("compaction", 500, 0, 80),
                iteration("message", 100, 50, 5)
            ]),
            (650, 50, 85, false),
        ),
        (
            json!([
                iteration("message", 60, 50, 2),
                iteration("message", 40, 0, 3)
            ]),
            (150, 50, 5, false),
        ),
        (
            json!([iteration("compaction", 50, 0, 8)]),
            (150, 50, 8, false),
        ),
        (json!([{"type": "message"}]), (150, 50, 5, false)),
        (json!([]), (150, 50, 5, false)),
        (Value::Null, (150, 50, 5, false)),
    ] {
        let usage = json!({"input_tokens": 100, "cache_read_input_tokens": 50, "output_tokens": 5,
            "iterations": iterations});
        let message = json!({"id": "m", "type": "message", "model": "m", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": "Hello there."}], "usage": usage});
        upstream.reply(Reply::Status(200, message));
        let body = request(MESSAGES, MODELS[2], &text);
        let (_, record) = answered(&app, &account, MESSAGES, &body).await;
        assert_eq!(tokens(&record), expected, "{iterations}");
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn compaction_and_other_payers_are_refused_by_name(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let (app, account) = acme(options, &upstream).await;
    let edit = json!({"edits": [{"type": "compact_20260112"}]});
    for (name, more) in [
        ("compaction", json!({"compaction": {"type": "summarize"}})),
        ("compaction", json!({"compaction": {}})),
        ("context_management", json!({"context_management": edit})),
        (
            "billing_policy",
            json!({"billing_policy": {"type": "billing_policy", "bill_to": "self"}}),
        ),
        (
            "fallback_credit_token",
            json!({"fallback_credit_token": "x"}),
        ),
    ] {
        for path in [MESSAGES, "/anthropic/v1/messages/count_tokens"] {
            let body = super::with(ask(MODELS[2], "x"), &more);
            let answer = app.post(&account.key, path, &body).await;
            let refused = error(path, &answer, 400, "unsupported_parameter");
            assert_eq!(refused["details"]["unsupported"][0], name, "{path} {more}");
        }
    }
    // The beta of a refused field costs nothing by itself, and some agents always send it.
    upstream.reply(Reply::Text("Hello there.".to_owned(), 9, 3));
    let (headers, body) = (
        [("anthropic-beta", "compact-2026-09-04")],
        ask(MODELS[2], "x"),
    );
    let answer = app.post_with(&account.key, MESSAGES, &headers, &body).await;
    answer.expect(200);
    assert_eq!(upstream.count(), 1);
    app.assert_settled().await;
}
