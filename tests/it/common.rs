//! The application under test, and an HTTP client for it.

pub mod bucket;
mod clocks;
mod tasks;
pub mod upstream;
pub mod vendors;
mod work;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::ConnectInfo,
};
use chrono::{DateTime, TimeDelta, Utc};
use gensvc::{
    app::{self, App},
    config::Config,
    domain::{
        clock::{Clock as _, ManualClock},
        credits::Credits,
        ids::AccountId,
        validate::Body as _,
    },
    media::MediaStore,
    providers::Registry,
    request::{AccountRequest, KeyRequest},
    store::{Store, verify::Scope},
};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use secrecy::ExposeSecret as _;
use serde_json::{Map, Value, json};
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tower::ServiceExt as _;
use uuid::Uuid;

pub use clocks::MovableClock;
pub use upstream::{End, Recorded, Reply, Upstream};
pub use work::{link, listening};

/// Where [`TestApp::with`] finds a configuration file.
pub const CONFIG_FILE: &str = "CONFIG_FILE";
/// With this variable OpenAI's models are called by the API that is their default, which most tests
/// do not script.
pub const DEFAULT_APIS: &str = "DEFAULT_APIS";
/// The password of every account.
pub const PASSWORD: &str = "correct horse battery";

pub struct TestApp {
    pub app: App,
    pub clock: Arc<ManualClock>,
    pub store: Store,
    /// For looking behind the API.
    pub pool: PgPool,
    env: BTreeMap<String, String>,
    options: PgConnectOptions,
}

/// An account with a key that has every ability.
#[derive(Clone)]
pub struct Account {
    pub id: AccountId,
    pub email: String,
    pub key: String,
}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// Lossy, for files.
    pub text: String,
    pub bytes: Bytes,
}

/// The configuration of a server, with OpenAI's models by Chat Completions unless [`DEFAULT_APIS`] is
/// set, and not retired, as some are at the time of the tests; unless the file has models of OpenAI.
fn config(file: Option<&Path>, env: &BTreeMap<String, String>) -> Config {
    let given = file.map(|path| std::fs::read_to_string(path).unwrap());
    let given = given.unwrap_or_default();
    if given.contains("[[providers.openai.models]]") {
        return app::config::load(file, env).unwrap();
    }
    let all = include_str!("../../config/default.toml");
    let (_, models) = all.split_once("[[providers.openai.models]]").unwrap();
    let (models, _) = models.split_once("\n[providers.").unwrap();
    let mut models = models.replace("\nretiring = ", "\nretiring = \"\" # ");
    if !env.contains_key(DEFAULT_APIS) {
        models = models.replace(
            "wire = { reasoning_effort",
            "wire = { api = \"chat\", reasoning_effort",
        );
    }
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(Uuid::now_v7().to_string());
    let text = format!("{given}\n[[providers.openai.models]]{models}");
    std::fs::write(&path, text).unwrap();
    let config = app::config::load(Some(&path), env).unwrap();
    std::fs::remove_file(path).unwrap();
    config
}

impl TestApp {
    /// With the sandbox only.
    pub async fn new(options: PgConnectOptions) -> Self {
        Self::with(options, &[]).await
    }

    /// With OpenAI, Anthropic and Gemini, all served by `upstream`.
    pub async fn upstream(options: PgConnectOptions, upstream: &Upstream) -> Self {
        Self::upstream_with(options, upstream, &[]).await
    }

    /// As [`Self::upstream`], with additional environment variables.
    pub async fn upstream_with(
        options: PgConnectOptions,
        upstream: &Upstream,
        more: &[(&str, &str)],
    ) -> Self {
        let url = upstream.url();
        let at = |name: &str| format!("{url}/{name}");
        let (openai, anthropic, gemini) = (at("openai/v1"), at("anthropic"), at("gemini"));
        let mut env = vec![
            ("OPENAI_API_KEY", "sk-test-openai"),
            ("OPENAI_BASE_URL", &openai),
            ("ANTHROPIC_API_KEY", "sk-test-anthropic"),
            ("ANTHROPIC_BASE_URL", &anthropic),
            ("GEMINI_API_KEY", "test-gemini"),
            ("GOOGLE_GEMINI_BASE_URL", &gemini),
        ];
        env.extend_from_slice(more);
        Self::with(options, &env).await
    }

    /// With additional environment variables.
    pub async fn with(options: PgConnectOptions, env: &[(&str, &str)]) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(Uuid::now_v7().to_string());
        let mut all = BTreeMap::from([
            ("GENSVC_DATA_DIR".to_owned(), folder.display().to_string()),
            (
                "GENSVC__SUBMISSIONS__RETRY_BASE_MS".to_owned(),
                "1".to_owned(),
            ),
            ("GENSVC__JOBS__POLL_INTERVAL_MS".to_owned(), "10".to_owned()),
            // Independent of the machine's load.
            (
                "GENSVC__DATABASE__ACQUIRE_TIMEOUT_MS".to_owned(),
                "30000".to_owned(),
            ),
            // Receivers run on this machine; no name server is queried.
            (
                "GENSVC__WEBHOOKS__ALLOW_PRIVATE".to_owned(),
                "true".to_owned(),
            ),
        ]);
        all.extend(env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        Self::start(options, all, Arc::new(ManualClock::new(now))).await
    }

