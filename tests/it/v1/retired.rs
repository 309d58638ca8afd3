//! Models that retire: announced 30 days before, refused from their day on, replaced by alias.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Account, Answer, CONFIG_FILE, TestApp, Upstream};

/// Models in addition to the sandbox's built-in ones. The clock starts on 2027-01-15.
const FILE: &str = r#"
[[providers.sandbox.models]]
id = "old"
type = "text"
retiring = 2027-03-01
replacement = "newer"
aliases = ["latest"]
prices = { input_per_million = "10", output_per_million = "50" }

[[providers.sandbox.models]]
id = "newer"
type = "text"
retiring = 2027-06-01
replacement = "sandbox/newest"
prices = { input_per_million = "10", output_per_million = "50" }

[[providers.sandbox.models]]
id = "newest"
type = "text"
prices = { input_per_million = "10", output_per_million = "50" }

[[providers.sandbox.models]]
id = "last"
type = "text"
retiring = 2027-03-01
prices = { input_per_million = "10", output_per_million = "50" }
"#;

const CHAT: &str = "/openai/v1/chat/completions";
const RESPONSES: &str = "/openai/v1/responses";
const MESSAGES: &str = "/anthropic/v1/messages";

/// A server with a configuration file.
pub async fn with_file(options: PgConnectOptions, text: &str) -> TestApp {
    let file = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = file.join(uuid::Uuid::now_v7().to_string());
    std::fs::write(&file, text).unwrap();
    let app = TestApp::with(options, &[(CONFIG_FILE, file.to_str().unwrap())]).await;
    std::fs::remove_file(&file).unwrap();
    app
}

/// Moves the clock to a time.
pub fn advance_to(app: &TestApp, time: &str) {
    let time: DateTime<Utc> = time.parse().unwrap();
    app.advance(time - app.now());
}

async fn chat(app: &TestApp, account: &Account, model: &str) -> Answer {
    let body = json!({"model": model, "max_tokens": 16,
        "messages": [{"role": "user", "content": "Hi."}]});
    app.post(&account.key, CHAT, &body).await
}

async fn text(app: &TestApp, account: &Account, model: &str) -> Answer {
    let body = json!({"prompt": "Hi.", "provider": "sandbox", "model": model,
        "parameters": {"max_tokens": 16}});
    app.text(&account.key, body).await
}

/// The model of the record behind an SDK's answer.
async fn served_by(app: &TestApp, account: &Account, answer: &Answer) -> String {
    answer.expect(200);
    let path = format!("/v1/generate/{}", answer.header("x-gensvc-generation"));
    let record = app.get(&account.key, &path).await.expect(200);
    record["model"].as_str().unwrap().to_owned()
}

