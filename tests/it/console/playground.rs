//! What the playground makes.

use http::StatusCode;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{Browser, uuid_after, words};
use crate::common::TestApp;

#[sqlx::test]
async fn the_playground_generates_all_four(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    let browser = Browser::logged_in(&app, &account).await;
    for (kind, fields) in [
        (
            "text",
            vec![
                ("prompt", "Name three\r\nrivers"),
                ("system_prompt", "Be short."),
                ("p.max_tokens", "50"),
            ],
        ),
        (
            "image",
            vec![
                ("prompt", "A tower"),
                ("p.size", "256x256"),
                ("p.n", "2"),
                ("p.quality", "hd"),
            ],
        ),
        (
            "video",
            vec![
                ("prompt", "Waves"),
                ("p.duration", "2"),
                ("p.ratio", "9:16"),
            ],
        ),
        (
            "audio",
            vec![
                ("prompt", "Good morning"),
                ("p.format", "wav"),
                ("p.speed", "1.5"),
            ],
        ),
    ] {
        let path = format!("/playground/{kind}");
        let mut preview = fields.clone();
        preview.push(("action", "preview"));
        let page = browser.post(&path, &preview).await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.text);
        assert!(
            words(&page.text).contains("are available."),
            "{kind}: {}",
            page.text
        );
        assert!(words(&page.text).contains("The result shows here"));

        let page = browser.post(&path, &fields).await;
        let page = browser.follow(&page).await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.text);
        let uuid = uuid_after(&page.text, "href=\"/generations/");
        let record = app.until_finished(&account, &uuid).await;
        assert_eq!(
            (&record["type"], &record["status"]),
            (&json!(kind), &json!("completed"))
        );
        let parameters = &record["parameters"];
        match kind {
            "text" => {
                assert_eq!(record["prompt"], "Name three\nrivers");
                assert_eq!(parameters["max_tokens"], 50);
            }
            "image" => assert_eq!(
                (&parameters["n"], &parameters["quality"]),
                (&json!(2), &json!("hd"))
            ),
            "video" => assert_eq!(
                (&parameters["duration"], &parameters["ratio"]),
                (&json!(2), &json!("9:16"))
            ),
            _ => assert_eq!(
                (&parameters["format"], &parameters["speed"]),
                (&json!("wav"), &json!(1.5))
            ),
        }
        let shown = browser.page(&format!("{path}?generation={uuid}")).await;
        let expected = match kind {
            "text" => "class=\"prose\"",
            "image" => "<img src=\"http://test/v1/media/",
            "video" => "<video src=\"http://test/v1/media/",
            _ => "<audio src=\"http://test/v1/media/",
        };
        assert!(shown.contains(expected), "{kind}: {shown}");
    }
    app.assert_verified().await;
}

/// A form that is sent again, by a second press or a reload, is the same request.
#[sqlx::test]
async fn a_form_sent_twice_is_charged_once(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    let browser = Browser::logged_in(&app, &account).await;
    let page = browser.page("/playground/text").await;
    let ticket = uuid_after(&page, "name=\"ticket\" value=\"");
    let fields = [("prompt", "once"), ("ticket", ticket.as_str())];
    let first = browser.post("/playground/text", &fields).await;
    let again = browser.post("/playground/text", &fields).await;
    assert!(
        first
            .header("location")
            .starts_with("/playground/text?generation=")
    );
    assert_eq!(first.header("location"), again.header("location"));
    let page = browser.follow(&again).await;
    let next = uuid_after(&page.text, "name=\"ticket\" value=\"");
    let fields = [("prompt", "once"), ("ticket", next.as_str())];
    let other = browser.post("/playground/text", &fields).await;
    assert_ne!(first.header("location"), other.header("location"));
}

#[sqlx::test]
async fn a_text_streams_to_the_page(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    let browser = Browser::logged_in(&app, &account).await;
    let headers = [
        ("origin", "http://test"),
        ("accept", "text/event-stream"),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    let mut request = http::Request::post("/playground/text").header("host", "test");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request
        .header("cookie", &browser.cookie)
        .body("prompt=rivers".into())
        .unwrap();
    let events = app.send(request).await.events();
    assert_eq!(events.first().unwrap().0, "generation");
    let (name, record) = events.last().unwrap();
    assert_eq!(
        (name.as_str(), &record["status"]),
        ("completed", &json!("completed"))
    );
}

/// Finds what a page shows as available: in the menu, in the sidebar and next to the price.
fn balances(page: &str) -> Vec<String> {
    let parts = page.split("data-balance").skip(1);
    let value = |part: &str| words(part).split(' ').next().unwrap().to_owned();
    parts.map(value).collect()
}

#[sqlx::test]
async fn every_balance_of_a_page_is_true_after_a_run(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    let browser = Browser::logged_in(&app, &account).await;
    for (kind, more) in [
        ("text", ("p.max_tokens", "90")),
        ("image", ("p.n", "2")),
        ("audio", ("p.speed", "1")),
    ] {
        let fields = [("prompt", "A lighthouse"), more];
        let done = browser.post(&format!("/playground/{kind}"), &fields).await;
        let page = browser.follow(&done).await.text;
        let balance = app.get(&account.key, "/v1/credits/balance").await.json();
        let expected = balance["available"].as_str().unwrap();
        assert_eq!(balances(&page), [expected; 3], "{kind}");
    }
}

/// A refused run, a preview and another run leave the running job in view.
#[sqlx::test]
async fn running_job_stays_in_view(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let browser = Browser::logged_in(&app, &account).await;
    let fields = [("prompt", "[[slow:60]] first"), ("p.duration", "2")];
    let first = browser.post("/playground/video", &fields).await;
    let page = browser.follow(&first).await.text;
    let uuid = uuid_after(&page, "name=\"generation\" value=\"");
    let receipt = format!("/generations/{uuid}");
    assert!(page.contains(&receipt) && page.contains("http-equiv=\"refresh\""));

    for (prompt, more, status) in [
        ("second", ("p.duration", "60"), StatusCode::PAYMENT_REQUIRED),
        (" ", ("p.duration", "2"), StatusCode::UNPROCESSABLE_ENTITY),
        ("second", ("action", "preview"), StatusCode::OK),
    ] {
        let fields = [("prompt", prompt), ("generation", uuid.as_str()), more];
        let page = browser.post("/playground/video", &fields).await;
        assert_eq!(page.status, status, "{more:?}: {}", page.text);
        let (_, result) = page.text.split_once("id=\"result\"").unwrap();
        assert!(result.contains(&receipt), "{more:?}: {result}");
        assert!(page.text.contains(&format!("{prompt}</textarea>")));
        let is_refused = status != StatusCode::OK;
        let reloads = page.text.contains("http-equiv=\"refresh\"");
        assert_eq!(reloads, !is_refused, "{more:?}");
    }

    let fields = [("prompt", "[[slow:60]] other"), ("p.duration", "2")];
    let other = browser.post("/playground/video", &fields).await;
    let page = browser.follow(&other).await.text;
    let (_, running) = page.split_once("id=\"running\"").unwrap();
    assert!(running.contains(&receipt), "{running}");
    let page = browser.page("/playground/video").await;
    assert!(page.contains(&receipt), "{page}");
}
