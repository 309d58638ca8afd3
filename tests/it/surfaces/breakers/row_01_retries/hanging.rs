//! Retries that arrive before their first attempt's hold is placed.

use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use tokio::task::yield_now;

use super::*;
use crate::{
    common::Upstream,
    surfaces::{RESPONSES, media},
};

/// A locked row of an account, for which holds wait.
pub(super) struct Lock {
    holder: PgConnection,
    watcher: PgConnection,
}

impl Lock {
    pub(super) async fn new(options: &PgConnectOptions, account: &Account) -> Self {
        let connect = || PgConnection::connect_with(options);
        let (mut holder, watcher) = (connect().await.unwrap(), connect().await.unwrap());
        sqlx::raw_sql("begin").execute(&mut holder).await.unwrap();
        sqlx::query("select from accounts where id = $1 for update")
            .bind(account.id.0)
            .execute(&mut holder)
            .await
            .unwrap();
        Self { holder, watcher }
    }

    /// Waits until that many statements wait for it, in whose lane they are.
    pub(super) async fn waited_for_by(&mut self, statements: i64) {
        let waiting = "select count(*) from pg_stat_activity
                       where datname = current_database() and wait_event_type = 'Lock'
                         and clock_timestamp() - query_start > interval '50 ms'";
        for _ in 0..PATIENCE {
            let found: i64 = sqlx::query_scalar(waiting)
                .fetch_one(&mut self.watcher)
                .await
                .unwrap();
            if found == statements {
                return;
            }
        }
        panic!("no {statements} statements wait");
    }

    pub(super) async fn release(mut self) {
        sqlx::raw_sql("rollback")
            .execute(&mut self.holder)
            .await
            .unwrap();
    }
}

/// The bodies of all routes of SDKs.
fn bodies() -> Vec<(&'static str, Value)> {
    let responses = json!({"model": MODELS[0], "input": "x", "max_output_tokens": 64});
    vec![
        (CHAT, ask(MODELS[0], "x")),
        (CHAT, with(ask(MODELS[0], "x"), &json!({"stream": true}))),
        (MESSAGES, ask(MODELS[0], "x")),
        (RESPONSES, responses),
        (media::IMAGES, media::image(&json!({"size": "256x256"}))),
        (media::SPEECH, media::speech(&json!({}))),
    ]
}

/// The answer of a request, with the work that it may wait for.
async fn answered(app: &TestApp, mut request: JoinHandle<Answer>) -> Answer {
    loop {
        tokio::select! {
            answer = &mut request => return answer.unwrap(),
            () = app.work() => yield_now().await,
        }
    }
}

async fn charges(app: &TestApp, account: &Account) -> usize {
    let path = "/v1/credits/ledger?kind=charge";
    let ledger = app.get(&account.key, path).await.expect(200);
    ledger["data"].as_array().unwrap().len()
}

async fn hang_up(request: JoinHandle<Answer>) {
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
}

#[sqlx::test]
async fn an_attempt_that_was_given_up_is_not_placed(_: PgPoolOptions, options: PgConnectOptions) {
    let app = Arc::new(TestApp::new(options.clone()).await);
    let other = Arc::new(app.replica().await);
    for (path, body) in bodies() {
        for (server, count) in [(&app, "1"), (&other, "1"), (&other, "2")] {
            let account = app.account("100").await;
            // The key is known, as that of a client that has asked before.
            app.balance(&account).await;
            let mut lock = Lock::new(&options, &account).await;
            let first = trying(&app, &account, path, "0", &body);
            lock.waited_for_by(1).await;
            hang_up(first).await;
            app.advance(TimeDelta::seconds(1));
            let retry = trying(server, &account, path, count, &body);
            if !Arc::ptr_eq(server, &app) {
                lock.waited_for_by(2).await;
            }
            lock.release().await;
            let answer = answered(server, retry).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            app.idle().await;
            assert_eq!(made(&app, &account).await.len(), 1, "{path} {count}");
            assert_eq!(charges(&app, &account).await, 1, "{path} {count}");
        }
    }
    app.assert_settled().await;
}

