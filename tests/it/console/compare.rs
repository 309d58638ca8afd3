//! One prompt on several models, side by side.

use http::StatusCode;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{Browser, generate, uuid_after, words};
use crate::{
    common::{Reply, TestApp, Upstream},
    v1::retired::with_file,
};

const TEXTS: &str = "/playground/text/compare";

/// The uuids of the columns of a page.
fn runs(page: &str) -> Vec<String> {
    let parts = page.split("id=\"run-").skip(1);
    parts.map(|part| part[..36].to_owned()).collect()
}

#[sqlx::test]
async fn a_prompt_runs_on_three_models_each_with_its_cost(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.play(|_| Reply::Text("Sure.".to_owned(), 300, 3));
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1000").await;
    let browser = Browser::logged_in(&app, &account).await;
    let fields = [
        ("model", "sandbox/sandbox-text-1"),
        ("model", "openai/gpt-6-luna"),
        ("model", "sandbox/sandbox-text-1"),
        ("prompt", "Name three\r\nrivers"),
        ("system_prompt", "Be short."),
        ("p.max_tokens", "50"),
    ];
    let mut preview = fields.to_vec();
    preview.push(("action", "preview"));
    let page = words(&browser.post(TEXTS, &preview).await.text);
    for name in ["sandbox/sandbox-text-1", "openai/gpt-6-luna"] {
        assert!(
            page.contains(&format!("{name} At most")),
            "{name} in {page}"
        );
    }
    assert!(app.history(&account).await.is_empty());

    let answer = browser.post(TEXTS, &fields).await;
    let page = browser.follow(&answer).await.text;
    let uuids = runs(&page);
    assert_eq!(uuids.len(), 3, "{page}");
    let mut costs = Vec::new();
    for (uuid, (_, model)) in uuids.iter().zip(fields) {
        let record = app.until_finished(&account, uuid).await;
        assert_eq!(record["status"], "completed", "{record}");
        assert_eq!(record["prompt"], "Name three\nrivers");
        assert_eq!(record["parameters"]["max_tokens"], 50);
        let served = format!("{}/{}", record["provider"], record["model"]);
        assert_eq!(served.replace('"', ""), model);
        costs.push(record["credits"]["charged"].as_str().unwrap().to_owned());
    }
    assert_eq!(app.history(&account).await.len(), 3);
    let page = browser.page(answer.header("location")).await;
    let shown = words(&page);
    for cost in &costs {
        assert!(
            shown.contains(&format!("Charged {cost} credits")),
            "{cost} in {shown}"
        );
    }
    assert!(shown.contains("Sure."), "{shown}");
    // The next run starts from the same form.
    assert!(page.contains("rivers</textarea>") && page.contains("Be short.</textarea>"));
    assert!(
        page.contains("name=\"p.max_tokens\" value=\"50\""),
        "{page}"
    );
    assert_eq!(
        page.matches("<option value=\"openai/gpt-6-luna\" selected>")
            .count(),
        1
    );
    assert!(!page.contains("http-equiv=\"refresh\""));
    app.assert_verified().await;
}

#[sqlx::test]
async fn refused_column_does_not_stop_the_others(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let browser = Browser::logged_in(&app, &account).await;
    let page = browser
        .post(
            TEXTS,
            &[
                ("model", "nope/<b>"),
                ("model", "sandbox/sandbox-text-1"),
                ("model", "sandbox/gone"),
                ("prompt", "rivers"),
            ],
        )
        .await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    let uuids = runs(&page.text);
    assert_eq!(uuids.len(), 1, "{}", page.text);
    let record = app.until_finished(&account, &uuids[0]).await;
    assert_eq!(record["status"], "completed");
    let shown = words(&page.text);
    for word in [
        "nope/&lt;b&gt; Refused Provider must be one of sandbox",
        "sandbox/gone Refused Model `gone` is not a text model of `sandbox`; use sandbox-text-1.",
        "Nothing was held or charged.",
    ] {
        assert!(shown.contains(word), "{word} in {shown}");
    }
    // All refused: the balance pays for none of them.
    let fields = [
        ("model", "sandbox/sandbox-video-1"),
        ("model", "sandbox/sandbox-video-1"),
        ("prompt", "Waves"),
        ("p.duration", "60"),
    ];
    let page = browser.post("/playground/video/compare", &fields).await;
    assert_eq!(page.status, StatusCode::PAYMENT_REQUIRED, "{}", page.text);
    assert_eq!(words(&page.text).matches("Refused").count(), 2);
    assert!(page.text.contains("Waves</textarea>"), "{}", page.text);
    assert_eq!(app.history(&account).await.len(), 1);
    app.assert_verified().await;
}

