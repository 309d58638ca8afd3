//! Pictures in the playground, without JavaScript.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use futures_util::{future::join_all, stream};
use http::{Request, StatusCode};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{Browser, HTML, uuid_after, words};
use crate::common::{Answer, TestApp, vendors::png};

/// Sends the playground's form with a picture.
async fn add(browser: &Browser<'_>, fields: &[(&str, &str)], picture: &[u8]) -> Answer {
    send(browser, Body::from(form(fields, picture))).await
}

fn form(fields: &[(&str, &str)], picture: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in fields {
        let part =
            format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
        body.extend_from_slice(part.as_bytes());
    }
    body.extend_from_slice(
        b"--b\r\nContent-Disposition: form-data; name=\"picture\"; filename=\"cat.png\"\r\n\
          Content-Type: image/png\r\n\r\n",
    );
    body.extend_from_slice(picture);
    body.extend_from_slice(b"\r\n--b--\r\n");
    body
}

async fn send(browser: &Browser<'_>, body: Body) -> Answer {
    let request = Request::post("/playground/image/pictures")
        .header("host", "test")
        .header("accept", HTML)
        .header("cookie", &browser.cookie)
        .header("origin", "http://test")
        .header("sec-fetch-site", "same-origin")
        .header("content-type", "multipart/form-data; boundary=b");
    browser.app.send(request.body(body).unwrap()).await
}

#[sqlx::test]
async fn a_picture_is_added_edited_and_used_again(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let browser = Browser::logged_in(&app, &account).await;
    let fields = [
        ("prompt", "At night"),
        ("p.size", "256x256"),
        ("role", "source"),
    ];
    let page = add(&browser, &fields, &png(64, 64)).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    assert!(page.text.contains("At night"));
    let before = "value=\"source upl_";
    let at = page
        .text
        .find(before)
        .unwrap_or_else(|| panic!("{}", page.text));
    let id = &page.text[at + "value=\"source ".len()..][..36];

    let input = format!("source {id}");
    let fields = [
        ("prompt", "At night"),
        ("p.size", "256x256"),
        ("input", &*input),
    ];
    let page = browser.post("/playground/image", &fields).await;
    let page = browser.follow(&page).await;
    assert!(words(&page.text).contains("Use as input"), "{}", page.text);
    let uuid = uuid_after(&page.text, "href=\"/generations/");
    let record = app.record(&account, &uuid).await;
    assert_eq!(record["inputs"][0]["upload"], json!(id));
    let receipt = browser.page(&format!("/generations/{uuid}")).await;
    assert!(
        words(&receipt).contains("Input, source 64×64, upload"),
        "{receipt}"
    );

    let again = format!("/playground/image?input=source+{uuid}/0");
    let page = browser.page(&again).await;
    assert!(
        page.contains(&format!("value=\"source {uuid}/0\"")),
        "{page}"
    );

    let refused = add(&browser, &[("prompt", "x"), ("role", "source")], b"<svg/>").await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        words(&refused.text).contains("no known type"),
        "{}",
        refused.text
    );
}

#[sqlx::test]
async fn videos_are_extended_and_outpaints_repeated(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let browser = Browser::logged_in(&app, &account).await;
    let page = browser.page("/playground/video").await;
    assert!(page.contains("<option value=\"first_frame\""), "{page}");
    assert!(!page.contains("<option value=\"source\""), "{page}");
    let video = json!({"prompt": "Waves", "provider": "sandbox", "parameters": {"duration": 1}});
    let uuid = app.queue(&account, "video", &video).await;
    app.until_finished(&account, &uuid).await;
    let page = browser.page(&format!("/generations/{uuid}")).await;
    let extend = format!("href=\"/playground/video?input=source+{uuid}/0\"");
    assert!(page.contains(&extend), "{page}");

    let source = json!({"role": "source", "data": BASE64_STANDARD.encode(png(64, 48))});
    let outpaint = json!({"prompt": "A garden", "provider": "sandbox",
        "model": "sandbox-outpaint-1", "inputs": [source],
        "parameters": {"outpaint": {"left": 16}}});
    let record = app
        .post(&account.key, "/v1/generate/image", &outpaint)
        .await
        .expect(200);
    let uuid = record["uuid"].as_str().unwrap();
    let page = browser
        .page(&format!("/playground/image?generation={uuid}"))
        .await;
    assert!(
        page.contains("name=\"p.outpaint.left\" value=\"16\""),
        "{page}"
    );
}

#[sqlx::test]
async fn forms_that_never_end_are_few_and_one_that_is_cut_is_refused(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let browser = Browser::logged_in(&app, &account).await;
    let whole = form(&[("prompt", "x"), ("role", "source")], &png(8, 8));
    let cut = Body::from(whole[..whole.len() - 20].to_vec());
    let refused = send(&browser, cut).await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
    let drips = (0..2).map(|_| {
        send(
            &browser,
            Body::from_stream(stream::pending::<Result<Bytes, Infallible>>()),
        )
    });
    let others = async {
        loop {
            let answer = send(&browser, Body::from(whole.clone())).await;
            if answer.status == StatusCode::TOO_MANY_REQUESTS {
                return;
            }
        }
    };
    tokio::select! {
        _ = join_all(drips) => panic!("a form without an end was answered"),
        () = others => {}
    }
}
