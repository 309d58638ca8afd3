//! The pages of the console, as a browser asks for them.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::{Body, to_bytes},
    extract::ConnectInfo,
    response::Response,
};
use chrono::{DateTime, TimeDelta, Utc};
use gensvc::{
    app::{self, App},
    domain::clock::ManualClock,
    store::Store,
};
use http::Request;
use sqlx::{PgPool, postgres::PgConnectOptions};
use tower::ServiceExt as _;
use uuid::Uuid;

use super::TRIES;

/// The last evening of what was made.
const NOW: &str = "2026-06-29T20:00:00Z";
const PASSWORD: &str = "a password of tests";

/// Where days of the last month and of half a year are chosen.
const MONTH: &str = "from=2026-05-30&to=2026-06-28";
const ALL: &str = "from=2026-01-01&to=2026-06-29";

struct Console {
    app: App,
    clock: Arc<ManualClock>,
    cookie: String,
}

/// Asks for every page some times, and prints how long each took.
pub async fn measure(pool: &PgPool, options: PgConnectOptions, folder: &Path) {
    let console = Console::open(options, folder).await;
    println!("\n| page | ms, first | ms, best | kB |");
    println!("|---|---|---|---|");
    let mut slowest = Duration::ZERO;
    for path in paths(pool).await {
        let mut times = Vec::new();
        let mut bytes = 0;
        for _ in 0..TRIES {
            // The limit of the session's requests is not what is measured.
            console.clock.advance(TimeDelta::seconds(2));
            let begun = Instant::now();
            let response = console.get(&path).await;
            assert!(
                response.status().is_success(),
                "{path}: {}",
                response.status()
            );
            bytes = to_bytes(response.into_body(), usize::MAX)
                .await
                .unwrap()
                .len();
            times.push(begun.elapsed());
        }
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        let (first, best) = (times[0], times.iter().min().copied().unwrap_or_default());
        slowest = slowest.max(first);
        println!(
            "| {path} | {:.1} | {:.1} | {} |",
            ms(first),
            ms(best),
            bytes / 1000
        );
    }
    println!("\nThe slowest page took {slowest:.0?}.");
}

async fn paths(pool: &PgPool) -> Vec<String> {
    let id: Uuid = sqlx::query_scalar(
        "select id from finished_generations where account_id = 1 and not failed
           and model_id = 1 order by id limit 1 offset 100000",
    )
    .fetch_one(pool)
    .await
    .unwrap();
    let mut paths: Vec<String> = [
        "/",
        "/playground/text",
        "/playground/image",
        "/generations",
        "/generations?type=video",
        "/generations?status=failed",
        "/generations?model=rare",
        "/generations?from=2026-03-03&to=2026-03-03&type=audio",
        "/generations?api_key=3",
        "/generations?api_key=3&status=failed&type=video",
        "/generations?api_key=21",
        "/generations?api_key=21&model=rare",
        "/generations?api_key=none",
        "/generations?api_key=none&from=2026-01-01&to=2026-02-01",
        "/ledger",
        "/ledger?kind=release",
        "/ledger?kind=grant",
        "/keys",
        "/keys/3",
        "/templates",
        "/webhooks",
        "/webhooks/1",
        "/connect",
        "/settings",
        "/operator",
        "/operator/jobs",
        "/operator/accounts",
        "/operator/accounts?email=account2@example.com",
        "/operator/accounts/1",
        "/operator/spending",
    ]
    .map(str::to_owned)
    .to_vec();
    paths.push(format!("/generations/{id}"));
    paths.push(format!("/playground/text?generation={id}"));
    paths.push(format!("/operator/spending?{ALL}"));
    for by in ["day", "type", "provider", "model", "api_key"] {
        paths.push(format!("/usage?by={by}&{MONTH}"));
        paths.push(format!("/usage?by={by}&{ALL}"));
    }
    paths
}

impl Console {
    /// Logs the person of account 1 in, who is an operator.
    async fn open(options: PgConnectOptions, folder: &Path) -> Self {
        let env = BTreeMap::from([("GENSVC_DATA_DIR".to_owned(), folder.display().to_string())]);
        let config = app::config::load(None, &env).unwrap();
        let store = Store::connect_lazy(options, app::database::connections(&config));
        let now: DateTime<Utc> = NOW.parse().unwrap();
        let clock = Arc::new(ManualClock::new(now));
        let app = App::build(&config, store, clock.clone(), "http://test")
            .await
            .unwrap();
        let user = app.service.user("account1@example.com").await.unwrap();
        app.service
            .reset_password(user.id, PASSWORD.into())
            .await
            .unwrap();
        app.service.set_operator(user.id, true).await.unwrap();
        let mut console = Self {
            app,
            clock,
            cookie: String::new(),
        };
        let body = format!("email=account1@example.com&password={PASSWORD}").replace(' ', "+");
        let request = Request::post("/login")
            .header("origin", "http://test")
            .header("content-type", "application/x-www-form-urlencoded");
        let response = console.send(request, body.into()).await;
        let cookie = response.headers()["set-cookie"].to_str().unwrap();
        let (cookie, _) = cookie.split_once(';').unwrap();
        cookie.clone_into(&mut console.cookie);
        console
    }

    async fn get(&self, path: &str) -> Response {
        let request = Request::get(path).header("cookie", &self.cookie);
        self.send(request, Body::empty()).await
    }

    async fn send(&self, request: http::request::Builder, body: Body) -> Response {
        let request = request.header("host", "test").header("accept", "text/html");
        let mut request = request.body(body).unwrap();
        let peer = ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 9)));
        request.extensions_mut().insert(peer);
        let Ok(response) = self.app.router.clone().oneshot(request).await;
        response
    }
}
