//! The operator's pages, and the operator's own session at /v1/admin.

use chrono::TimeDelta;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{Browser, generate, words};
use crate::{
    common::{Account, Reply, TestApp, Upstream},
    v1::retired::with_file,
};

const PAGES: [&str; 6] = [
    "/operator",
    "/operator/providers",
    "/operator/accounts",
    "/operator/accounts/new",
    "/operator/jobs",
    "/operator/spending",
];
const FILES: [&str; 4] = [
    "/operator/providers.csv",
    "/operator/accounts.csv",
    "/operator/jobs.csv",
    "/operator/spending.csv",
];

pub async fn operator(app: &TestApp) -> Account {
    let account = app.account("1000").await;
    let user = app.app.service.user(&account.email).await.unwrap();
    app.app.service.set_operator(user.id, true).await.unwrap();
    account
}

#[sqlx::test]
async fn they_are_not_found_for_everybody_else(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (operator, other) = (operator(&app).await, app.account("10").await);
    let browser = Browser::logged_in(&app, &other).await;
    assert!(!browser.page("/").await.contains("/operator"));
    let theirs = format!("/operator/accounts/{}", operator.id);
    for path in PAGES.iter().chain(&FILES).chain(&[theirs.as_str()]) {
        assert_eq!(
            browser.get(path).await.status,
            StatusCode::NOT_FOUND,
            "{path}"
        );
    }
    for action in [
        "credits",
        "change",
        "suspend",
        "resume",
        "delete",
        "view",
        "keys/1",
        "keys/1/revoke",
        "deliveries/1",
    ] {
        let fields = [
            ("kind", "grant"),
            ("amount", "5"),
            ("reference", "mine"),
            ("reason", "x"),
            ("name", "x"),
            ("confirmed", "yes"),
        ];
        let path = format!("/operator/accounts/{}/{action}", other.id);
        let answer = browser.post(&path, &fields).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(app.balance(&other).await.0, "10");
    // Neither is the API, and a key of the operator's account is no session of the operator.
    let session = app.login(&other).await;
    for token in [&session, &other.key, &operator.key] {
        for path in ["accounts", "providers", "jobs", "usage", "audit"] {
            let answer = app.get(token, &format!("/v1/admin/{path}")).await;
            answer.error(403, "missing_ability");
        }
    }
    let session = app.login(&operator).await;
    app.get(&session, "/v1/admin/accounts").await.expect(200);
    let user = app.app.service.user(&operator.email).await.unwrap();
    app.app.service.set_operator(user.id, false).await.unwrap();
    app.get(&session, "/v1/admin/accounts")
        .await
        .error(403, "missing_ability");
}

#[sqlx::test]
async fn credits_are_moved_once_and_accounts_suspended(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let (operator, other) = (operator(&app).await, app.account("10").await);
    let browser = Browser::logged_in(&app, &operator).await;
    let path = format!("/operator/accounts/{}", other.id);
    let grant = [
        ("kind", "grant"),
        ("amount", "2.5"),
        ("reference", "invoice 17"),
    ];
    for expected in ["Done: grant of 2.5 credits", "nothing was moved again"] {
        let answer = browser.post(&format!("{path}/credits"), &grant).await;
        let page = words(&answer.text);
        assert!(page.contains(expected), "{expected}: {page}");
        assert!(page.contains("The balance is 12.5"), "{page}");
    }
    assert_eq!(app.balance(&other).await.0, "12.5");
    let image = json!({"prompt": "x", "parameters": {"size": "256x256"}});
    let record = generate(&app, &other, "image", image).await;
    let refund = [
        ("kind", "refund"),
        ("amount", ""),
        ("reference", "was not what I meant"),
        ("generation", record["uuid"].as_str().unwrap()),
    ];
    let answer = browser.post(&format!("{path}/credits"), &refund).await;
    let page = words(&answer.text);
    assert!(page.contains("Done: refund of 1 credit."), "{page}");
    assert_eq!(app.balance(&other).await.0, "12.5");
    let too_much = [
        ("kind", "adjustment"),
        ("amount", "-100"),
        ("reference", "x"),
    ];
    let answer = browser.post(&format!("{path}/credits"), &too_much).await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(answer.text.contains("value=\"-100\""), "{}", answer.text);
    browser
        .post(&format!("{path}/suspend"), &[("reason", "unpaid <b>")])
        .await;
    let page = browser.page(&path).await;
    assert!(page.contains("unpaid &lt;b&gt;"), "{page}");
    app.get(&other.key, "/v1/credits/balance")
        .await
        .error(403, "account_suspended");
    let theirs = Browser {
        app: &app,
        cookie: format!("gensvc={}", app.login(&other).await),
    };
    let answer = theirs.get("/").await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert!(
        words(&answer.text).contains("This account is suspended"),
        "{}",
        answer.text
    );
    browser.post(&format!("{path}/resume"), &[]).await;
    app.get(&other.key, "/v1/credits/balance").await.expect(200);
    let token = app.login(&operator).await;
    let account = app
        .get(&token, &format!("/v1/admin/accounts/{}", other.id))
        .await
        .expect(200);
    assert_eq!(account["suspended_reason"], Value::Null);
    app.assert_verified().await;
}

#[sqlx::test]
async fn it_shows_who_spends_what_and_how_providers_do(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let (operator, other) = (operator(&app).await, app.account("1000").await);
    let token = app.login(&operator).await;
    let image = json!({"prompt": "x", "parameters": {"size": "256x256"}});
    generate(&app, &other, "image", image).await;
    app.text(&other.key, json!({"prompt": "[[fail]]"}))
        .await
        .expect(502);
    app.text(&other.key, json!({"prompt": "[[reject]]"}))
        .await
        .expect(502);
    app.queue(&other, "video", &json!({"prompt": "waves"}))
        .await;
    let providers = app.get(&token, "/v1/admin/providers").await.expect(200);
    let models = providers["data"][0]["models"].as_array().unwrap().clone();
    let text = models.iter().find(|model| model["type"] == "text").unwrap();
    let counts = ["generations", "failed", "faults"].map(|name| text[name].as_i64());
    assert_eq!(counts, [Some(2), Some(2), Some(1)]);
    let jobs = app.get(&token, "/v1/admin/jobs").await.expect(200);
    assert_eq!(
        (&jobs["total"], &jobs["data"][0]["held"]),
        (&json!(1), &json!("20"))
    );
    assert_eq!(jobs["data"][0].get("prompt"), None);
    let usage = app.get(&token, "/v1/admin/usage").await.expect(200);
    assert_eq!(usage["data"][0]["model"], "sandbox-image-1");
    assert_eq!(usage["data"][0]["charged"], "1");
    let usage = app
        .get(&token, "/v1/admin/usage?group_by=account")
        .await
        .expect(200);
    assert_eq!(usage["data"][0]["account"], json!(other.id));
    let audit = app.get(&token, "/v1/admin/audit").await.expect(200);
    assert_eq!(audit["differences"], Value::Null);
    app.app.auditor.step().await.unwrap();
    let audit = app.get(&token, "/v1/admin/audit").await.expect(200);
    assert_eq!(audit["differences"], 0);
    let browser = Browser::logged_in(&app, &operator).await;
    for path in PAGES {
        browser.page(path).await;
    }
    let health = words(&browser.page("/operator").await);
    assert!(health.contains("0 differences"), "{health}");
    app.get(&token, "/v1/admin/usage?to=0001-01-01")
        .await
        .expect(200);
    // A move back in time, days that are none.
    let wrong = [
        "from=x",
        "group_by=day",
        "to=-262143-01-01",
        "from=0000-12-31",
        "to=%2B10000-01-01",
    ];
    for path in wrong.map(|query| format!("/v1/admin/usage?{query}")) {
        app.call(Method::GET, &token, &path, &[], None)
            .await
            .error(422, "validation_failed");
    }
}

/// Its fallbacks serve, so that no generation fails.
#[sqlx::test]
async fn account_refused_before_a_fallback_is_shown(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let (operator, other) = (operator(&app).await, app.account("1000").await);
    let token = app.login(&operator).await;
    let body = json!({"prompt": "x", "provider": "openai", "model": "gpt-4.1-mini",
        "fallbacks": [{"provider": "anthropic", "model": "claude-haiku-4-5"}]});
    let shown = async || {
        let providers = app.get(&token, "/v1/admin/providers").await.expect(200);
        let mut providers = providers["data"].as_array().unwrap().clone().into_iter();
        let openai = providers.find(|provider| provider["provider"] == "openai");
        openai.unwrap()
    };
    app.text(&other.key, body.clone()).await.expect(200);
    assert_eq!(shown().await["state"], "ok");
    upstream.play(|request| {
        if request.path.contains("/openai/") {
            let error = json!({"error": {"code": "invalid_api_key", "message": "m"}});
            Reply::Status(401, error)
        } else {
            Reply::Text("Hello there.".to_owned(), 10, 3)
        }
    });
    for _ in 0..2 {
        app.advance(TimeDelta::minutes(1));
        let record = app.text(&other.key, body.clone()).await.expect(200);
        assert_eq!(record["provider"], "anthropic", "{record}");
    }
    let openai = shown().await;
    assert_eq!(openai["state"], "account_refused", "{openai}");
    let error = &openai["errors"][0];
    assert_eq!(
        (&error["code"], &error["account_refused"], &error["count"]),
        (&json!("provider_error"), &json!(true), &json!(2))
    );
    let browser = Browser::logged_in(&app, &operator).await;
    let page = words(&browser.page("/operator/providers").await);
    assert!(page.contains("2 of the last calls were refused"), "{page}");
    // Once the key is replaced.
    upstream.reply(Reply::Text("Hello there.".to_owned(), 10, 3));
    app.advance(TimeDelta::minutes(1));
    app.text(&other.key, body).await.expect(200);
    assert_eq!(shown().await["state"], "ok");
}

/// The prices of a file are the vendor's, and the markup is the operator's.
#[sqlx::test]
async fn margin_and_retiring_models_are_shown(_: PgPoolOptions, options: PgConnectOptions) {
    let file = "[pricing]\nmarkup = \"1.25\"\n\
        [[providers.sandbox.models]]\nid = \"old\"\ntype = \"text\"\nretiring = 2027-03-01\n\
        replacement = \"sandbox-text-1\"\n\
        prices = { input_per_million = \"10\", output_per_million = \"50\" }\n\
        [[providers.sandbox.models]]\nid = \"later\"\ntype = \"text\"\nretiring = 2027-03-17\n\
        prices = { input_per_million = \"10\", output_per_million = \"50\" }\n";
    let app = with_file(options, file).await;
    let (operator, other) = (operator(&app).await, app.account("1000").await);
    let image = json!({"prompt": "x", "parameters": {"size": "256x256"}});
    generate(&app, &other, "image", image).await;
    let browser = Browser::logged_in(&app, &operator).await;
    let page = words(&browser.page("/operator/spending").await);
    for expected in [
        "Charged 1.25 credits List cost 1 Margin 0.25",
        "sandbox · sandbox-image-1 1.25 1 0.25 1",
        "sandbox/old 2027-03-01 sandbox/sandbox-text-1",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    assert!(!page.contains("sandbox/later"), "{page}");
    let csv = browser.get("/operator/spending.csv").await.text;
    assert!(
        csv.contains("sandbox,sandbox-image-1,1.25,1,0.25,1,0,0,0,0,0"),
        "{csv}"
    );
}

/// A retry cannot help while the provider refuses the server's own account.
#[sqlx::test]
async fn refused_account_is_final_and_shown_to_the_operator(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    let app = TestApp::upstream(options, &upstream).await;
    let (operator, other) = (operator(&app).await, app.account("1000").await);
    let chat =
        json!({"model": "openai/gpt-6-luna", "messages": [{"role": "user", "content": "x"}]});
    for (status, body) in [
        (
            401,
            json!({"error": {"code": "invalid_api_key", "message": "sk-secret"}}),
        ),
        (402, json!({})),
        (403, json!({"error": {"type": "permission_error"}})),
        (
            429,
            json!({"error": {"code": "insufficient_quota", "message": "m"}}),
        ),
    ] {
        upstream.play(move |_| Reply::Status(status, body.clone()));
        let text = json!({"prompt": "x", "provider": "openai"});
        let answer = app.text(&other.key, text).await;
        let error = answer.error(502, "provider_error");
        assert_eq!(error["retryable"], false, "{status}: {error}");
        let body = answer.json();
        let uuid = body["generation"]["uuid"].as_str().unwrap();
        let record = app.record(&other, uuid).await;
        assert_eq!(record["error"]["retryable"], false, "{status}: {record}");
        let path = "/openai/v1/chat/completions";
        let answer = app.post(&other.key, path, &chat).await;
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{}", answer.text);
        assert_eq!(answer.header("x-should-retry"), "false", "{status}");
        assert!(!answer.text.contains("sk-secret"), "{}", answer.text);
    }
    let token = app.login(&operator).await;
    let openai = async || {
        let health = app.get(&token, "/v1/admin/providers").await.expect(200);
        let mut providers = health["data"].as_array().unwrap().iter();
        providers
            .find(|one| one["provider"] == "openai")
            .unwrap()
            .clone()
    };
    let refused = openai().await;
    assert_eq!(refused["state"], "account_refused", "{refused}");
    let error = &refused["errors"][0];
    assert_eq!(
        (&error["code"], &error["account_refused"], &error["count"]),
        (&json!("provider_error"), &json!(true), &json!(8))
    );
    assert_eq!(refused["last_completed_at"], Value::Null);
    let browser = Browser::logged_in(&app, &operator).await;
    let page = words(&browser.page("/operator").await);
    assert!(page.contains("Refuses our account"), "{page}");
    upstream.play(|_| Reply::Status(500, json!({})));
    let answer = app
        .text(&other.key, json!({"prompt": "x", "provider": "openai"}))
        .await;
    assert_eq!(answer.error(502, "provider_error")["retryable"], true);
    assert_eq!(openai().await["state"], "failing");

    let page = words(&browser.page("/operator/providers").await);
    assert!(
        page.contains("8 of the last calls were refused because"),
        "{page}"
    );
    assert!(
        page.contains("provider_timeout") || page.contains("provider_error"),
        "{page}"
    );
    assert_eq!(app.balance(&other).await.1, "0");
}

/// An operator sees the pages of a customer as they are, and changes nothing by the owner's forms.
#[sqlx::test]
async fn an_account_is_viewed_as_its_owner_sees_it(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (operator, other) = (operator(&app).await, app.account("50").await);
    let image = json!({"prompt": "their picture", "parameters": {"size": "256x256"}});
    let record = generate(&app, &other, "image", image).await;
    let uuid = record["uuid"].as_str().unwrap();
    let hook = json!({"url": "http://127.0.0.1:9/hook"});
    let hook = app
        .post(&other.key, "/v1/webhooks", &hook)
        .await
        .expect(201);
    generate(&app, &other, "text", json!({"prompt": "their text"})).await;
    let keys = app.get(&other.key, "/v1/api-keys").await.json();
    let key = keys["data"][0]["id"].to_string();

    let browser = Browser::logged_in(&app, &operator).await;
    assert!(!browser.page("/generations").await.contains("their picture"));
    let path = format!("/operator/accounts/{}", other.id);
    let begun = browser.post(&format!("{path}/view"), &[]).await;
    let view = begun.header("set-cookie");
    assert!(
        view.contains("HttpOnly") && view.contains("SameSite=Strict"),
        "{view}"
    );
    let viewing = Browser {
        app: &app,
        cookie: format!("{}; {}", browser.cookie, super::cookies(&begun)),
    };
    let receipt = format!("/generations/{uuid}");
    let webhook = format!("/webhooks/{}", hook["id"]);
    let key_path = format!("/keys/{key}");
    for (page, shown) in [
        ("/", "their picture"),
        ("/generations", "their picture"),
        ("/gallery", "their picture"),
        (receipt.as_str(), "Refund"),
        ("/usage", "Charged"),
        ("/ledger", "Grant"),
        ("/keys", "Name"),
        (key_path.as_str(), "Change this key"),
        ("/webhooks", "127.0.0.1:9/hook"),
        (webhook.as_str(), "Send again"),
    ] {
        let page_text = viewing.page(page).await;
        assert!(page_text.contains(shown), "{shown} on {page}: {page_text}");
        assert!(words(&page_text).contains("read-only"), "{page}");
    }
    let file = viewing.get("/generations.csv").await;
    assert!(file.text.contains("their picture"), "{}", file.text);
    // The playground and the settings stay the operator's own.
    let own = words(&viewing.page("/settings").await);
    assert!(
        own.contains(&operator.email) && !own.contains("read-only"),
        "{own}"
    );
    for action in [
        format!("{receipt}/delete"),
        "/keys".to_owned(),
        format!("{key_path}/revoke"),
        format!("{webhook}/delete"),
    ] {
        let answer = viewing.post(&action, &[("name", "x")]).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{action}");
    }
    app.get(&other.key, &format!("/v1/generate/{uuid}"))
        .await
        .expect(200);

    // What only operators can change.
    let refund = [
        ("kind", "refund"),
        ("generation", uuid),
        ("amount", ""),
        ("reference", "blurred"),
    ];
    let answer = viewing.post(&format!("{path}/credits"), &refund).await;
    assert!(
        words(&answer.text).contains("Done: refund of 1 credit."),
        "{}",
        answer.text
    );
    let limits = [
        ("name", "theirs"),
        ("scope", "all"),
        ("rate_limit_per_minute", "1000"),
        ("expires_at", ""),
        ("spend_limit", "7.5"),
        ("spend_period", "month"),
    ];
    let change = format!("{path}/keys/{key}");
    let changed = viewing.post(&change, &limits).await;
    assert_eq!(changed.header("location"), key_path);
    let page = viewing.page(&key_path).await;
    assert!(
        page.contains("value=\"theirs\"") && page.contains("value=\"7.5\""),
        "{page}"
    );
    // A day that the form leaves as it was keeps its time.
    let (end, last) = ("2030-01-31T12:30:00.000000Z", "2030-01-31");
    let until = json!({"name": "theirs", "expires_at": end});
    let replaced = format!("/v1/admin/accounts/{}/api-keys/{key}", other.id);
    let token = app.login(&operator).await;
    let headers = [("content-type", "application/json")];
    let answer = app.call(
        Method::PUT,
        &token,
        &replaced,
        &headers,
        Some(until.to_string()),
    );
    answer.await.expect(200);
    for (day, wanted) in [(last, end), ("2030-02-01", "2030-02-02T00:00:00.000000Z")] {
        let page = viewing.page(&key_path).await;
        assert!(
            page.contains(&format!("name=\"expires_exactly\" value=\"{end}\"")),
            "{page}"
        );
        let fields = [
            ("name", "theirs"),
            ("scope", "all"),
            ("before", last),
            ("expires_exactly", end),
            ("expires_at", day),
        ];
        viewing.post(&change, &fields).await;
        let keys = app.get(&other.key, "/v1/api-keys").await.json();
        assert_eq!(keys["data"][0]["expires_at"], wanted);
    }
    let wrong = viewing
        .post(&change, &[("name", "x"), ("spend_limit", "much")])
        .await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(wrong.text.contains("value=\"much\""), "{}", wrong.text);
    let deliveries = app
        .get(&other.key, &format!("/v1{webhook}/deliveries"))
        .await
        .json();
    let delivery = &deliveries["data"][0]["id"];
    let sent = viewing
        .post(
            &format!("{path}/deliveries/{delivery}"),
            &[("webhook", &hook["id"].to_string())],
        )
        .await;
    assert_eq!(sent.header("location"), webhook);

    // A customer's cookie changes nothing.
    let customer = Browser::logged_in(&app, &other).await;
    let theirs = customer
        .get_with("/", &format!("gensvc-view={}", operator.id))
        .await;
    assert!(theirs.text.contains("their picture"), "{}", theirs.text);
    let ended = viewing.post("/operator/view/end", &[]).await;
    assert!(ended.header("set-cookie").contains("Max-Age=0"));
    app.assert_verified().await;
}

#[sqlx::test]
async fn accounts_are_created_changed_and_deleted(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let operator = operator(&app).await;
    let browser = Browser::logged_in(&app, &operator).await;
    let fields = [
        ("email", "new@example.com"),
        ("password", "battery staple"),
        ("name", ""),
        ("credits", "12.5"),
    ];
    let made = browser.post("/operator/accounts", &fields).await;
    assert_eq!(made.status, StatusCode::SEE_OTHER, "{}", made.text);
    let path = made.header("location").to_owned();
    assert!(words(&browser.page(&path).await).contains("12.5"));
    let again = browser.post("/operator/accounts", &fields).await;
    assert_eq!(again.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        words(&again.text).contains("Already belongs to an account."),
        "{}",
        again.text
    );
    assert!(!again.text.contains("battery staple"), "{}", again.text);
    let query = "email=NEW@example.com&key_hint=x";
    for (query, lines) in [("email=NEW@example.com", 2), (query, 1)] {
        let page = browser.page(&format!("/operator/accounts?{query}")).await;
        let file = format!("/operator/accounts.csv?{query}");
        // A list without rows has no file.
        let link = format!("href=\"{}\"", file.replace('@', "%40"));
        assert_eq!(page.contains(&link), lines > 1, "{page}");
        let file = browser.get(&file).await.text;
        assert_eq!(file.lines().count(), lines, "{file}");
    }
    let change = [("email", "newer@example.com"), ("name", "Shop <b>")];
    let changed = browser.post(&format!("{path}/change"), &change).await;
    assert_eq!(changed.status, StatusCode::OK, "{}", changed.text);
    assert!(changed.text.contains("Shop &lt;b&gt;"), "{}", changed.text);
    let delete = format!("{path}/delete");
    let unsure = browser.post(&delete, &[]).await;
    assert_eq!(unsure.status, StatusCode::BAD_REQUEST);
    browser.post(&delete, &[("confirmed", "yes")]).await;
    let page = browser.page(&path).await;
    assert!(
        words(&page).contains("Deleted") && !page.contains("newer@example.com"),
        "{page}"
    );
}
