//! Images that are refused, by the name of their field, before anything is held.

use std::{fs, path::PathBuf};

use uuid::Uuid;

use super::*;
use crate::{common::CONFIG_FILE, surfaces::error};

fn parameter(path: &str, error: &Value) -> Value {
    match path {
        MESSAGES => error["details"]["unsupported"][0].clone(),
        _ => error["param"].clone(),
    }
}

#[sqlx::test]
async fn what_a_model_does_not_take(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10000").await;
    let gif = BASE64_STANDARD.encode(b"GIF89a\x01\0\x01\0\0\0\0");
    let gemini = MODELS[3];
    for path in DIALECTS {
        let one = |source: &str| vec![shown(path, source, None)];
        let messages = if path == RESPONSES {
            "input"
        } else {
            "messages"
        };
        for (body, why) in [
            (saying(path, gemini, &one(URL)), "has an image by URL"),
            (saying(path, gemini, &one(&data_url(&gif))), "has a GIF"),
            (
                saying(
                    path,
                    "gemini/gemini-2.5-flash-lite",
                    &one(&data_url(&png())),
                ),
                "does not take",
            ),
            (tool_shows(path, gemini), "in the result of a tool"),
            (
                saying(path, MODELS[0], &vec![shown(path, URL, None); 501]),
                "has 501 images",
            ),
        ] {
            let answer = app.post(&account.key, path, &body).await;
            let refused = error(path, &answer, 400, "unsupported_parameter");
            assert_eq!(parameter(path, &refused), messages, "{refused}");
            let message = refused["message"].as_str().unwrap();
            assert!(message.contains(why), "{message}");
            // What cannot be asked is not counted.
            if let Some((route, body)) = counting(path, &body) {
                let answer = app.post(&account.key, &route, &body).await;
                let uncounted = error(path, &answer, 400, "unsupported_parameter");
                assert_eq!(parameter(path, &uncounted), messages, "{uncounted}");
                assert_eq!(uncounted["message"], refused["message"]);
            }
        }
        if path != CHAT {
            let answer = app
                .post(&account.key, path, &tool_shows(path, MODELS[1]))
                .await;
            error(path, &answer, 400, "unsupported_parameter");
        }
        let most = saying(path, MODELS[0], &vec![shown(path, URL, None); 500]);
        app.post(&account.key, path, &most).await.expect(200);
    }
    assert_eq!(upstream.count(), 0);
    app.assert_settled().await;
}

