//! A database that disappears, is slow, or has its own defaults.

mod plans;
pub mod proxy;
mod schema;

use std::{
    io::{self, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::task::JoinHandle;

use crate::common::{Account, Answer, TestApp};
use proxy::Proxy;

/// The longest any single wait may take on a slow machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// Few, so that they are soon exhausted.
const CONNECTIONS: (&str, usize) = ("19", 19);
/// The connections among them for requests, apart from authentication and credit movements.
const FOR_REQUESTS: usize = 5;
/// A route that needs one.
const LIST: &str = "/v1/templates";

fn text() -> Value {
    json!({"prompt": "x", "parameters": {"max_tokens": 8}})
}

/// With few connections, for which requests wait with the default timeout.
async fn small(options: PgConnectOptions) -> Arc<TestApp> {
    let env = [
        ("GENSVC__DATABASE__MAX_CONNECTIONS", CONNECTIONS.0),
        ("GENSVC__DATABASE__ACQUIRE_TIMEOUT_MS", "5000"),
    ];
    Arc::new(TestApp::with(options, &env).await)
}

/// Makes every statement of [`LIST`] wait.
struct Lock {
    _holder: PgConnection,
    watcher: Watcher,
}

impl Lock {
    async fn new(options: &PgConnectOptions) -> Self {
        let connect = || PgConnection::connect_with(options);
        let mut holder = connect().await.unwrap();
        sqlx::raw_sql("begin; lock table templates in access exclusive mode")
            .execute(&mut holder)
            .await
            .unwrap();
        Self {
            _holder: holder,
            watcher: Watcher::new(options).await,
        }
    }
}

/// Sees who waits for a lock. A connection of its own, because `pg_stat_activity` is frozen within a
/// transaction.
struct Watcher(PgConnection);

impl Watcher {
    async fn new(options: &PgConnectOptions) -> Self {
        Self(PgConnection::connect_with(options).await.unwrap())
    }

    async fn ask<T>(&mut self, question: &'static str) -> T
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        let answer = sqlx::query_scalar(question).fetch_one(&mut self.0).await;
        answer.unwrap()
    }

    /// Waits until that many statements wait.
    async fn waiting(&mut self, statements: usize) {
        self.until(|waiting| waiting >= statements).await;
    }

    /// Waits until no statement waits any more.
    async fn none_waits(&mut self) {
        self.until(|waiting| waiting == 0).await;
    }

    async fn until(&mut self, done: impl Fn(usize) -> bool) {
        let since = Instant::now();
        loop {
            let waiting: i64 = self
                .ask(
                    "select count(*) from pg_stat_activity
                     where datname = current_database() and wait_event_type = 'Lock'",
                )
                .await;
            if done(usize::try_from(waiting).unwrap()) {
                break;
            }
            assert!(since.elapsed() < PATIENCE, "{waiting} wait");
        }
    }
}

/// Sets defaults for sessions of the test's database.
pub async fn set_default(options: &PgConnectOptions, setting: &str) {
    let name = options.get_database().unwrap();
    let statement = format!("alter database \"{name}\" set {setting}");
    sqlx::raw_sql(AssertSqlSafe(statement))
        .execute(&mut PgConnection::connect_with(options).await.unwrap())
        .await
        .unwrap();
}

/// Starts requests concurrently. While `repeat` is set, repeats each that got 503: statements that
/// wait for a lock time out, and a slow machine may need longer.
fn ask(
    app: &Arc<TestApp>,
    account: &Account,
    requests: usize,
    repeat: &Arc<AtomicBool>,
) -> Vec<JoinHandle<Answer>> {
    let one = |_| {
        let (app, key, repeat) = (Arc::clone(app), account.key.clone(), Arc::clone(repeat));
        tokio::spawn(async move {
            loop {
                let answer = app.get(&key, LIST).await;
                if answer.status != 503 || !repeat.load(Ordering::Relaxed) {
                    return answer;
                }
            }
        })
    };
    (0..requests).map(one).collect()
}

async fn answers(requests: Vec<JoinHandle<Answer>>) -> Vec<Answer> {
    let all = tokio::time::timeout(PATIENCE, join_all(requests)).await;
    all.unwrap().into_iter().map(Result::unwrap).collect()
}

async fn health(app: &TestApp, status: u16) {
    let since = Instant::now();
    loop {
        // It may be some hundred milliseconds old.
        let answer = app.get("", "/health").await;
        if answer.status == status {
            break;
        }
        assert!(since.elapsed() < PATIENCE, "{}", answer.text);
        tokio::task::yield_now().await;
    }
}

/// All connections of the pool are taken by statements, and all are served.
async fn every_place_serves(app: &Arc<TestApp>, account: &Account, options: &PgConnectOptions) {
    let mut lock = Lock::new(options).await;
    let requests = ask(app, account, FOR_REQUESTS, &Arc::new(true.into()));
    lock.watcher.waiting(FOR_REQUESTS).await;
    drop(lock);
    for answer in answers(requests).await {
        answer.expect(200);
    }
}

#[sqlx::test]
async fn after_a_silence_in_statements_all_connections_serve_again(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let proxy = Proxy::start(&options);
    let app = small(proxy.over(options.clone())).await;
    let account = app.account("10").await;
    health(&app, 200).await;

    // Every connection for requests is lost in the middle of a statement.
    let mut lock = Lock::new(&options).await;
    let repeat = Arc::new(AtomicBool::new(true));
    let lost = ask(&app, &account, FOR_REQUESTS, &repeat);
    lock.watcher.waiting(FOR_REQUESTS).await;
    proxy.silence();
    repeat.store(false, Ordering::Relaxed);
    drop(lock);
    health(&app, 503).await;
    // More than there are connections, and new ones cannot be opened either.
    let more = ask(&app, &account, 2 * CONNECTIONS.1, &repeat);
    for answer in answers(lost).await.into_iter().chain(answers(more).await) {
        answer.error(503, "database_unavailable");
    }

    proxy.switch();
    app.get(&account.key, LIST).await.expect(200);
    every_place_serves(&app, &account, &options).await;
    health(&app, 200).await;
    app.text(&account.key, text()).await.expect(200);
    app.assert_verified().await;
}

#[sqlx::test]
async fn many_connections_that_died_idle_cost_one_probe(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let proxy = Proxy::start(&options);
    let app = small(proxy.over(options.clone())).await;
    let account = app.account("10").await;
    every_place_serves(&app, &account, &options).await;
    proxy.switch();
    // One may get a connection that responded a moment ago, which is not probed. From then on none
    // is trusted, and the first that fails a probe speaks for all.
    let mut failures = 0;
    while app.get(&account.key, LIST).await.status != 200 {
        failures += 1;
        assert!(failures <= 1, "not served");
    }
    every_place_serves(&app, &account, &options).await;
    health(&app, 200).await;
}

#[sqlx::test]
async fn callers_who_hang_up_take_no_connection_with_them(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = small(options.clone()).await;
    let account = app.account("10").await;
    for _ in 0..3 {
        let mut lock = Lock::new(&options).await;
        let requests = ask(&app, &account, 2 * FOR_REQUESTS, &Arc::new(true.into()));
        lock.watcher.waiting(FOR_REQUESTS).await;
        for request in requests {
            request.abort();
            assert!(request.await.unwrap_err().is_cancelled());
        }
        let open: i64 = lock
            .watcher
            .ask(
                "select count(*) from pg_stat_activity
                 where datname = current_database() and application_name = 'gensvc'",
            )
            .await;
        assert!(usize::try_from(open).unwrap() <= CONNECTIONS.1, "{open}");
    }
    every_place_serves(&app, &account, &options).await;
}

#[sqlx::test]
async fn health_fails_while_no_request_gets_a_connection(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = small(options.clone()).await;
    let account = app.account("10").await;
    health(&app, 200).await;
    let mut lock = Lock::new(&options).await;
    let repeat = Arc::new(AtomicBool::new(true));
    let requests = ask(&app, &account, FOR_REQUESTS, &repeat);
    lock.watcher.waiting(FOR_REQUESTS).await;
    health(&app, 503).await;
    drop(lock);
    for answer in answers(requests).await {
        answer.expect(200);
    }
    health(&app, 200).await;
}

/// The first requests of a process need the same price at once.
#[sqlx::test]
async fn price_is_stored_once(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    for answer in join_all((0..16).map(|_| app.text(&account.key, text()))).await {
        answer.expect(200);
    }
    // A row moves with each update.
    let places: Vec<String> = sqlx::query_scalar("select ctid::text from prices")
        .fetch_all(&app.pool)
        .await
        .unwrap();
    assert_eq!(places, ["(0,1)"]);
}

#[sqlx::test]
async fn no_more_connections_than_configured_are_open(
    pool: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = small(options.clone()).await;
    let account = app.account("10").await;
    let texts = join_all((0..20).map(|_| app.text(&account.key, text())));
    let lists = join_all((0..20).map(|_| app.get(&account.key, LIST)));
    let (texts, lists) = tokio::join!(texts, lists);
    for answer in texts.into_iter().chain(lists) {
        answer.expect(200);
    }
    let open: i64 = sqlx::query_scalar(
        "select count(*) from pg_stat_activity
         where datname = current_database() and application_name = 'gensvc'",
    )
    .fetch_one(&pool.connect_with(options).await.unwrap())
    .await
    .unwrap();
    assert!(
        usize::try_from(open).unwrap() <= CONNECTIONS.1,
        "{open} are open"
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn the_servers_default_isolation_does_not_matter(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    set_default(
        &options,
        "default_transaction_isolation = 'repeatable read'",
    )
    .await;
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let texts = (0..40).map(|_| app.text(&account.key, text()));
    for answer in join_all(texts).await {
        answer.expect(200);
    }
    app.assert_settled().await;
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[sqlx::test]
async fn a_slow_statement_is_logged_by_its_name(_: PgPoolOptions, options: PgConnectOptions) {
    let app = small(options.clone()).await;
    let account = app.account("10").await;
    let log = Log::default();
    let writer = log.clone();
    // Of this thread, which runs the whole test.
    let _logging = tracing::subscriber::set_default(
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish(),
    );
    let mut lock = Lock::new(&options).await;
    let requests = ask(&app, &account, 1, &Arc::new(true.into()));
    lock.watcher.waiting(1).await;
    let slow = "select exists (
                    select from pg_stat_activity
                    where datname = current_database() and wait_event_type = 'Lock'
                      and clock_timestamp() - query_start > '1.1 s')";
    while !lock.watcher.ask::<bool>(slow).await {}
    drop(lock);
    for answer in answers(requests).await {
        answer.expect(200);
    }
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let named = "a slow statement statement=\"list templates\"";
    assert!(log.lines().any(|line| line.contains(named)), "{log}");
    for sql in ["select", "SELECT", "from templates"] {
        assert!(!log.contains(sql), "{log}");
    }
}
