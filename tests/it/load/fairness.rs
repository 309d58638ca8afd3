//! Shared resources: one account, or one address, leaves room for others.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::body::{Body, Bytes};
use futures_util::{StreamExt as _, stream};
use http::Request;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
};

use crate::common::{Account, Answer, PASSWORD, TestApp, Upstream};

const LARGE: usize = 300 << 10;

/// Begins a large request whose body does not arrive; `reads` tells when it is read.
fn slow_upload(
    app: &Arc<TestApp>,
    account: &Account,
    with_length: bool,
    reads: UnboundedSender<()>,
) -> JoinHandle<Answer> {
    let body = stream::once(async move {
        reads.send(()).unwrap();
        std::future::pending::<Result<Bytes, std::io::Error>>().await
    });
    let mut request = Request::post("/openai/v1/chat/completions")
        .header("authorization", format!("Bearer {}", account.key))
        .header("content-type", "application/json");
    if with_length {
        request = request.header("content-length", LARGE);
    }
    let request = request.body(Body::from_stream(body.boxed())).unwrap();
    let app = Arc::clone(app);
    tokio::spawn(async move { app.send(request).await })
}

/// Sends a large body that is not JSON, so that the answer shows that it was read.
async fn large(app: &TestApp, account: &Account) -> Answer {
    let json = [("content-type", "application/json")];
    let body = Some("x".repeat(LARGE));
    let path = "/openai/v1/chat/completions";
    app.call(http::Method::POST, &account.key, path, &json, body)
        .await
}

async fn read(reads: &mut UnboundedReceiver<()>, n: usize) {
    for _ in 0..n {
        reads.recv().await.unwrap();
    }
}

#[sqlx::test]
async fn slow_uploads_take_no_place(_: PgPoolOptions, options: PgConnectOptions) {
    let app = Arc::new(TestApp::new(options).await);
    let (sender, mut reads) = unbounded_channel();
    let mut uploads = Vec::new();
    for _ in 0..3 {
        let busy = app.account("1").await;
        uploads.extend((0..8).map(|n| slow_upload(&app, &busy, n % 2 == 0, sender.clone())));
        read(&mut reads, 8).await;
        assert_eq!(large(&app, &busy).await.status, 400);
    }
    let quiet = app.account("1").await;
    assert_eq!(large(&app, &quiet).await.status, 400);
    for upload in uploads {
        upload.abort();
    }
}

#[sqlx::test]
async fn reports_of_one_account_leave_room_for_others(_: PgPoolOptions, options: PgConnectOptions) {
    let app = Arc::new(TestApp::new(options).await);
    let report = |app: Arc<TestApp>, key: String| {
        tokio::spawn(async move { app.get(&key, "/v1/credits/usage").await.expect(200) })
    };
    leaves_room_for_others(&app, report, 4).await;
}

#[sqlx::test]
async fn searches_of_one_account_leave_room_for_others(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = Arc::new(TestApp::new(options).await);
    let filters = [
        "prompt=x",
        "request_id=x",
        "provider_request_id=x",
        "api_key=none",
    ];
    let sent = AtomicUsize::new(0);
    let search = |app: Arc<TestApp>, key: String| {
        let filter = filters[sent.fetch_add(1, Ordering::Relaxed) % filters.len()];
        let path = format!("/v1/generate/history?{filter}");
        tokio::spawn(async move { app.get(&key, &path).await.expect(200) })
    };
    leaves_room_for_others(&app, search, 4).await;
}

#[sqlx::test]
async fn stored_answers_of_one_account_leave_room_for_others(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = Arc::new(TestApp::new(options).await);
    let count = |app: Arc<TestApp>, key: String| {
        tokio::spawn(async move {
            let id = format!("msg_{}_0", uuid::Uuid::now_v7().simple());
            let body = json!({"model": "sandbox/sandbox-text", "instructions": "x".repeat(LARGE),
                "input": [{"type": "item_reference", "id": id}]});
            let counted = app.post(&key, "/openai/v1/responses/input_tokens", &body);
            let answer = counted.await;
            // The id does not exist; it was looked up.
            assert_eq!(answer.status, 400);
        })
    };
    leaves_room_for_others(&app, count, 2).await;
}

