//! POST /v1/generate/image: exact sizes, billed by the stored images.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{
    Answer, TestApp, Upstream,
    vendors::{openai_images, png, stability_image},
};

mod refused;

async fn ask(app: &TestApp, key: &str, body: &Value) -> Answer {
    app.post(key, "/v1/generate/image", body).await
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .map(|digit| char::from_digit(digit.into(), 16).unwrap())
        .collect()
}

/// The size of a stored file, by a decoder that is not ours.
async fn pixels(app: &TestApp, url: &Value) -> (u32, u32) {
    let file = app.file(url, &[]).await;
    assert_eq!(
        (file.status.as_u16(), file.header("content-type")),
        (200, "image/png")
    );
    let picture = image::load_from_memory(&file.bytes).unwrap();
    (picture.width(), picture.height())
}

#[sqlx::test]
async fn the_record_of_images(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.reply(openai_images(&[png(1024, 1024), png(1024, 1024)]));
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let body = json!({"prompt": "a cat", "provider": "openai", "parameters": {"n": 2}});
    let record = ask(&app, &account.key, &body).await.expect(200);
    assert_eq!(
        (&record["type"], &record["status"], &record["model"]),
        (
            &json!("image"),
            &json!("completed"),
            &json!("gpt-image-2.5-flare")
        )
    );
    assert_eq!(
        record["parameters"],
        json!({"size": "1024x1024", "quality": "standard", "n": 2})
    );
    assert_eq!(record["usage"], json!({"images": 2}));
    assert_eq!(
        record["credits"],
        json!({"estimated": "2.9", "held": "0", "charged": "2.9"})
    );
    assert_eq!(record["progress"], Value::Null);
    assert_eq!(record["metadata"]["provider_request_id"], "req_up");
    assert_eq!(record["outputs"].as_array().unwrap().len(), 2);
    assert_eq!(record["result"], record["outputs"][0]["url"]);
    for output in record["outputs"].as_array().unwrap() {
        let file = app.file(&output["url"], &[]).await;
        let sha256 = hex(&Sha256::digest(&file.bytes));
        let mut metadata = output.clone();
        metadata.as_object_mut().unwrap().remove("url");
        assert_eq!(
            metadata,
            json!({"type": "image", "content_type": "image/png", "bytes": file.bytes.len(),
                "sha256": sha256, "width": 1024, "height": 1024})
        );
    }
    let sent = &upstream.requests()[0].body;
    assert_eq!(
        (&sent["n"], &sent["size"], &sent["quality"], &sent["prompt"]),
        (
            &json!(2),
            &json!("1024x1024"),
            &json!("medium"),
            &json!("a cat")
        )
    );
    // A lookup shows the same.
    let uuid = record["uuid"].as_str().unwrap();
    assert_eq!(app.record(&account, uuid).await, record);
    let history = app
        .get(&account.key, "/v1/generate/history?type=image")
        .await
        .expect(200);
    assert_eq!(history["data"][0]["result"], record["result"]);
    assert_eq!(app.files().len(), 2);
    app.assert_settled().await;
}

#[sqlx::test]
async fn every_size_has_its_exact_pixels(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("1000").await;
    // The sandbox generates each natively.
    for size in ["256x256", "512x512", "1024x1024", "1024x1792", "1792x1024"] {
        let (width, height) = size.split_once('x').unwrap();
        let asked = (width.parse().unwrap(), height.parse().unwrap());
        let body = json!({"prompt": "x", "provider": "sandbox", "parameters": {"size": size}});
        let record = ask(&app, &account.key, &body).await.expect(200);
        assert_eq!(
            pixels(&app, &record["result"]).await,
            asked,
            "sandbox {size}"
        );
        assert_eq!(record["credits"]["charged"], "1");
        let body = json!({"prompt": "x", "provider": "openai", "parameters": {"size": size}});
        // A smaller square is scaled down from the smallest that the model generates.
        let native = if asked.0 < 1024 { (1024, 1024) } else { asked };
        upstream.reply(openai_images(&[png(native.0, native.1)]));
        let record = ask(&app, &account.key, &body).await.expect(200);
        assert_eq!(
            pixels(&app, &record["result"]).await,
            asked,
            "openai {size}"
        );
        assert_eq!(record["parameters"]["size"], size);
        let sent = format!("{}x{}", native.0, native.1);
        assert_eq!(upstream.requests().pop().unwrap().body["size"], sent);
    }
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_came_is_billed(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let body =
        json!({"prompt": "x", "provider": "openai", "parameters": {"n": 4, "quality": "hd"}});
    // Fewer; one that is not an image; and more than requested.
    let garbage = axum::body::Bytes::from_static(b"no image at all, not even near");
    for (images, billed, charged) in [
        (vec![png(1024, 1024); 3], 3, "16.2"),
        (
            vec![png(1024, 1024), garbage.clone(), png(1024, 1024)],
            2,
            "10.8",
        ),
        (vec![png(1024, 1024); 6], 4, "21.6"),
    ] {
        upstream.reply(openai_images(&images));
        let record = ask(&app, &account.key, &body).await.expect(200);
        assert_eq!(record["usage"], json!({"images": billed}));
        assert_eq!(
            record["credits"],
            json!({"estimated": "21.6", "held": "0", "charged": charged})
        );
        assert_eq!(record["outputs"].as_array().unwrap().len(), billed);
        for output in record["outputs"].as_array().unwrap() {
            assert_eq!(pixels(&app, &output["url"]).await, (1024, 1024));
        }
    }
    assert_eq!(upstream.requests()[0].body["quality"], "high");
    assert_eq!(app.files().len(), 9);
    app.assert_settled().await;
}

#[sqlx::test]
async fn what_a_model_has_no_field_for_is_a_sentence_of_the_prompt(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.reply(openai_images(&[png(1024, 1024)]));
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let account = app.account("100").await;
    let body = |provider: &str| {
        json!({"prompt": "a harbour", "negative_prompt": "rain clouds", "provider": provider,
            "parameters": {"style": "vivid"}})
    };
    let record = ask(&app, &account.key, &body("openai")).await.expect(200);
    assert_eq!(record["prompt"], "a harbour");
    assert_eq!(record["parameters"]["style"], "vivid");
    let sent = upstream.requests().pop().unwrap().body;
    let prompt = sent["prompt"].as_str().unwrap();
    assert!(prompt.starts_with("a harbour"), "{prompt}");
    assert!(prompt.contains("rain clouds"), "{prompt}");
    assert!(prompt.to_lowercase().contains("vivid"), "{prompt}");
    assert!(sent.get("style").is_none() && sent.get("negative_prompt").is_none());
    // Stability has fields for both.
    upstream.reply(stability_image(&png(1024, 1024), "SUCCESS"));
    ask(&app, &account.key, &body("stability"))
        .await
        .expect(200);
    let form = upstream.requests().pop().unwrap().text;
    for part in [
        "name=\"negative_prompt\"\r\n\r\nrain clouds\r\n",
        "name=\"prompt\"\r\n\r\na harbour\r\n",
        "name=\"style_preset\"\r\n\r\ncinematic\r\n",
    ] {
        assert!(form.contains(part), "{form}");
    }
}
