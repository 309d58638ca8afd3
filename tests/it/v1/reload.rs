//! The catalogue of a changed file on running servers.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use chrono::TimeDelta;
use futures_util::future::join_all;
use gensvc::domain::{credits::Credits, ids::GenerationId};
use http::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{
    Account, Answer, CONFIG_FILE, Reply, TestApp, Upstream, listening,
    vendors::{mp4, runway},
};

/// A configuration file that is removed when the test ends.
pub struct File(PathBuf);

impl File {
    pub fn new(text: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let file = Self(folder.join(uuid::Uuid::now_v7().to_string()));
        file.write(text);
        file
    }

    pub fn write(&self, text: &str) {
        // A server never reads half a file.
        let new = self.0.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &self.0).unwrap();
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A model at `price` credits per token of input and of output.
pub fn model(id: &str, price: u32, more: &str) -> String {
    format!(
        "[[providers.openai.models]]\nid = \"{id}\"\ntype = \"text\"\nwire.api = \"chat\"\n{more}\n\
         prices = {{ input_per_million = \"{price}000000\", output_per_million = \"{price}000000\" }}\n"
    )
}

pub async fn start(options: PgConnectOptions, upstream: &Upstream, file: &File) -> TestApp {
    upstream.reply(Reply::Text("Hi.".to_owned(), 3, 2));
    let env = [
        (CONFIG_FILE, file.0.to_str().unwrap()),
        ("GENSVC__SERVER__ACCOUNT_SHARE_PERCENT", "100"),
    ];
    TestApp::upstream_with(options, upstream, &env).await
}

pub async fn text(app: &TestApp, account: &Account, model: &str) -> Answer {
    let body = json!({"prompt": "Hi.", "provider": "openai", "model": model});
    app.text(&account.key, body).await
}

/// The hold of a record for each unit of its price, which one catalogue has in common for requests of
/// a kind.
pub fn held_per_price(record: &Value) -> i64 {
    let micros = |amount: &Value| {
        let credits: Credits = amount.as_str().unwrap().parse().unwrap();
        credits.micros()
    };
    let price = &record["metadata"]["pricing"]["input_per_million"];
    let (held, price) = (micros(&record["credits"]["estimated"]), micros(price));
    assert_eq!(held * 1_000_000 % price, 0, "{record}");
    held * 1_000_000 / price
}

fn charged(record: &Value) -> &str {
    record["credits"]["charged"].as_str().unwrap()
}

#[sqlx::test]
async fn changed_file_is_applied_while_running(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let file = File::new(&(model("a", 1, "") + &model("b", 1, "")));
    let app = start(options, &upstream, &file).await;
    let account = app.account("100000").await;
    assert_eq!(charged(&text(&app, &account, "a").await.expect(200)), "5");

    // A running generation keeps its price and its model, which the file removes.
    upstream.hold();
    let running = text(&app, &account, "b");
    let reloading = async {
        upstream.arrived(2).await;
        let wire = "wire.token_field = \"max_tokens\"\naliases = [\"latest\"]";
        let route = "[routes.r]\nmodels = [\"openai/c\"]\n";
        file.write(&(route.to_owned() + &model("a", 2, "") + &model("c", 3, wire)));
        assert!(app.app.reload.run().unwrap().unwrap().is_empty());
        upstream.release(10);
    };
    let (running, ()) = tokio::join!(running, reloading);
    assert_eq!(charged(&running.expect(200)), "5");
    assert_eq!(charged(&text(&app, &account, "a").await.expect(200)), "10");
    assert_eq!(
        charged(&text(&app, &account, "latest").await.expect(200)),
        "15"
    );
    let by_route = json!({"prompt": "Hi.", "model": "route/r"});
    let by_route = app.text(&account.key, by_route).await.expect(200);
    assert_eq!(charged(&by_route), "15");
    // Its adapter knows the settings of a new model.
    let sent = upstream.requests().pop().unwrap().body;
    assert_eq!(sent["model"], "c");
    assert!(sent["max_tokens"].is_number() && sent["max_completion_tokens"].is_null());
    let gone = text(&app, &account, "b").await;
    assert_eq!(gone.fields()["model"], "unknown_model");
    let models = app.get("", "/v1/models?provider=openai").await.expect(200);
    let shown = |id: &str| {
        let mut models = models["data"].as_array().unwrap().iter();
        models.any(|model| model["id"] == id)
    };
    assert!(shown("a") && shown("c") && !shown("b"));
    app.assert_settled().await;
    app.assert_verified().await;
}

#[sqlx::test]
async fn invalid_file_changes_nothing(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let file = File::new(&model("a", 1, ""));
    let app = start(options, &upstream, &file).await;
    let account = app.account("100000").await;
    let fails = || app.app.reload.run().unwrap_err().to_string();
    file.write(&(model("a", 2, "") + "[[providers.openai.models]]\nid = \"x\"\ntype = \"text\"\n"));
    assert_eq!(
        fails(),
        "providers.openai.models[1].prices.input_per_million is missing: a model without a \
         complete price is not served; add it or set enabled = false"
    );
    let other_wire = model("a", 2, "").replace("\"chat\"", "\"responses\"");
    file.write(&other_wire);
    assert_eq!(
        fails(),
        "providers.openai.models[0].wire has changed for openai/a: restart the server to apply it"
    );
    file.write("[[");
    assert!(fails().contains("is not valid TOML: line 1"));
    assert_eq!(charged(&text(&app, &account, "a").await.expect(200)), "5");

    // Other settings need a restart, and do not stop the catalogue.
    let others = "[server]\nmax_requests = 77\n[providers.gemini]\nenabled = false\n\
                  [providers.anthropic]\ntimeout_seconds = 9\n";
    file.write(&(others.to_owned() + &model("a", 2, "")));
    let mut restart = app.app.reload.run().unwrap().unwrap();
    restart.sort();
    assert_eq!(
        restart,
        [
            "providers.anthropic.timeout_seconds",
            "providers.gemini.enabled",
            "server.max_requests",
        ]
    );
    assert_eq!(charged(&text(&app, &account, "a").await.expect(200)), "10");
    let providers = app.get("", "/v1/providers").await.expect(200);
    assert!(providers.to_string().contains("\"gemini\""));
}

/// A request that a server missed is found when it listens again; without one, the file is not read.
#[sqlx::test]
async fn missed_request_is_found_by_a_new_listener(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options.clone()).await;
    let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
    let runner = app.app.runner.clone();
    let listening = listening(&[&app]).await;
    let disconnect = async || {
        let missed = runner.waiter(GenerationId(uuid::Uuid::now_v7()));
        let ended = sqlx::query(
            "select pg_terminate_backend(pid) from pg_stat_activity
             where datname = current_database() and query like 'LISTEN%'",
        );
        assert_eq!(ended.execute(&pool).await.unwrap().rows_affected(), 1);
        missed.woken().await;
    };
    let requests = async {
        disconnect().await;
        let store = app.app.service.store();
        store.request_catalogue_reload().await.unwrap();
    };
    let (count, ()) = tokio::join!(runner.reload_request(0), requests);
    assert_eq!(count, 1);

