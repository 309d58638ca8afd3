//! The rate limit of keys and sessions, with a clock that stands still.

use chrono::TimeDelta;
use futures_util::future::join_all;
use serde_json::json;
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use crate::common::{Account, Answer, TestApp};

const ME: &str = "/v1/auth/me";

async fn key(app: &TestApp, account: &Account, limit: u32) -> String {
    let body = json!({"name": "k", "rate_limit_per_minute": limit});
    app.key(account.id, body).await
}

/// Limit, remaining and reset.
fn state(answer: &Answer) -> (u64, u64, u64) {
    let number = |name: &str| answer.header(name).parse().unwrap();
    (
        number("x-ratelimit-limit"),
        number("x-ratelimit-remaining"),
        number("x-ratelimit-reset"),
    )
}

/// Asserts a refusal and returns its `Retry-After`.
fn refused(answer: &Answer) -> i64 {
    let error = answer.error(429, "rate_limited");
    assert_eq!(error["type"], "rate_limited");
    assert_eq!(error["retryable"], true);
    answer.header("retry-after").parse().unwrap()
}

#[sqlx::test]
async fn a_burst_is_exact_and_refilled_evenly(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let token = key(&app, &account, 4).await;
    for (remaining, reset) in [(3, 15), (2, 30), (1, 45), (0, 60)] {
        let answer = app.get(&token, ME).await;
        answer.expect(200);
        assert_eq!(state(&answer), (4, remaining, reset));
        assert_eq!(answer.header("retry-after"), "");
    }
    for _ in 0..3 {
        let answer = app.get(&token, ME).await;
        assert_eq!(refused(&answer), 15);
        // A refusal costs nothing.
        assert_eq!(state(&answer), (4, 0, 60));
    }
    app.advance(TimeDelta::seconds(15) - TimeDelta::microseconds(1));
    assert_eq!(refused(&app.get(&token, ME).await), 1);
    app.advance(TimeDelta::microseconds(1));
    app.get(&token, ME).await.expect(200);
    assert_eq!(refused(&app.get(&token, ME).await), 15);
    // Two and a half are refilled.
    app.advance(TimeDelta::milliseconds(37_500));
    app.get(&token, ME).await.expect(200);
    let answer = app.get(&token, ME).await;
    assert_eq!(state(&answer), (4, 0, 53));
    assert_eq!(refused(&app.get(&token, ME).await), 8);
    // Never more than the whole burst.
    app.advance(TimeDelta::days(3));
    let mut passed = 0;
    while app.get(&token, ME).await.status == 200 {
        passed += 1;
    }
    assert_eq!(passed, 4);
}

#[sqlx::test]
async fn retry_after_is_honest_for_every_limit(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    for limit in [1, 7, 59, 61] {
        let token = key(&app, &account, limit).await;
        for _ in 0..limit {
            app.get(&token, ME).await.expect(200);
        }
        for _ in 0..3 {
            let wait = refused(&app.get(&token, ME).await);
            assert!(wait <= 60 / i64::from(limit) + 1, "{limit}: {wait}");
            app.advance(TimeDelta::seconds(wait));
            app.get(&token, ME).await.expect(200);
        }
        // After the reset the burst is whole again.
        let reset = state(&app.get(&token, ME).await).2;
        app.advance(TimeDelta::seconds(reset.cast_signed()));
        assert_eq!(state(&app.get(&token, ME).await).1, u64::from(limit) - 1);
    }
}

#[sqlx::test]
async fn a_refused_request_creates_nothing(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let token = key(&app, &account, 1).await;
    app.get(&token, ME).await.expect(200);
    refused(&app.text(&token, json!({"prompt": "x"})).await);
    refused(
        &app.post(&token, "/v1/api-keys", &json!({"name": "x"}))
            .await,
    );
    assert!(app.history(&account).await.is_empty());
    let keys = app.get(&account.key, "/v1/api-keys").await.expect(200);
    assert_eq!(keys["data"].as_array().unwrap().len(), 2);
}

#[sqlx::test]
async fn each_key_and_each_session_has_its_own(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let (one, two) = (key(&app, &account, 1).await, key(&app, &account, 1).await);
    app.get(&one, ME).await.expect(200);
    refused(&app.get(&one, ME).await);
    app.get(&two, ME).await.expect(200);
    let default = app.key(account.id, json!({"name": "default"})).await;
    assert_eq!(state(&app.get(&default, ME).await), (600, 599, 1));
    let (first, second) = (app.login(&account).await, app.login(&account).await);
    assert_eq!(state(&app.get(&first, ME).await), (600, 599, 1));
    assert_eq!(state(&app.get(&first, ME).await), (600, 598, 1));
    assert_eq!(state(&app.get(&second, ME).await), (600, 599, 1));
    // Every authenticated response has the headers, whatever its status; others do not.
    for (path, status) in [
        ("/v1/generate/nope", 404),
        ("/v1/auth/me?zzz=1", 422),
        ("/v1/auth/me", 200),
    ] {
        let answer = app.get(&first, path).await;
        assert_eq!(answer.status, status);
        assert_eq!(state(&answer).0, 600, "{path}");
    }
    for (token, path) in [("", ME), ("wrong", ME), (&first, "/v1/models")] {
        let answer = app.get(token, path).await;
        assert_eq!(answer.header("x-ratelimit-limit"), "", "{path}");
    }
}