#[sqlx::test]
async fn running_columns_are_looked_at_again(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    let browser = Browser::logged_in(&app, &account).await;
    let fields = [
        ("model", "sandbox/sandbox-video-1"),
        ("model", "sandbox/sandbox-video-1"),
        ("model", ""),
        ("prompt", "[[slow:60]] Waves"),
        ("p.duration", "2"),
    ];
    let answer = browser.post("/playground/video/compare", &fields).await;
    let page = browser.follow(&answer).await.text;
    let uuids = runs(&page);
    assert_eq!(uuids.len(), 2, "{page}");
    assert!(page.contains("http-equiv=\"refresh\""), "{page}");
    for uuid in &uuids {
        let own = format!("/playground/video/compare?generation={uuid}");
        assert!(page.contains(&format!("data-live=\"{own}\"")), "{page}");
        assert_eq!(runs(&browser.page(&own).await), std::slice::from_ref(uuid));
    }
    // With a refusal, a reload would drop what it says.
    let mut fields = fields.to_vec();
    fields[0].1 = "sandbox/gone";
    let page = browser
        .post("/playground/video/compare", &fields)
        .await
        .text;
    assert!(!page.contains("http-equiv=\"refresh\""), "{page}");
    assert!(page.contains("Look again"));
    let missing = format!("{TEXTS}?generation={}", uuid::Uuid::now_v7());
    assert_eq!(browser.get(&missing).await.status, StatusCode::NOT_FOUND);
    let unknown = browser.get("/playground/smell/compare").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
}

#[sqlx::test]
async fn comparison_sent_twice_is_charged_once(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    let browser = Browser::logged_in(&app, &account).await;
    let page = browser.page("/playground/image/compare").await;
    let ticket = uuid_after(&page, "name=\"ticket\" value=\"");
    let fields = [
        ("model", "sandbox/sandbox-image-1"),
        ("model", "sandbox/sandbox-image-1"),
        ("prompt", "once"),
        ("ticket", ticket.as_str()),
    ];
    let first = browser.post("/playground/image/compare", &fields).await;
    let again = browser.post("/playground/image/compare", &fields).await;
    assert_eq!(first.header("location"), again.header("location"));
    let uuids = runs(&browser.follow(&again).await.text);
    assert_eq!(uuids.len(), 2);
    for uuid in &uuids {
        app.until_finished(&account, uuid).await;
    }
    let page = browser.page(first.header("location")).await;
    assert_eq!(page.matches("<img src=\"http://test/v1/media/").count(), 2);
    assert_eq!(app.history(&account).await.len(), 2);
    app.assert_verified().await;
}