/// Sends ten requests of one account that read finished generations, of which half of `places` run,
/// and four of another account, which fill the other half. Meanwhile a large body of a third account
/// is parsed.
async fn leaves_room_for_others<T>(
    app: &Arc<TestApp>,
    send: impl Fn(Arc<TestApp>, String) -> JoinHandle<T>,
    places: i64,
) {
    let (busy, quiet) = (app.account("1").await, app.account("1").await);
    let mut locked = app.pool.begin().await.unwrap();
    sqlx::query("lock table finished_generations in access exclusive mode")
        .execute(&mut *locked)
        .await
        .unwrap();
    let running = async || -> i64 {
        let counting = sqlx::query_scalar(
            "select count(*) from pg_stat_activity
             where datname = current_database() and wait_event_type = 'Lock'
               and query like '%generations%' and query not like '%pg_stat_activity%'",
        );
        counting.fetch_one(&app.pool).await.unwrap()
    };
    let send = |account: &Account| send(Arc::clone(app), account.key.clone());
    let many: Vec<_> = (0..10).map(|_| send(&busy)).collect();
    while running().await < places / 2 {
        tokio::task::yield_now().await;
    }
    let others: Vec<_> = (0..4).map(|_| send(&quiet)).collect();
    while running().await < places {
        tokio::task::yield_now().await;
    }
    assert_eq!(running().await, places);
    let third = app.account("1").await;
    assert_eq!(large(app, &third).await.status, 400);
    locked.rollback().await.unwrap();
    for answer in others {
        answer.await.unwrap();
    }
    for answer in many {
        answer.abort();
    }
}