    async fn start(
        options: PgConnectOptions,
        env: BTreeMap<String, String>,
        clock: Arc<ManualClock>,
    ) -> Self {
        let file = env.get(CONFIG_FILE).map(Path::new);
        let config = config(file, &env);
        let store = Store::connect_lazy(options.clone(), app::database::connections(&config));
        let app = App::build(&config, store.clone(), clock.clone(), "http://test")
            .await
            .unwrap();
        app.runner.sweep_step().await.unwrap();
        let pool = PgPoolOptions::new()
            .max_connections(2)
            .connect_lazy_with(options.clone());
        Self {
            app,
            clock,
            store,
            pool,
            env,
            options,
        }
    }

    /// Another server on the same database, as a second replica or after a crash. The first
    /// continues.
    pub async fn replica(&self) -> Self {
        let (options, env) = (self.options.clone(), self.env.clone());
        Self::start(options, env, self.clock.clone()).await
    }

    /// As [`Self::replica`], with a different environment.
    pub async fn replica_with(&self, env: &[(&str, &str)]) -> Self {
        let (options, mut all) = (self.options.clone(), self.env.clone());
        all.extend(env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        Self::start(options, all, self.clock.clone()).await
    }

    /// The routes of the same server, where clients reach it at another address.
    pub async fn router_at(&self, url: &str) -> Router {
        let config = config(None, &self.env);
        let (store, clock) = (self.store.clone(), self.clock.clone());
        let app = App::build(&config, store, clock, url).await;
        app.unwrap().router
    }

    /// The same server with a different media store.
    pub async fn over(mut self, storage: MediaStore) -> Self {
        let config = config(None, &self.env);
        let (store, clock) = (self.store.clone(), self.clock.clone());
        let app = App::build_over(&config, store, clock, "http://test", storage, None).await;
        self.app = app.unwrap();
        self
    }

    /// The same server with different adapters.
    pub async fn with_adapters(mut self, adapters: Registry) -> Self {
        let config = config(None, &self.env);
        let storage = MediaStore::open(self.media_folder()).await.unwrap();
        let (store, clock) = (self.store.clone(), self.clock.clone());
        let app = App::build_over(
            &config,
            store,
            clock,
            "http://test",
            storage,
            Some(adapters),
        )
        .await;
        self.app = app.unwrap();
        self.app.runner.sweep_step().await.unwrap();
        self
    }

    pub fn advance(&self, by: TimeDelta) {
        self.clock.advance(by);
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// An account with `credits` and a key with every ability and a rate limit that never applies.
    pub async fn account(&self, credits: &str) -> Account {
        let email = format!("{}@example.com", Uuid::now_v7());
        let request = AccountRequest {
            email: email.clone(),
            password: PASSWORD.into(),
            name: Some("Test".to_owned()),
            credits: credits.parse::<Credits>().unwrap(),
        };
        let (id, _) = self.app.service.create_account(&request).await.unwrap();
        let key = self
            .key(
                id,
                json!({"name": "all", "rate_limit_per_minute": 1_000_000}),
            )
            .await;
        Account { id, email, key }
    }

    /// A key of an account, as created by POST /v1/api-keys.
    pub async fn key(&self, account: AccountId, body: Value) -> String {
        let body: Map<String, Value> = body.as_object().unwrap().clone();
        let (request, errors) = KeyRequest::parse(&body);
        let request = request.filter(|_| errors.is_empty()).unwrap();
        let (_, secret) = self
            .app
            .service
            .create_key(account, &request, None)
            .await
            .unwrap();
        secret.expose_secret().to_owned()
    }

    /// Logs in and returns the session token.
    pub async fn login(&self, account: &Account) -> String {
        let body = json!({"email": account.email, "password": PASSWORD});
        let answer = self.post("", "/v1/auth/login", &body).await;
        answer.json()["token"].as_str().unwrap().to_owned()
    }

    pub async fn get(&self, token: &str, path: &str) -> Answer {
        self.call(Method::GET, token, path, &[], None).await
    }

    pub async fn delete(&self, token: &str, path: &str) -> Answer {
        self.call(Method::DELETE, token, path, &[], None).await
    }

    pub async fn post(&self, token: &str, path: &str, body: &Value) -> Answer {
        self.post_with(token, path, &[], body).await
    }

    pub async fn post_with(
        &self,
        token: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Answer {
        let mut all = vec![("content-type", "application/json")];
        all.extend_from_slice(headers);
        self.call(Method::POST, token, path, &all, Some(body.to_string()))
            .await
    }

    /// Generates text and returns the response, whatever it is.
    pub async fn text(&self, token: &str, body: Value) -> Answer {
        self.post(token, "/v1/generate/text", &body).await
    }

    /// One request through the whole router. An empty token sends none.
    pub async fn call(
        &self,
        method: Method,
        token: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if !token.is_empty() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = &body {
            request = request.header("content-length", body.len());
        }
        let body = body.map_or_else(Body::empty, Body::from);
        self.send(request.body(body).unwrap()).await
    }

    /// Status and length of a response that need not be text.
    pub async fn size(&self, path: &str) -> (StatusCode, usize) {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let response = self.app.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        (parts.status, body.collect().await.unwrap().to_bytes().len())
    }

    /// One raw request through the whole router.
    pub async fn send(&self, mut request: Request<Body>) -> Answer {
        let peer = ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 9)));
        request.extensions_mut().insert(peer);
        Answer::of(&self.app.router, request).await
    }

