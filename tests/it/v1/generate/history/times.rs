//! GET /v1/generate/history: `created_after` and `created_before`.

use chrono::{DateTime, FixedOffset, SecondsFormat, TimeDelta, Utc};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{HISTORY, list, make};
use crate::common::{Account, TestApp};

/// The creation time in a generation's record.
async fn created(app: &TestApp, account: &Account, uuid: &str) -> DateTime<Utc> {
    let url = format!("/v1/generate/{uuid}");
    let record = app.get(&account.key, &url).await.expect(200);
    let text = record["created_at"].as_str().unwrap();
    DateTime::parse_from_rfc3339(text).unwrap().to_utc()
}

fn text(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}

#[sqlx::test]
async fn times_are_inclusive_at_the_start_and_exclusive_at_the_end(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let mut all = Vec::new();
    for step in [123_456, 1, 1_000, 998_999] {
        app.advance(TimeDelta::microseconds(step));
        let uuid = make(&app, &account, "x").await;
        all.push((created(&app, &account, &uuid).await, uuid));
    }
    all.reverse();
    assert!(all.is_sorted_by(|a, b| a.0 >= b.0));
    let steps = [-1_000, -1, 0, 1, 1_000].map(TimeDelta::microseconds);
    let times: Vec<DateTime<Utc>> = all
        .iter()
        .flat_map(|(time, _)| steps.map(|step| *time + step))
        .collect();
    let expected = |after: DateTime<Utc>, before: DateTime<Utc>| -> Vec<String> {
        let within = all.iter().filter(|(at, _)| after <= *at && *at < before);
        within.map(|(_, uuid)| uuid.clone()).collect()
    };
    let (first, last) = (DateTime::UNIX_EPOCH, DateTime::<Utc>::MAX_UTC);
    let zone = FixedOffset::east_opt(5 * 3600 + 1800).unwrap();
    for &time in &times {
        let after = format!("created_after={}", text(time));
        let found = list(&app, &account, &after).await;
        assert_eq!(found, expected(time, last), "{after}");
        let before = format!("created_before={}&type=text&status=completed", text(time));
        let found = list(&app, &account, &before).await;
        assert_eq!(found, expected(first, time), "{before}");
        // The plus sign is not encoded, as is common.
        let abroad = time.with_timezone(&zone);
        let abroad = abroad.to_rfc3339_opts(SecondsFormat::Micros, true);
        let found = list(&app, &account, &format!("created_after={abroad}")).await;
        assert_eq!(found, expected(time, last), "{abroad}");
    }
    for &after in times.iter().step_by(3) {
        for &before in times.iter().step_by(4) {
            let query = format!(
                "created_after={}&created_before={}",
                text(after),
                text(before)
            );
            let found = list(&app, &account, &query).await;
            assert_eq!(found, expected(after, before), "{query}");
        }
    }
    for everything in [
        "created_after=1970-01-01T00:00:00Z",
        "created_before=9999-12-31T23:59:59Z",
    ] {
        assert_eq!(list(&app, &account, everything).await.len(), 4);
    }
    for wrong in [
        "2026",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "now",
        "",
        "1790000000",
    ] {
        let url = format!("{HISTORY}?created_after={wrong}");
        let fields = app.get(&account.key, &url).await.fields();
        assert_eq!(fields["created_after"], "invalid_format", "{wrong}");
    }
}

/// The filter uses `created_at`, as shown in the record, also where a clock was set back.
#[sqlx::test]
async fn a_clock_that_was_set_back_hides_nothing(_: PgPoolOptions, options: PgConnectOptions) {
    let early = TestApp::new(options.clone()).await;
    let account = early.account("10").await;
    let late = TestApp::new(options).await;
    late.advance(TimeDelta::hours(1));
    let mut ahead = account.clone();
    ahead.key = late.key(account.id, json!({"name": "ahead"})).await;
    make(&late, &ahead, "an hour ahead").await;
    let uuid = make(&early, &account, "set back").await;
    let at = created(&early, &account, &uuid).await;
    let end = at + TimeDelta::milliseconds(1);
    let query = format!("created_after={}&created_before={}", text(at), text(end));
    assert!(list(&early, &account, &query).await.contains(&uuid));
    let before = format!("created_before={}", text(at));
    assert!(!list(&early, &account, &before).await.contains(&uuid));
}