#[sqlx::test]
async fn jobs_of_one_account_leave_half_of_a_providers_calls(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let env = [("GENSVC__PROVIDERS__OPENAI__MAX_CONCURRENT", "4")];
    let app = Arc::new(TestApp::vendors(options, &upstream, &env).await);
    let (busy, quiet) = (app.account("100").await, app.account("100").await);
    let speech = json!({"prompt": "x", "provider": "openai"});
    for _ in 0..5 {
        app.queue(&busy, "audio", &speech).await;
    }
    app.app.runner.work_step().await.unwrap();
    upstream.arrived(2).await;
    // Those of the other account, behind all of them, get the rest.
    for _ in 0..2 {
        app.queue(&quiet, "audio", &speech).await;
    }
    let working = async {
        loop {
            app.app.runner.work_step().await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = upstream.arrived(4) => {}
        () = working => {}
    }
    let calls = upstream.requests();
    assert_eq!(calls.len(), 4);
    upstream.release(usize::MAX >> 4);
}

/// Sends a login of a client behind the trusted proxy.
fn login(
    app: &Arc<TestApp>,
    address: &str,
    email: &str,
    password: &str,
) -> impl Future<Output = Answer> + use<> {
    let app = Arc::clone(app);
    let body = json!({"email": email, "password": password});
    let address = address.to_owned();
    async move {
        let headers = [("x-forwarded-for", address.as_str())];
        app.post_with("", "/v1/auth/login", &headers, &body).await
    }
}

async fn logins(options: PgConnectOptions) -> Arc<TestApp> {
    let env = [
        ("GENSVC__SERVER__TRUSTED_PROXIES", "127.0.0.1"),
        ("GENSVC__SERVER__MAX_WAITING_LOGINS", "6"),
    ];
    Arc::new(TestApp::with(options, &env).await)
}

/// Logs in with the right password while `guesses` keep all their places; it must not be refused.
async fn is_let_in(
    app: &Arc<TestApp>,
    guesses: Vec<JoinHandle<Answer>>,
    address: &str,
    email: &str,
) {
    // One of the guesses was refused: their queue is full.
    let (first, _, guesses) = futures_util::future::select_all(guesses).await;
    first.unwrap();
    login(app, address, email, PASSWORD).await.expect(200);
    for guess in guesses {
        let answer = guess.await.unwrap();
        assert!(
            [401, 429, 503].contains(&answer.status.as_u16()),
            "{}",
            answer.text
        );
    }
}

#[sqlx::test]
async fn guesses_of_one_address_leave_room_for_other_logins(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = logins(options).await;
    let email = app.account("1").await.email;
    for from in ["1.1.1.1", "2001:db8::1"] {
        let guesses = (0..40).map(|n| {
            // Any address of the network counts as one.
            let from = if n % 2 == 0 {
                from
            } else {
                from.strip_suffix(":1").map_or(from, |_| "2001:db8::2")
            };
            tokio::spawn(login(
                &app,
                from,
                &format!("{n}@example.com"),
                "wrong password",
            ))
        });
        is_let_in(&app, guesses.collect(), "2.2.2.2", &email).await;
    }
}

#[sqlx::test]
async fn addresses_with_failures_share_one_turn(_: PgPoolOptions, options: PgConnectOptions) {
    let app = logins(options).await;
    let email = app.account("1").await.email;
    let addresses = ["1.1.1.1", "1.1.1.2", "1.1.1.3"];
    for address in addresses {
        for n in 0..3 {
            let guess = login(&app, address, &format!("{n}@example.com"), "wrong password");
            guess.await.error(401, "invalid_credentials");
        }
    }
    let guesses = (0..60).map(|n| {
        let email = format!("{n}@example.org");
        tokio::spawn(login(&app, addresses[n % 3], &email, "wrong password"))
    });
    is_let_in(&app, guesses.collect(), "2.2.2.2", &email).await;
}

#[sqlx::test]
async fn guesses_at_one_email_leave_room_for_others(_: PgPoolOptions, options: PgConnectOptions) {
    let app = logins(options).await;
    let email = app.account("1").await.email;
    let guesses = (0..40).map(|n| {
        let address = format!("1.1.2.{n}");
        tokio::spawn(login(
            &app,
            &address,
            "Victim@example.com",
            "wrong password",
        ))
    });
    is_let_in(&app, guesses.collect(), "2.2.2.2", &email).await;
}

#[sqlx::test]
async fn requests_of_one_address_leave_room_for_others(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let env = [
        ("GENSVC__SERVER__TRUSTED_PROXIES", "127.0.0.1"),
        ("GENSVC__SERVER__MAX_REQUESTS", "4"),
    ];
    let app = Arc::new(TestApp::with(options, &env).await);
    let mut locked = app.pool.begin().await.unwrap();
    sqlx::query("lock table users in access exclusive mode")
        .execute(&mut *locked)
        .await
        .unwrap();
    let models = |address: &'static str| {
        let app = Arc::clone(&app);
        async move {
            let headers = [("x-forwarded-for", address)];
            app.call(http::Method::GET, "", "/v1/models", &headers, None)
                .await
        }
    };
    let running: Vec<_> = (0..2)
        .map(|n| {
            let app = Arc::clone(&app);
            let email = format!("{n}@example.com");
            tokio::spawn(login_of(app, email))
        })
        .collect();
    loop {
        let answer = models("2001:db8::5").await;
        if answer.status == 503 {
            assert_eq!(answer.header("retry-after"), "1");
            break;
        }
        tokio::task::yield_now().await;
    }
    models("2001:db8:1::1").await.expect(200);
    models("3.3.3.3").await.expect(200);
    locked.rollback().await.unwrap();
    for answer in running {
        answer.await.unwrap().error(401, "invalid_credentials");
    }
    models("2001:db8::5").await.expect(200);
}

async fn login_of(app: Arc<TestApp>, email: String) -> Answer {
    login(&app, "2001:db8::1", &email, "wrong password").await
}