    /// GET /metrics without a token, on the port that only this machine reaches.
    pub async fn metrics(&self, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::get("/metrics");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        Answer::of(&self.app.metrics_router, request).await
    }

    /// Balance and held of an account, from the API.
    pub async fn balance(&self, account: &Account) -> (String, String) {
        let body = self.get(&account.key, "/v1/credits/balance").await.json();
        let text = |name: &str| body[name].as_str().unwrap().to_owned();
        (text("balance"), text("held"))
    }

    /// The audit finds nothing, and nothing is on hold anywhere.
    pub async fn assert_settled(&self) {
        self.assert_verified().await;
        let held: i64 = sqlx::query_scalar("select coalesce(sum(held), 0)::bigint from accounts")
            .fetch_one(&self.pool)
            .await
            .unwrap();
        assert_eq!(held, 0, "something is still on hold");
    }

    /// Neither audit finds anything.
    pub async fn assert_verified(&self) {
        for scope in [Scope::SinceLast, Scope::Whole] {
            let audit = self.store.verify_ledger(scope).await.unwrap();
            assert_eq!(audit.differences, Vec::<String>::new(), "{scope:?}");
        }
    }
}

impl Answer {
    async fn of(router: &Router, request: Request<Body>) -> Self {
        Self::read(router.clone().oneshot(request).await.unwrap()).await
    }

    /// Reads a response to its end.
    pub async fn read(response: Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Self {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8_lossy(&bytes).into_owned(),
            bytes,
        }
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text)
            .unwrap_or_else(|e| panic!("{e}: {} {:?}", self.status, self.text))
    }

    /// Asserts the status and returns the body.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        if self.text.is_empty() {
            Value::Null
        } else {
            self.json()
        }
    }

    /// Asserts status and code of an error response, and returns `error`.
    #[track_caller]
    pub fn error(&self, status: u16, code: &str) -> Value {
        let body = self.expect(status);
        let error = body["error"].clone();
        assert_eq!(error["code"], code, "{}", self.text);
        for member in ["type", "message", "request_id"] {
            assert!(
                error[member].as_str().is_some_and(|s| !s.is_empty()),
                "{member}: {body}"
            );
        }
        assert!(error["retryable"].is_boolean(), "{body}");
        assert_eq!(error["request_id"], self.header("x-request-id"));
        error
    }

    /// The codes of all failing fields, by path.
    #[track_caller]
    pub fn fields(&self) -> BTreeMap<String, String> {
        let error = self.error(422, "validation_failed");
        let errors = error["errors"].as_array().unwrap().clone();
        let text = |e: &Value, name: &str| e[name].as_str().unwrap().to_owned();
        errors
            .iter()
            .map(|e| (text(e, "param"), text(e, "code")))
            .collect()
    }

    /// The value of a header; empty when it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().unwrap())
    }

    /// The URL of the next page in `Link`; empty on the last one.
    #[track_caller]
    pub fn next_page(&self) -> String {
        let link = self.header("link");
        if link.is_empty() {
            return String::new();
        }
        let (target, rest) = link.split_once('>').unwrap();
        assert_eq!(rest, "; rel=\"next\"");
        let cursor = self.json()["next_cursor"].as_str().unwrap().to_owned();
        assert!(target.contains(&format!("cursor={cursor}")), "{link}");
        target.trim_start_matches('<').to_owned()
    }

    /// The events of a stream: name and data.
    pub fn events(&self) -> Vec<(String, Value)> {
        assert!(self.header("content-type").starts_with("text/event-stream"));
        self.text
            .split("\n\n")
            .filter(|block| !block.trim().is_empty() && !block.starts_with(':'))
            .map(|block| {
                let field = |name: &str| {
                    let line = block.lines().find_map(|l| l.strip_prefix(name));
                    line.unwrap_or_else(|| panic!("no {name} in {block:?}"))
                        .trim()
                        .to_owned()
                };
                (
                    field("event:"),
                    serde_json::from_str(&field("data:")).unwrap(),
                )
            })
            .collect()
    }
}