#[sqlx::test]
async fn repeated_run_does_not_charge_the_others_again(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    const VIDEOS: &str = "/playground/video/compare";
    let app = TestApp::new(options).await;
    // For one video of 10 credits; the hold of the first keeps the second waiting.
    let account = app.account("15").await;
    let browser = Browser::logged_in(&app, &account).await;
    let page = browser.page(VIDEOS).await;
    let ticket = uuid_after(&page, "name=\"ticket\" value=\"");
    let fields = [
        ("model", "sandbox/sandbox-video-1"),
        ("model", "sandbox/sandbox-video-1"),
        ("prompt", "[[slow:60]] Waves"),
        ("p.duration", "2"),
        ("ticket", ticket.as_str()),
    ];
    let mut preview = fields.to_vec();
    preview.push(("action", "preview"));
    let page = browser.post(VIDEOS, &preview).await.text;
    assert!(
        words(&page).contains("Together 20 credits Only 15 are available: not all of them"),
        "{page}"
    );
    assert_eq!(uuid_after(&page, "name=\"ticket\" value=\""), ticket);
    let mut started = Vec::new();
    for _ in 0..2 {
        let page = browser.post(VIDEOS, &fields).await.text;
        let uuids = runs(&page);
        assert_eq!(uuids.len(), 1, "{page}");
        started.extend(uuids);
        assert_eq!(uuid_after(&page, "name=\"ticket\" value=\""), ticket);
    }
    assert_eq!(started[0], started[1]);
    assert_eq!(app.history(&account).await.len(), 1);
}

/// Under one ticket a request is known by its content: another column is no other run.
#[sqlx::test]
async fn run_is_known_in_another_column(_: PgPoolOptions, options: PgConnectOptions) {
    const VIDEOS: &str = "/playground/video/compare";
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let browser = Browser::logged_in(&app, &account).await;
    let page = browser.page(VIDEOS).await;
    let ticket = uuid_after(&page, "name=\"ticket\" value=\"");
    let fields = [
        ("model", "sandbox/unknown"),
        ("model", "sandbox/sandbox-video-1"),
        ("prompt", "[[slow:60]] Waves"),
        ("p.duration", "2"),
        ("ticket", ticket.as_str()),
    ];
    let page = browser.post(VIDEOS, &fields).await.text;
    let started = runs(&page);
    assert_eq!(started.len(), 1, "{page}");
    let answer = browser.post(VIDEOS, &fields[1..]).await;
    let page = browser.follow(&answer).await.text;
    assert_eq!(runs(&page), started);
    assert_eq!(app.history(&account).await.len(), 1);
}

#[sqlx::test]
async fn deleted_column_leaves_the_others(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let browser = Browser::logged_in(&app, &account).await;
    let mut uuids = Vec::new();
    for prompt in ["rivers", "lakes"] {
        let record = generate(&app, &account, "text", json!({"prompt": prompt})).await;
        uuids.push(record["uuid"].as_str().unwrap().to_owned());
    }
    app.delete(&account.key, &format!("/v1/generate/{}", uuids[0]))
        .await
        .expect(204);
    let address = format!("{TEXTS}?generation={}&generation={}", uuids[0], uuids[1]);
    assert_eq!(runs(&browser.page(&address).await), uuids[1..]);
    let gone = format!("{TEXTS}?generation={}", uuids[0]);
    assert_eq!(browser.get(&gone).await.status, StatusCode::NOT_FOUND);
}

#[sqlx::test]
async fn column_of_a_route_stays_the_route(_: PgPoolOptions, options: PgConnectOptions) {
    let config = "[routes.fast]\nmodels = [\"sandbox/sandbox-text-1\"]\n";
    let app = with_file(options, config).await;
    let account = app.account("100").await;
    let browser = Browser::logged_in(&app, &account).await;
    let fields = [("model", "route/fast"), ("prompt", "rivers")];
    let answer = browser.post(TEXTS, &fields).await;
    let page = browser.follow(&answer).await.text;
    let uuids = runs(&page);
    let [uuid] = uuids.as_slice() else {
        panic!("{page}");
    };
    app.until_finished(&account, uuid).await;
    let page = browser.page(answer.header("location")).await;
    assert!(
        page.contains("<option value=\"route/fast\" selected>"),
        "{page}"
    );
    assert!(
        words(&page).contains("route/fast Completed served by sandbox/sandbox-text-1"),
        "{page}"
    );
}
