//! Mutated upstream responses of every vendor. Whatever arrives, the generation ends, a failure
//! costs nothing, a success costs at most its hold, and stored files are what they claim to be.

mod harm;
mod stage;

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{Size, check};
use harm::case;
use stage::Stage;

/// A case takes milliseconds; one that takes this long hangs.
const PATIENCE: Duration = Duration::from_mins(2);
#[sqlx::test]
async fn texts_end_whatever_is_answered(_: PgPoolOptions, options: PgConnectOptions) {
    let stage = Stage::new(options).await;
    let last = Arc::clone(&stage);
    let providers = prop::sample::select(vec!["openai", "anthropic", "gemini"]);
    let size = Size {
        small: 120,
        cost: 4,
    };
    check(
        size,
        (case(), providers, any::<bool>()),
        move |(mut case, provider, stream)| {
            let stage = Arc::clone(&stage);
            async move {
                case.stages = 1;
                stage.play(&case);
                let body = json!({"prompt": "x", "provider": provider, "stream": stream,
                "parameters": {"max_tokens": 16}});
                let answer = tokio::time::timeout(PATIENCE, stage.post("text", &body)).await;
                stage.assert_ended(&Stage::waited(&answer.unwrap())).await;
            }
        },
    )
    .await;
    last.assert_done(3).await;
}

#[sqlx::test]
async fn images_end_whatever_is_answered(_: PgPoolOptions, options: PgConnectOptions) {
    let stage = Stage::new(options).await;
    let last = Arc::clone(&stage);
    let providers = prop::sample::select(vec!["openai", "stability"]);
    let size = Size {
        small: 24,
        cost: 30,
    };
    check(size, (case(), providers), move |(mut case, provider)| {
        let stage = Arc::clone(&stage);
        async move {
            case.stages = 1;
            stage.play(&case);
            let body = json!({"prompt": "x", "provider": provider});
            let answer = tokio::time::timeout(PATIENCE, stage.post("image", &body)).await;
            stage.assert_ended(&Stage::waited(&answer.unwrap())).await;
        }
    })
    .await;
    last.assert_done(2).await;
}

#[sqlx::test]
async fn jobs_end_whatever_is_answered(_: PgPoolOptions, options: PgConnectOptions) {
    let stage = Stage::new(options).await;
    let last = Arc::clone(&stage);
    let speech = |provider: &str, format: &str| {
        let parameters = json!({"format": format});
        (
            "audio",
            json!({"prompt": "x", "provider": provider, "parameters": parameters}),
        )
    };
    let video = |provider: &str| {
        let parameters = json!({"duration": 3});
        (
            "video",
            json!({"prompt": "x", "provider": provider, "parameters": parameters}),
        )
    };
    let requests = prop::sample::select(vec![
        speech("openai", "mp3"),
        speech("openai", "wav"),
        speech("elevenlabs", "mp3"),
        speech("elevenlabs", "wav"),
        speech("gemini", "wav"),
        video("runway"),
        video("gemini"),
    ]);
    let size = Size {
        small: 50,
        cost: 15,
    };
    check(size, (case(), requests), move |(mut case, (kind, body))| {
        let stage = Arc::clone(&stage);
        async move {
            if kind == "audio" {
                case.stages = 1;
            }
            stage.play(&case);
            let uuid = stage.app.queue(&stage.account, kind, &body).await;
            let ending = stage.app.until_finished(&stage.account, &uuid);
            let record = tokio::time::timeout(PATIENCE, ending).await.unwrap();
            stage.assert_ended(&record).await;
        }
    })
    .await;
    last.assert_done(5).await;
}