    let request = "update catalogue_reloads set requested = requested + 1";
    sqlx::query(request).execute(&pool).await.unwrap();
    let (count, ()) = tokio::join!(runner.reload_request(1), disconnect());
    assert_eq!(count, 2);
    drop(listening);
}

/// A request that cannot be read at once is read later.
#[sqlx::test]
async fn request_is_read_when_the_database_answers_again(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options.clone()).await;
    let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
    let runner = app.app.runner.clone();
    let listening = listening(&[&app]).await;
    let run = async |statement: &'static str| {
        sqlx::raw_sql(statement).execute(&pool).await.unwrap();
    };
    run("alter table catalogue_reloads rename to away").await;
    let failures = async || -> i64 {
        let counting =
            "select xact_rollback from pg_stat_database where datname = current_database()";
        let counted = sqlx::query_scalar(counting).fetch_one(&pool);
        counted.await.unwrap()
    };
    let before = failures().await;
    let requests = async {
        run("update away set requested = 1; notify gensvc, 'catalogue'").await;
        while failures().await == before {
            tokio::task::yield_now().await;
        }
        run("alter table away rename to catalogue_reloads").await;
    };
    let (count, ()) = tokio::join!(runner.reload_request(0), requests);
    assert_eq!(count, 1);
    drop(listening);
}