/// To others it passes only as it came.
#[sqlx::test]
async fn detail_original_is_for_models_that_know_it(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("10").await;
    let body = |path: &str, model: &str| {
        let image = shown(path, &data_url(&png()), Some("original"));
        saying(path, model, &[said(path, "What?"), image])
    };
    let older = "openai/gpt-4.1";
    let refused = body(RESPONSES, older);
    let answer = app.post(&account.key, RESPONSES, &refused).await;
    let refused = error(RESPONSES, &answer, 400, "unsupported_parameter");
    assert_eq!(refused["param"], "input");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("detail original"), "{message}");
    assert_eq!(upstream.count(), 0);
    for (path, model) in [(CHAT, older), (CHAT, MODELS[1]), (RESPONSES, MODELS[1])] {
        let answer = app.post(&account.key, path, &body(path, model)).await;
        answer.expect(200);
        let sent = upstream.requests().pop().unwrap().body;
        let image = &sent["messages"][0]["content"][1]["image_url"];
        assert_eq!(image["detail"], "original", "{path} {model}");
    }
    for model in [MODELS[0], MODELS[2]] {
        let answer = app.post(&account.key, CHAT, &body(CHAT, model)).await;
        answer.expect(200);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_is_no_image(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let good = png();
    let (cut, text) = (&good[..20], BASE64_STANDARD.encode("no image, but a text"));
    for path in DIALECTS {
        let (messages, at) = match path {
            CHAT => ("messages", "image_url.url"),
            RESPONSES => ("input", "image_url"),
            _ => ("messages", "source.data"),
        };
        let field = format!("{messages}[0].content[0].{at}");
        for data in [cut, text.as_str(), "AAAA", "no base64!", &good[1..]] {
            let body = saying(path, MODELS[0], &[shown(path, &data_url(data), None)]);
            let answer = app.post(&account.key, path, &body).await;
            let refused = error(path, &answer, 400, "invalid_format");
            let message = refused["message"].as_str().unwrap();
            assert!(
                message.starts_with(&field) && !message.contains(';'),
                "{message}"
            );
        }
    }
    let first = |path: &str| {
        if path == RESPONSES {
            "input[0].content"
        } else {
            "messages[0].content"
        }
    };
    let base64 = |kind: &str| json!({"type": "image", "source": {"type": "base64", "media_type": kind, "data": good}});
    let file = json!({"type": "image", "source": {"type": "file", "file_id": "f"}});
    for (path, part, at) in [
        (
            CHAT,
            shown(CHAT, "data:image/svg+xml;base64,PHN2Zy8+", None),
            "[0].image_url.url",
        ),
        (
            CHAT,
            json!({"type": "file", "file": {"file_id": "f"}}),
            "[0].file.file_id",
        ),
        (
            RESPONSES,
            shown(RESPONSES, "data:application/pdf;base64,JVBERi0=", None),
            "[0].image_url",
        ),
        (
            RESPONSES,
            json!({"type": "input_image", "file_id": "f"}),
            "[0].file_id",
        ),
        (MESSAGES, base64("image/svg+xml"), "[0].source.media_type"),
        (MESSAGES, file, "[0].source.type"),
    ] {
        let answer = app
            .post(&account.key, path, &saying(path, MODELS[0], &[part]))
            .await;
        let refused = error(path, &answer, 400, "unsupported_parameter");
        let named = format!("{}{at}", first(path));
        assert!(
            refused["message"].as_str().unwrap().contains(&named),
            "{refused}"
        );
    }
    // Vendors fetch what is on the web, and nothing else.
    for path in DIALECTS {
        let body = saying(path, MODELS[0], &[shown(path, "file:///etc/passwd", None)]);
        let answer = app.post(&account.key, path, &body).await;
        error(path, &answer, 400, "invalid_format");
        for role in ["system", "assistant"] {
            let mut body = saying(path, MODELS[0], &[shown(path, URL, None)]);
            let messages = if path == RESPONSES {
                "input"
            } else {
                "messages"
            };
            body[messages][0]["role"] = json!(role);
            let answer = app.post(&account.key, path, &body).await;
            let refused = error(path, &answer, 400, "unsupported_parameter");
            assert_eq!(parameter(path, &refused), first(path), "{refused}");
        }
    }
    assert!(app.history(&account).await.is_empty());
}

/// They may be in a network that the caller cannot reach.
#[sqlx::test]
async fn urls_for_servers_of_the_operators(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let url = upstream.url();
    let file = format!(
        "[providers.local]\nkind = \"openai_compatible\"\nbase_url = \"{url}/v1\"\n\
         [[providers.local.models]]\nid = \"m\"\ntype = \"text\"\n\
         prices = {{ input_per_million = \"1\", output_per_million = \"2\" }}\n\
         limits = {{ images = {{ kind = \"flat\", tokens = 9 }} }}\n"
    );
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(Uuid::now_v7().to_string());
    fs::write(&path, file).unwrap();
    let app = TestApp::with(options, &[(CONFIG_FILE, path.to_str().unwrap())]).await;
    fs::remove_file(path).unwrap();
    let account = app.account("10").await;
    for path in DIALECTS {
        let body = saying(
            path,
            "local/m",
            &[shown(path, "http://169.254.169.254/", None)],
        );
        let answer = app.post(&account.key, path, &body).await;
        let refused = error(path, &answer, 400, "unsupported_parameter");
        assert!(
            refused["message"].as_str().unwrap().contains("by URL"),
            "{refused}"
        );
        assert_eq!(upstream.count(), 0);
    }
    let body = saying(CHAT, "local/m", &[shown(CHAT, &data_url(&png()), None)]);
    app.post(&account.key, CHAT, &body).await.expect(200);
    assert_eq!(upstream.count(), 1);
    app.assert_settled().await;
}