#[sqlx::test]
async fn of_100_parallel_requests_on_two_replicas_the_limit_passes(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let replica = app.replica().await;
    let account = app.account("1").await;
    let token = key(&app, &account, 10).await;
    let all = (0..100).map(|n| {
        let server = if n % 2 == 0 { &app } else { &replica };
        server.get(&token, ME)
    });
    let answers = join_all(all).await;
    let mut remaining: Vec<_> = answers
        .iter()
        .filter(|a| a.status == 200)
        .map(|a| state(a).1)
        .collect();
    remaining.sort_unstable();
    assert_eq!(remaining, (0..10).collect::<Vec<_>>());
    for answer in answers.iter().filter(|a| a.status != 200) {
        // The clock stands still: the next one is allowed in 6 s and not before.
        assert_eq!(refused(answer), 6);
        assert_eq!(state(answer), (10, 0, 60));
    }
    // A restart does not reset it.
    let restarted = app.replica().await;
    assert_eq!(refused(&restarted.get(&token, ME).await), 6);
}

#[sqlx::test]
async fn of_parallel_requests_of_a_session_the_default_passes(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let token = app.login(&account).await;
    for _ in 0..590 {
        app.get(&token, ME).await.expect(200);
    }
    let answers = join_all((0..40).map(|_| app.get(&token, ME))).await;
    let passed = answers.iter().filter(|a| a.status == 200).count();
    assert_eq!(passed, 10);
    for answer in answers.iter().filter(|a| a.status != 200) {
        assert_eq!(refused(answer), 1);
        assert_eq!(state(answer), (600, 0, 60));
    }
}

/// A request that waits for a concurrent one's count is refused by the state after the wait, and
/// reports that state.
#[sqlx::test]
async fn a_refusal_after_a_wait_tells_the_present_state(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let token = key(&app, &account, 2).await;
    app.get(&token, ME).await.expect(200);
    let mut other = app.pool.begin().await.unwrap();
    sqlx::query(
        "update rate_limits set tat = tat + 30000000000
         where kind = 'k' and id = (select max(id) from api_keys)",
    )
    .execute(&mut *other)
    .await
    .unwrap();
    let waiting = app.get(&token, ME);
    let unlock = async {
        let blocked = "select count(*) from pg_locks where not granted
            and locktype in ('transactionid', 'tuple')
            and pid in (select pid from pg_stat_activity where datname = current_database())";
        loop {
            let count: i64 = sqlx::query_scalar(blocked)
                .fetch_one(&app.pool)
                .await
                .unwrap();
            if count > 0 {
                break;
            }
        }
        other.commit().await.unwrap();
    };
    let (answer, ()) = tokio::join!(waiting, unlock);
    assert_eq!(refused(&answer), 30);
    assert_eq!(state(&answer), (2, 0, 60));
}

/// What the headers promise is kept, and no more passes than the limit, whatever the gaps.
#[sqlx::test]
async fn the_headers_keep_their_promises(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    for seed in 0..4 {
        let mut random = fastrand::Rng::with_seed(seed);
        let limit = random.u32(1..20);
        let token = key(&app, &account, limit).await;
        let begun = app.now();
        let mut passed = 0;
        for step in 0..25 {
            let gap = random.i64(0..2 * 60_000_000 / i64::from(limit));
            app.advance(TimeDelta::microseconds(gap));
            let mut answer = app.get(&token, ME).await;
            if answer.status == 200 && random.bool() {
                // All that remain pass at once, and no more.
                for remaining in (0..state(&answer).1).rev() {
                    passed += 1;
                    answer = app.get(&token, ME).await;
                    answer.expect(200);
                    assert_eq!(state(&answer).1, remaining, "{seed}, {step}");
                }
                passed += 1;
                answer = app.get(&token, ME).await;
                refused(&answer);
            }
            if answer.status == 429 {
                let wait = refused(&answer);
                app.advance(TimeDelta::seconds(wait));
                answer = app.get(&token, ME).await;
                answer.expect(200);
            }
            passed += 1;
            let refilled = (app.now() - begun).num_microseconds().unwrap() * i64::from(limit);
            let most = i64::from(limit) + refilled / 60_000_000;
            assert!(passed <= most, "{seed}, {step}: {passed} of {most}");
            if random.u8(0..5) == 0 {
                let reset = state(&answer).2;
                app.advance(TimeDelta::seconds(reset.cast_signed()));
                passed += 1;
                let whole = app.get(&token, ME).await;
                assert_eq!(state(&whole).1, u64::from(limit) - 1, "{seed}, {step}");
            }
        }
    }
}

/// Also where a minute cannot be divided by it.
#[sqlx::test]
async fn the_burst_is_exact_for_every_limit(pool: PgPool) {
    let now = 1_700_000_000_000_000_000_i64;
    for limit in [1, 2, 3, 7, 59, 60, 61, 600, 999, 1_000_000] {
        // Of a large burst only the last ones are left.
        let left = limit.min(1_000);
        let emission = (60_000_000_000 + i64::from(limit) - 1) / i64::from(limit);
        let taken = i64::from(limit - left) * emission;
        // One by one, in threes, and all at once.
        for together in [1, 3, left + 5] {
            sqlx::query(
                "insert into rate_limits (kind, id, per_minute, tat, admitted)
                 values ('k', $1, $1, $2, 1)
                 on conflict (kind, id) do update set tat = excluded.tat",
            )
            .bind(limit)
            .bind(now + taken)
            .execute(&pool)
            .await
            .unwrap();
            let admitted: i64 = sqlx::query_scalar(
                "select sum(c.admitted)
                 from generate_series(1, $3, $4) n,
                      lateral count_requests('k', array[$1::bigint], array[$1],
                                             array[least($4, $3 - n + 1)], $2) c",
            )
            .bind(limit)
            .bind(now)
            .bind(left + 5)
            .bind(together)
            .fetch_one(&pool)
            .await
            .unwrap();
            assert_eq!(admitted, i64::from(left), "{limit} in groups of {together}");
        }
    }
}