/// A server that has not read the new model leaves its job to the one that has.
#[sqlx::test]
async fn job_of_a_model_is_left_to_a_server_that_has_it(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    runway(&upstream, 1, None, Reply::File("video/mp4", mp4(5).await));
    let file = File::new(
        "[[providers.runway.models]]\nid = \"new\"\ntype = \"video\"\n\
         prices.per_second = \"1\"\nlimits.durations = [5]\nlimits.ratios = [\"16:9\"]\n\
         limits.default_duration = 5\nwire.ratios = { \"16:9\" = \"1280:720\" }\n",
    );
    let path = [(CONFIG_FILE, file.0.to_str().unwrap())];
    let app = TestApp::vendors(options, &upstream, &[]).await;
    let knows = app.replica_with(&path).await;
    let account = app.account("100").await;
    let body = json!({"prompt": "A cat.", "provider": "runway", "model": "new"});
    let uuid = knows.queue(&account, "video", &body).await;
    for _ in 0..3 {
        app.advance(TimeDelta::minutes(1));
        assert_eq!(app.work_once().await, 1);
    }
    assert_eq!(upstream.calls(&Method::POST, ""), 0);
    let record = knows.until_finished(&account, &uuid).await;
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["credits"]["charged"], "5");
    app.assert_settled().await;
}

#[sqlx::test]
async fn reload_under_load_on_two_servers(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    let file = File::new(&model("a", 1, ""));
    let app = start(options, &upstream, &file).await;
    let other = app.replica().await;
    let account = app.account("1000000").await;
    let ask = async |n: usize| {
        let app = if n.is_multiple_of(2) { &app } else { &other };
        if n.is_multiple_of(3) {
            return text(app, &account, "a").await.expect(200);
        }
        let body = json!({"model": "openai/a", "max_completion_tokens": 64,
            "messages": [{"role": "user", "content": "Hi."}]});
        let answer = app
            .post(&account.key, "/openai/v1/chat/completions", &body)
            .await;
        answer.expect(200);
        let path = format!("/v1/generate/{}", answer.header("x-gensvc-generation"));
        app.get(&account.key, &path).await.expect(200)
    };
    let lane = async |lane: usize| {
        let mut records = Vec::new();
        for n in 0..10 {
            records.push(ask(lane * 10 + n).await);
        }
        records
    };
    let reloads = async {
        for (n, price) in (2..=9).enumerate() {
            upstream.arrived(12 * (n + 1)).await;
            file.write(&model("a", price, ""));
            app.app.reload.run().unwrap();
            other.app.reload.run().unwrap();
        }
    };
    let (records, ()) = tokio::join!(join_all((0..12).map(lane)), reloads);
    let records = records.concat();
    let (mut prices, mut holds) = (BTreeSet::new(), BTreeMap::new());
    for (n, record) in records.iter().enumerate() {
        let pricing = &record["metadata"]["pricing"];
        assert_eq!(pricing["input_per_million"], pricing["output_per_million"]);
        let price = pricing["input_per_million"].as_str().unwrap();
        let price: u32 = price.strip_suffix("000000").unwrap().parse().unwrap();
        assert_eq!(charged(record), (5 * price).to_string(), "{record}");
        prices.insert(price);
        let held = held_per_price(record);
        let known = *holds.entry(n.is_multiple_of(3)).or_insert(held);
        assert_eq!(known, held, "{record}");
    }
    assert!(prices.len() > 1, "all had the price of {prices:?}");
    let last = |app: &TestApp| {
        app.app
            .service
            .current()
            .catalogue()
            .find("openai", "a")
            .unwrap()
            .prices()
    };
    assert_eq!(last(&app), last(&other));
    app.assert_settled().await;
    app.assert_verified().await;
}