/// The server has not noticed that the first caller disconnected.
#[sqlx::test]
async fn an_attempt_and_its_retry_make_one(_: PgPoolOptions, options: PgConnectOptions) {
    let app = Arc::new(TestApp::new(options.clone()).await);
    let other = Arc::new(app.replica().await);
    for (path, body) in bodies() {
        for (first_at, retry_at) in [(&app, &app), (&app, &other)] {
            let account = app.account("100").await;
            let mut lock = Lock::new(&options, &account).await;
            let first = trying(first_at, &account, path, "0", &body);
            lock.waited_for_by(1).await;
            app.advance(TimeDelta::seconds(1));
            let retry = trying(retry_at, &account, path, "1", &body);
            if !Arc::ptr_eq(first_at, retry_at) {
                lock.waited_for_by(2).await;
            }
            lock.release().await;
            let [first, retry] = [answered(&app, first).await, answered(&app, retry).await];
            for answer in [&first, &retry] {
                assert_eq!(answer.status, 200, "{}", answer.text);
            }
            let name = "x-gensvc-generation";
            assert_eq!(first.header(name), retry.header(name), "{path}");
            assert_eq!(made(&app, &account).await.len(), 1, "{path}");
            assert_eq!(charges(&app, &account).await, 1, "{path}");
        }
    }
    app.assert_settled().await;
}

/// A retry on another server overtakes the first attempt, which waits for credits on hold.
#[sqlx::test]
async fn an_overtaken_attempt_joins_its_retry(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let env = [
        ("GENSVC__SERVER__ACCOUNT_SHARE_PERCENT", "100"),
        ("GENSVC__CREDITS__HOLD_WAIT_SECONDS", "60"),
    ];
    let app = Arc::new(TestApp::vendors(options, &upstream, &env).await);
    let other = Arc::new(app.replica().await);
    for (n, path) in ROUTES.into_iter().enumerate() {
        // Two holds of 0.004113 would not fit.
        let account = app.account("0.0055").await;
        let running = trying(&other, &account, path, "0", &ask(MODELS[1], "running"));
        upstream.arrived(3 * n + 1).await;
        let body = ask(MODELS[1], "x");
        let first = trying(&app, &account, path, "0", &body);
        until_waiting(&app).await;
        app.advance(TimeDelta::seconds(1));
        let retry = trying(&other, &account, path, "1", &body);
        until_waiting(&other).await;
        upstream.release(1);
        upstream.arrived(3 * n + 2).await;
        running.await.unwrap().expect(200);
        until_joined(&app, &account).await;
        upstream.release(1);
        let (first, retry) = (first.await.unwrap(), retry.await.unwrap());
        first.expect(200);
        retry.expect(200);
        let name = "x-gensvc-generation";
        assert_eq!(first.header(name), retry.header(name));
        assert_eq!(made(&app, &account).await.len(), 2);
        // The same request again is a new one.
        app.advance(TimeDelta::seconds(1));
        let again = trying(&app, &account, path, "0", &body);
        upstream.arrived(3 * n + 3).await;
        upstream.release(1);
        assert_ne!(again.await.unwrap().header(name), retry.header(name));
    }
    app.assert_settled().await;
}

async fn until_waiting(app: &TestApp) {
    for _ in 0..1_000_000 {
        if app.app.service.waiting() == 1 {
            return;
        }
        yield_now().await;
    }
    panic!("it does not wait");
}

/// Until both attempts wait for one generation.
async fn until_joined(app: &TestApp, account: &Account) {
    let uuid = made(app, account).await[0].clone();
    for _ in 0..PATIENCE {
        let record = app.record(account, &uuid).await;
        let held = app.balance(account).await.1;
        if record["status"] == "processing" && held == "0.004113" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it does not run");
}

#[sqlx::test]
async fn concurrent_attempts_and_their_retries_are_one_each(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = Arc::new(TestApp::new(options.clone()).await);
    let account = app.account("100").await;
    let mut lock = Lock::new(&options, &account).await;
    let body = ask(MODELS[0], "x");
    // The first three are still there, the others are given up.
    let firsts = [(); 3].map(|()| trying(&app, &account, CHAT, "0", &body));
    let given_up = [(); 2].map(|()| trying(&app, &account, CHAT, "0", &body));
    lock.waited_for_by(1).await;
    for first in given_up {
        hang_up(first).await;
    }
    app.advance(TimeDelta::seconds(1));
    let retries = [(); 3].map(|()| trying(&app, &account, CHAT, "1", &body));
    lock.release().await;
    let of = |answers: Vec<Result<Answer, _>>| {
        let answers = answers.into_iter().map(Result::unwrap);
        let mut uuids: Vec<_> = answers
            .map(|answer| {
                answer.expect(200);
                answer.header("x-gensvc-generation").to_owned()
            })
            .collect();
        uuids.sort();
        uuids
    };
    let (firsts, retries) = (of(join_all(firsts).await), of(join_all(retries).await));
    assert_eq!(firsts, retries);
    assert_eq!(made(&app, &account).await.len(), 3);
    app.assert_settled().await;
}