fn announced(answer: &Answer) -> (Option<&str>, Option<&str>) {
    let header = |name| {
        answer
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    (header("deprecation"), header("sunset"))
}

#[sqlx::test]
async fn retirement_is_announced_for_30_days(_: PgPoolOptions, options: PgConnectOptions) {
    let app = with_file(options, FILE).await;
    let account = app.account("100").await;
    advance_to(&app, "2027-01-29T23:59:59.999Z");
    assert_eq!(announced(&chat(&app, &account, "old").await), (None, None));
    advance_to(&app, "2027-01-30T00:00:00Z");
    let wanted = (Some("@1801267200"), Some("Mon, 01 Mar 2027 00:00:00 GMT"));
    let streamed = json!({"model": "latest", "max_tokens": 16, "stream": true,
        "messages": [{"role": "user", "content": "Hi."}]});
    let asynchronous = [("prefer", "respond-async")];
    let body = json!({"prompt": "Hi.", "provider": "sandbox", "model": "old"});
    let events = json!({"prompt": "Hi.", "provider": "sandbox", "model": "old", "stream": true});
    for answer in [
        chat(&app, &account, "sandbox/old").await,
        app.post(&account.key, CHAT, &streamed).await,
        app.post(&account.key, MESSAGES, &streamed).await,
        text(&app, &account, "latest").await,
        app.text(&account.key, events).await,
        app.post_with(&account.key, "/v1/generate/text", &asynchronous, &body)
            .await,
    ] {
        assert!(answer.status.is_success(), "{}", answer.text);
        assert_eq!(announced(&answer), wanted);
    }
    assert_eq!(
        announced(&chat(&app, &account, "newest").await),
        (None, None)
    );
}

#[sqlx::test]
async fn retired_model_is_refused_before_the_hold(_: PgPoolOptions, options: PgConnectOptions) {
    let app = with_file(options, FILE).await;
    let account = app.account("100").await;
    advance_to(&app, "2027-02-28T23:59:59.999Z");
    text(&app, &account, "old").await.expect(200);
    let (balance, _) = app.balance(&account).await;
    advance_to(&app, "2027-03-01T00:00:00Z");

    let error = text(&app, &account, "old")
        .await
        .error(410, "model_retired");
    assert_eq!(error["replacement"], "sandbox/newer");
    assert_eq!(error["param"], "model");
    assert_eq!(error["retryable"], false);
    let message = "model is sandbox/old, which was retired on 2027-03-01: use sandbox/newer";
    assert_eq!(error["message"], message);
    let error = text(&app, &account, "last")
        .await
        .error(410, "model_retired");
    assert_eq!(error["replacement"], Value::Null);
    let estimate = json!({"type": "text", "prompt": "Hi.", "provider": "sandbox", "model": "old"});
    let answer = app
        .post(&account.key, "/v1/credits/estimate", &estimate)
        .await;
    answer.error(410, "model_retired");

    let body = json!({"model": "sandbox/old", "max_tokens": 16, "input": "Hi.",
        "messages": [{"role": "user", "content": "Hi."}]});
    for path in [
        CHAT,
        RESPONSES,
        MESSAGES,
        "/anthropic/v1/messages/count_tokens",
    ] {
        let mut body = body.clone();
        if path == RESPONSES {
            body.as_object_mut().unwrap().remove("messages");
            body.as_object_mut().unwrap().remove("max_tokens");
        } else {
            body.as_object_mut().unwrap().remove("input");
        }
        if path.ends_with("count_tokens") {
            body.as_object_mut().unwrap().remove("max_tokens");
        }
        let answer = app.post(&account.key, path, &body).await;
        let error = answer.expect(410)["error"].clone();
        assert_eq!(error["message"], message, "{path}");
        assert_eq!(error["replacement"], "sandbox/newer");
        assert_eq!(answer.header("x-should-retry"), "false");
        if path.starts_with("/openai") {
            assert_eq!(
                (&error["type"], &error["code"], &error["param"]),
                (
                    &json!("invalid_request_error"),
                    &json!("model_retired"),
                    &json!("model")
                )
            );
        } else {
            assert_eq!(
                (&error["type"], &error["details"]["error_code"]),
                (&json!("not_found_error"), &json!("model_retired"))
            );
        }
    }
    assert_eq!(app.balance(&account).await, (balance, "0".to_owned()));
}

#[sqlx::test]
async fn alias_leads_to_the_replacement(_: PgPoolOptions, options: PgConnectOptions) {
    let app = with_file(options, FILE).await;
    let account = app.account("100").await;
    for (time, model) in [
        ("2027-01-16T00:00:00Z", "old"),
        ("2027-03-01T00:00:00Z", "newer"),
        ("2027-06-01T00:00:00Z", "newest"),
    ] {
        advance_to(&app, time);
        for name in ["latest", "sandbox/latest"] {
            let answer = chat(&app, &account, name).await;
            assert_eq!(answer.json()["model"], name);
            assert_eq!(served_by(&app, &account, &answer).await, model);
        }
        let record = text(&app, &account, "latest").await.expect(200);
        assert_eq!(record["model"], model);
    }
    // The replacement is retired too by now.
    let error = text(&app, &account, "old")
        .await
        .error(410, "model_retired");
    assert_eq!(error["replacement"], "sandbox/newest");
    app.assert_settled().await;
    app.assert_verified().await;
}

#[sqlx::test]
async fn defaults_move_on_when_they_retire(_: PgPoolOptions, options: PgConnectOptions) {
    let default = "[[providers.sandbox.models]]\nid = \"sandbox-text-1\"\nretiring = 2027-03-01\n\
                   replacement = \"newest\"\n";
    let app = with_file(options, &format!("{FILE}\n{default}")).await;
    let (account, other) = (app.account("100").await, app.account("100").await);
    let own = json!({"defaults": {"text": {"provider": "sandbox", "model": "old"}}});
    let session = app.login(&other).await;
    let set = async |session: &str| {
        let json = [("content-type", "application/json")];
        let body = Some(own.to_string());
        app.call(http::Method::PATCH, session, "/v1/account", &json, body)
            .await
    };
    set(&session).await.expect(200);
    let of = async |account: &Account| {
        let record = app.text(&account.key, json!({"prompt": "Hi."})).await;
        record.expect(200)["model"].clone()
    };
    assert_eq!(
        (of(&account).await, of(&other).await),
        ("sandbox-text-1".into(), "old".into())
    );
    advance_to(&app, "2027-03-01T00:00:00Z");
    let session = app.login(&other).await;
    assert_eq!(
        (of(&account).await, of(&other).await),
        ("newest".into(), "newer".into())
    );
    // The form of the console sends the default with the others: it is followed, as in requests.
    set(&session).await.expect(200);
    let last = json!({"defaults": {"text": {"provider": "sandbox", "model": "last"}}});
    let json = [("content-type", "application/json")];
    let body = Some(last.to_string());
    let refused = app.call(http::Method::PATCH, &session, "/v1/account", &json, body);
    refused.await.error(410, "model_retired");
}

/// OpenAI's only model of speech is retired, with or without a replacement of another provider.
#[sqlx::test]
async fn requests_without_a_model_keep_the_provider(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let file = |replacement: &str| {
        format!(
            "[defaults]\naudio = [\"openai\", \"sandbox\"]\n[providers.openai]\nreplace = true\n\
             [[providers.openai.models]]\nid = \"v1\"\ntype = \"audio\"\nretiring = 2027-03-01\n\
             {replacement}prices = {{ per_1000_characters = \"1\" }}\n\
             limits = {{ voices = [\"alloy\"], default_voice = \"alloy\", formats = [\"mp3\"] }}\n"
        )
    };
    let start = async |options: PgConnectOptions, replacement: &str| {
        let path = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let path = path.join(uuid::Uuid::now_v7().to_string());
        std::fs::write(&path, file(replacement)).unwrap();
        let env = [(CONFIG_FILE, path.to_str().unwrap())];
        let app = TestApp::upstream_with(options, &upstream, &env).await;
        std::fs::remove_file(&path).unwrap();
        advance_to(&app, "2027-03-01T00:00:00Z");
        app
    };
    let app = start(options.clone(), "").await;
    let account = app.account("100").await;
    let ask = async |app: &TestApp, more: Value| {
        let mut body = json!({"prompt": "Hi."});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        app.post(&account.key, "/v1/generate/audio", &body).await
    };
    let all = [
        json!({}),
        json!({"provider": "openai"}),
        json!({"model": "v1"}),
        json!({"provider": "openai", "model": "v1"}),
    ];
    for more in &all {
        let error = ask(&app, more.clone()).await.error(410, "model_retired");
        assert_eq!(error["replacement"], Value::Null);
    }
    let providers = app.get("", "/v1/providers").await.expect(200);
    let mut openai = providers["data"].as_array().unwrap().iter();
    let openai = openai.find(|one| one["id"] == "openai").unwrap();
    assert_eq!(
        (
            &openai["types"],
            &openai["default_models"],
            &openai["default_for"]
        ),
        (&json!([]), &json!({}), &json!(["audio"]))
    );
    assert_eq!(
        app.balance(&account).await,
        ("100".to_owned(), "0".to_owned())
    );

    let app = start(options, "replacement = \"sandbox/sandbox-speech-1\"\n").await;
    for more in &all[..2] {
        let record = ask(&app, more.clone()).await.expect(202);
        assert_eq!(record["provider"], "sandbox");
    }
    for more in &all[2..] {
        let error = ask(&app, more.clone()).await.error(410, "model_retired");
        assert_eq!(error["replacement"], "sandbox/sandbox-speech-1");
    }
}

/// Two vendors have a model of one name: that of the preferred one is meant, retired or not.
#[sqlx::test]
async fn retired_model_is_not_billed_by_another_vendor(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let model = |provider: &str, retiring: &str| {
        format!(
            "[[providers.{provider}.models]]\nid = \"shared\"\ntype = \"text\"\n{retiring}\
             prices = {{ input_per_million = \"1\", output_per_million = \"1\" }}\n"
        )
    };
    let second = "[providers.second]\nkind = \"sandbox\"\n";
    let file = format!(
        "[defaults]\ntext = [\"sandbox\", \"second\"]\n{second}{}{}",
        model("sandbox", "retiring = 2027-03-01\n"),
        model("second", "")
    );
    let app = with_file(options, &file).await;
    let account = app.account("100").await;
    assert_eq!(
        served_by(&app, &account, &chat(&app, &account, "second/shared").await).await,
        "shared"
    );
    advance_to(&app, "2027-03-01T00:00:00Z");
    let refused = chat(&app, &account, "shared").await;
    assert_eq!(refused.expect(410)["error"]["code"], "model_retired");
    chat(&app, &account, "second/shared").await.expect(200);
}

#[sqlx::test]
async fn routes_follow_replacements(_: PgPoolOptions, options: PgConnectOptions) {
    let routes = "[routes.moved]\nmodels = [\"sandbox/old\", \"sandbox/newer\"]\n\
                  [routes.shrunk]\nmodels = [\"sandbox/last\", \"sandbox/newest\"]\n\
                  [routes.gone]\nmodels = [\"sandbox/last\"]\n\
                  [routes.later]\nmodels = [\"sandbox/later\", \"sandbox/newest\"]\n";
    let later = "[[providers.sandbox.models]]\nid = \"later\"\ntype = \"text\"\n\
                 prices = [{ valid_from = 2027-03-01, input_per_million = \"1\", output_per_million = \"1\" }]\n";
    let app = with_file(options, &format!("{routes}{FILE}{later}")).await;
    let account = app.account("100").await;
    let candidates = async |name: &str| {
        let route = app.get("", &format!("/v1/models/route/{name}")).await;
        route.expect(200)["candidates"].clone()
    };
    let by_route = async |name: &str| {
        let body = json!({"prompt": "Hi.", "model": format!("route/{name}")});
        app.text(&account.key, body).await
    };
    let old = json!(["sandbox/old", "sandbox/newer"]);
    assert_eq!(candidates("moved").await, old);
    assert_eq!(candidates("later").await, json!(["sandbox/newest"]));
    assert_eq!(by_route("later").await.expect(200)["model"], "newest");

    advance_to(&app, "2027-03-01T00:00:00Z");
    assert_eq!(candidates("moved").await, json!(["sandbox/newer"]));
    assert_eq!(by_route("moved").await.expect(200)["model"], "newer");
    assert_eq!(by_route("later").await.expect(200)["model"], "later");
    let record = by_route("shrunk").await.expect(200);
    assert_eq!(record["model"], "newest");
    let dropped = &record["metadata"]["dropped"];
    assert_eq!(
        (&dropped[0]["model"], &dropped[0]["code"]),
        (&json!("last"), &json!("model_retired")),
        "{record}"
    );
    by_route("gone").await.error(410, "model_retired");
    let answer = chat(&app, &account, "route/gone").await;
    assert_eq!(answer.expect(410)["error"]["code"], "model_retired");
    for path in ["/openai/v1/models", "/anthropic/v1/models"] {
        let list = app.get(&account.key, path).await.expect(200).to_string();
        assert!(list.contains("\"route/moved\"") && !list.contains("\"route/gone\""));
        let gone = format!("{path}/route%2Fgone");
        app.get(&account.key, &gone).await.expect(410);
    }
    app.assert_settled().await;
    app.assert_verified().await;
}

#[sqlx::test]
async fn retired_fallbacks_drop_out(_: PgPoolOptions, options: PgConnectOptions) {
    let app = with_file(options, FILE).await;
    let account = app.account("100").await;
    advance_to(&app, "2027-03-01T00:00:00Z");
    let of = |model: &str| json!({"provider": "sandbox", "model": model});
    let ask = async |own: &str, fallbacks: &[&str]| {
        let mut body = of(own);
        body["prompt"] = "Hi.".into();
        body["fallbacks"] = fallbacks.iter().map(|model| of(model)).collect();
        app.text(&account.key, body).await
    };
    for (own, fallbacks, served, dropped) in [
        ("newest", vec!["old", "last"], "newest", vec!["old", "last"]),
        ("old", vec!["newest"], "newest", vec!["old"]),
        ("latest", vec!["last"], "newer", vec!["last"]),
    ] {
        let record = ask(own, &fallbacks).await.expect(200);
        assert_eq!(record["model"], served, "{record}");
        let all = record["metadata"]["dropped"].as_array().unwrap();
        let names: Vec<_> = all.iter().map(|one| one["model"].clone()).collect();
        assert_eq!(json!(names), json!(dropped), "{record}");
        assert!(all.iter().all(|one| one["code"] == "model_retired"));
    }
    let error = ask("old", &["last"]).await.error(410, "model_retired");
    assert_eq!(error["replacement"], "sandbox/newer");

    // Those of an account's default are replaced.
    let mut default = of("newest");
    default["fallbacks"] = json!([of("old"), of("last")]);
    let session = app.login(&account).await;
    let set = async |default: &Value| {
        let json = [("content-type", "application/json")];
        let body = Some(json!({"defaults": {"text": default}}).to_string());
        app.call(http::Method::PATCH, &session, "/v1/account", &json, body)
            .await
    };
    set(&default).await.error(410, "model_retired");
    default["fallbacks"] = json!([of("old")]);
    set(&default).await.expect(200);
    let body = json!({"type": "text", "prompt": "Hi."});
    let estimate = app
        .post(&account.key, "/v1/credits/estimate", &body)
        .await
        .expect(200);
    let models = estimate["candidates"].as_array().unwrap().iter();
    let models: Vec<_> = models.map(|one| one["model"].clone()).collect();
    assert_eq!(models, ["newest", "newer"]);
}

#[sqlx::test]
async fn lists_show_retirement(_: PgPoolOptions, options: PgConnectOptions) {
    let app = with_file(options, FILE).await;
    let account = app.account("1").await;
    let model = app.get("", "/v1/models/sandbox/latest").await.expect(200);
    assert_eq!(model["id"], "old");
    assert_eq!(model["retiring"], "2027-03-01");
    assert_eq!(model["replacement"], "sandbox/newer");
    assert_eq!(model["aliases"], json!(["latest"]));
    let ids = async |path: &str| {
        let list = app.get(&account.key, path).await.expect(200);
        let data = list["data"].as_array().unwrap().clone();
        let old = data
            .iter()
            .find(|model| model["id"] == "sandbox/old")
            .cloned();
        let ids = data
            .iter()
            .map(|model| model["id"].as_str().unwrap().to_owned());
        (ids.collect::<Vec<_>>(), old)
    };
    for path in ["/openai/v1/models", "/anthropic/v1/models"] {
        let (_, old) = ids(path).await;
        let old = old.unwrap();
        assert_eq!(old["retiring"], "2027-03-01");
        assert_eq!(old["replacement"], "sandbox/newer");
        assert_eq!(old["aliases"], json!(["latest"]));
    }
    advance_to(&app, "2027-03-01T00:00:00Z");
    for path in ["/openai/v1/models", "/anthropic/v1/models"] {
        let (ids, old) = ids(path).await;
        assert!(old.is_none() && ids.contains(&"sandbox/newer".to_owned()));
        let answer = app
            .get(&account.key, &format!("{path}/sandbox%2Fold"))
            .await;
        assert_eq!(answer.expect(410)["error"]["replacement"], "sandbox/newer");
        let alias = app.get(&account.key, &format!("{path}/latest")).await;
        assert_eq!(alias.expect(200)["id"], "sandbox/newer");
        let none = app.get(&account.key, &format!("{path}/nope")).await;
        none.expect(404);
    }
    // Its replacement can still be looked up; an alias shows what requests get.
    let model = app.get("", "/v1/models/sandbox/old").await.expect(200);
    assert_eq!(model["replacement"], "sandbox/newer");
    let model = app.get("", "/v1/models/sandbox/latest").await.expect(200);
    assert_eq!(model["id"], "newer");
}
