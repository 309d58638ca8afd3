//! The page of the models.

use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{Browser, generate, words};
use crate::{
    common::{TestApp, Upstream},
    v1::retired::with_file,
};

/// A link in a page.
fn link(path: &str) -> String {
    format!("href=\"{}\"", path.replace('&', "&amp;"))
}

#[sqlx::test]
async fn models_are_listed_with_prices_limits_and_figures(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    let browser = Browser::logged_in(&app, &account).await;
    // Figures need 20 generations.
    for _ in 0..18 {
        generate(&app, &account, "text", json!({"prompt": "rivers"})).await;
    }
    for _ in 0..2 {
        let failing = app.text(&account.key, json!({"prompt": "[[fail]]"}));
        failing.await.expect(502);
    }
    let page = browser.page("/models").await;
    let shown = words(&page);
    for word in [
        "5 models",
        "sandbox-text-1",
        "10 per million input tokens, 50 per million output tokens",
        "Images, Tools",
        "1,000,000 tokens in, 128,000 out",
        "90.0 %",
        "sandbox-video-1",
        "per second",
        "sandbox-speech-1",
        "per 1,000 characters",
    ] {
        assert!(shown.contains(word), "{word} in {shown}");
    }
    for kind in ["text", "image", "video"] {
        let try_it = link(&format!(
            "/playground/{kind}?model=sandbox%2Fsandbox-{kind}-1"
        ));
        assert!(page.contains(&try_it), "{try_it} in {page}");
    }
    let playground = browser
        .page("/playground/audio?model=sandbox%2Fsandbox-speech-1")
        .await;
    assert!(playground.contains("<option value=\"sandbox/sandbox-speech-1\" selected>"));
    // Something to press Generate for.
    assert!(playground.contains("Good morning."), "{playground}");

    let csv = browser.get("/models.csv?type=text").await.text;
    let rows: Vec<&str> = csv.lines().collect();
    assert_eq!(rows.len(), 2, "{csv}");
    assert!(rows[0].starts_with("provider,id,type,input_per_million,"));
    assert!(rows[1].starts_with("sandbox,sandbox-text-1,text,10,50,,,images tools,"));
    assert!(rows[1].contains(",0.9,"), "{csv}");
}

#[sqlx::test]
async fn models_are_filtered_on_the_page(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1").await;
    let browser = Browser::logged_in(&app, &account).await;
    for (query, here, absent) in [
        ("type=video", "sandbox-video-1", "sandbox-text-1"),
        ("provider=sandbox", "sandbox-text-1", "gpt-image-2"),
        ("q=IMAGE-2", "gpt-image-2", "sandbox-image-1"),
        ("q=openai%2Fgpt-image-2", "gpt-image-2", "sandbox-image-1"),
        ("feature=documents", "claude-opus-5-5", "sandbox-text-1"),
        (
            "feature=images&type=image",
            "gpt-image-2",
            "claude-opus-5-5",
        ),
    ] {
        let page = browser.page(&format!("/models?{query}")).await;
        let has = |id: &str| page.contains(&format!("/{id}\" aria-label=\"Compare "));
        assert!(has(here) && !has(absent), "{query}");
    }
    for query in ["q=nowhere", "type=smell", "provider=nope", "feature=taste"] {
        let page = words(&browser.page(&format!("/models?{query}")).await);
        assert!(page.contains("No model fits these filters"), "{query}");
    }
    // The filters stay when models are compared.
    let page = browser.page("/models?type=image&q=gpt").await;
    assert!(page.contains("<input type=\"hidden\" name=\"q\" value=\"gpt\">"));
    assert!(page.contains("<input type=\"hidden\" name=\"type\" value=\"image\">"));
}

#[sqlx::test]
async fn models_are_compared_side_by_side(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let account = app.account("1").await;
    let browser = Browser::logged_in(&app, &account).await;
    let names = ["anthropic/claude-opus-5-5", "sandbox/sandbox-text-1"];
    let [one, other] = names.map(|name| name.replace('/', "%2F"));
    let page = browser
        .page(&format!("/models?compare={one}&compare={other}"))
        .await;
    let shown = words(&page);
    for word in [
        "Side by side",
        "anthropic/claude-opus-5-5",
        "Images, Documents, Tools Images, Tools",
        "Price: input per million",
        "Limit: max output tokens",
    ] {
        assert!(shown.contains(word), "{word} in {shown}");
    }
    for name in names {
        assert!(
            page.contains(&format!("value=\"{name}\" checked")),
            "{name}"
        );
    }
    let run = link(&format!(
        "/playground/text/compare?model={one}&model={other}"
    ));
    assert!(page.contains(&run), "{run} in {page}");
    // Models of two types run no prompt together.
    let page = browser
        .page(&format!(
            "/models?compare={one}&compare=sandbox%2Fsandbox-image-1"
        ))
        .await;
    assert!(page.contains("Side by side") && !page.contains("Run a prompt on them"));
    // One alone has all its prices and limits too.
    let page = browser
        .page("/models?compare=sandbox%2Fsandbox-image-1")
        .await;
    assert!(
        words(&page).contains("Price: per image 1024x1024 hd"),
        "{page}"
    );
    let page = browser
        .page("/models?compare=%3Cb%3Enope&compare=x%2Fy")
        .await;
    assert!(
        page.contains("This server has no model &lt;b&gt;nope."),
        "{page}"
    );
    let four = ["compare=sandbox%2Fsandbox-text-1"; 4].join("&");
    let page = words(&browser.page(&format!("/models?{four}")).await);
    assert!(page.contains("At most 3 models are compared."), "{page}");
}

#[sqlx::test]
async fn retirement_is_shown_with_the_replacement(_: PgPoolOptions, options: PgConnectOptions) {
    let config = r#"
[[providers.sandbox.models]]
id = "sandbox-text-1"
type = "text"
prices = { input_per_million = "10", output_per_million = "50" }
retiring = 2027-02-01
replacement = "sandbox/sandbox-text-2"
aliases = ["newest"]

[[providers.sandbox.models]]
id = "sandbox-text-2"
type = "text"
prices = { input_per_million = "20", output_per_million = "100" }
"#;
    let app = with_file(options, config).await;
    let account = app.account("1").await;
    let browser = Browser::logged_in(&app, &account).await;
    let page = browser.page("/models?q=newest").await;
    let shown = words(&page);
    assert!(
        shown.contains("Retires on 1 Feb 2027 ; use sandbox/sandbox-text-2"),
        "{shown}"
    );
    assert!(page.contains(&link("/models?compare=sandbox%2Fsandbox-text-2")));
    app.advance(chrono::TimeDelta::days(30));
    let browser = Browser::logged_in(&app, &account).await;
    let page = browser.page("/models").await;
    assert!(words(&page).contains("Retired on 1 Feb 2027"), "{page}");
    assert!(!page.contains(&link("/playground/text?model=sandbox%2Fsandbox-text-1")));
    assert!(page.contains(&link("/playground/text?model=sandbox%2Fsandbox-text-2")));
    // The playground follows the replacement.
    let page = browser
        .page("/playground/text?model=sandbox%2Fsandbox-text-1")
        .await;
    assert!(page.contains("<option value=\"sandbox/sandbox-text-2\" selected>"));
}
