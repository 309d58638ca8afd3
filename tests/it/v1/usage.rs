//! GET /v1/credits/usage: the report equals the records and the ledger.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Account, TestApp};

const USAGE: &str = "/v1/credits/usage";

fn stamp(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// Credits as micro-credits.
fn micros(credits: &Value) -> i64 {
    let credits: gensvc::domain::credits::Credits = credits.as_str().unwrap().parse().unwrap();
    credits.micros()
}

/// A mixed load of all modalities with failures, deletions and running work, over some days.
async fn mixed_load(app: &TestApp, account: &Account) {
    let session = app.login(account).await;
    for round in 0..4 {
        for (kind, prompt, parameters) in [
            ("text", "hello there", json!({"max_tokens": 20})),
            ("text", "[[fail]]", json!({"max_tokens": 20})),
            ("image", "a hill", json!({"n": 2, "size": "256x256"})),
            ("image", "[[reject]]", json!({"n": 1, "size": "256x256"})),
            ("video", "a wave", json!({"duration": 1})),
            ("video", "[[fail]]", json!({"duration": 2})),
            ("audio", "good morning", json!({"format": "wav"})),
        ] {
            let token = if round % 2 == 0 {
                &account.key
            } else {
                &session
            };
            let path = format!("/v1/generate/{kind}");
            let body = json!({"prompt": prompt, "parameters": parameters});
            let answer = app.post(token, &path, &body).await;
            if answer.status == 202 {
                let uuid = answer.json()["uuid"].as_str().unwrap().to_owned();
                app.until_finished(account, &uuid).await;
            }
            app.advance(TimeDelta::minutes(17));
        }
        app.advance(TimeDelta::hours(7));
    }
    let running = json!({"prompt": "still", "parameters": {"duration": 3}});
    app.post(&account.key, "/v1/generate/video", &running)
        .await
        .expect(202);
}

/// All records of the account, from the single lookup.
async fn records(app: &TestApp, account: &Account) -> Vec<Value> {
    let mut all = Vec::new();
    let mut path = "/v1/generate/history?per_page=9".to_owned();
    while !path.is_empty() {
        let answer = app.get(&account.key, &path).await;
        for row in answer.expect(200)["data"].as_array().unwrap() {
            all.push(app.record(account, row["uuid"].as_str().unwrap()).await);
        }
        path = answer.next_page();
    }
    all
}

const SUMS: [&str; 9] = [
    "generations",
    "completed",
    "failed",
    "charged",
    "input_tokens",
    "output_tokens",
    "images",
    "seconds",
    "characters",
];

/// The report's numbers, computed from records.
fn sums<'a>(records: impl Iterator<Item = &'a Value>) -> Vec<i64> {
    let mut sums = vec![0; SUMS.len()];
    for record in records {
        sums[0] += 1;
        sums[1] += i64::from(record["status"] == "completed");
        sums[2] += i64::from(record["status"] == "failed");
        if record["credits"]["charged"].is_string() {
            sums[3] += micros(&record["credits"]["charged"]);
        }
        for (at, name) in SUMS.iter().enumerate().skip(4) {
            sums[at] += record["usage"][name].as_i64().unwrap_or(0);
        }
    }
    sums
}

/// The sums in a row of the report, in the order of `SUMS`.
fn reported_sums(row: &Value) -> Vec<i64> {
    let number = |name: &&str| match *name {
        "charged" => micros(&row["charged"]),
        name => row[name].as_i64().unwrap(),
    };
    SUMS.iter().map(number).collect()
}

/// The group of a record.
fn group(record: &Value, by: &str) -> Value {
    match by {
        "day" => json!(&record["created_at"].as_str().unwrap()[..10]),
        "api_key" => record["metadata"]["api_key_id"].clone(),
        name => record[name].clone(),
    }
}

#[sqlx::test]
async fn the_report_equals_the_records_and_the_ledger(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1000").await;
    let stranger = app.account("10").await;
    app.text(&stranger.key, json!({"prompt": "not mine"}))
        .await
        .expect(200);
    let from = app.now();
    mixed_load(&app, &account).await;
    let records = records(&app, &account).await;
    assert_eq!(records.len(), 29);
    let statuses: BTreeMap<_, usize> = records.iter().fold(BTreeMap::new(), |mut all, r| {
        *all.entry(r["status"].as_str().unwrap().to_owned())
            .or_default() += 1;
        all
    });
    assert_eq!((statuses["completed"], statuses["failed"]), (16, 12));

    for by in [
        "",
        "day",
        "type",
        "provider",
        "model",
        "api_key",
        "type,day",
        "day,type,provider,model,api_key",
    ] {
        let query = if by.is_empty() {
            String::new()
        } else {
            format!("?group_by={by}")
        };
        let report = app
            .get(&account.key, &format!("{USAGE}{query}"))
            .await
            .expect(200);
        let mut groups: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
        let names: Vec<_> = by.split(',').filter(|name| !name.is_empty()).collect();
        for record in &records {
            let key: Vec<_> = names.iter().map(|name| group(record, name)).collect();
            groups
                .entry(json!(key).to_string())
                .or_default()
                .push(record);
        }
        let rows = report["data"].as_array().unwrap();
        assert_eq!(rows.len(), groups.len(), "{by}");
        for row in rows {
            let key: Vec<_> = names.iter().map(|name| row[name].clone()).collect();
            let expected = sums(groups[&json!(key).to_string()].iter().copied());
            assert_eq!(reported_sums(row), expected, "{by} {row}");
            assert_eq!(row.as_object().unwrap().len(), SUMS.len() + names.len());
        }
        assert_eq!(
            reported_sums(&report["total"]),
            sums(records.iter()),
            "{by}"
        );
    }

    // The ledger has the same.
    let charged: i64 = sqlx::query_scalar(
        "select sum(amount)::bigint from ledger_entries where kind = 'charge' and account_id = $1",
    )
    .bind(account.id.0)
    .fetch_one(&app.pool)
    .await
    .unwrap();
    assert_eq!(charged, sums(records.iter())[3]);
    app.assert_verified().await;

    // Any span: whole hours, cut hours, within one hour, empty.
    let created = |record: &Value| -> DateTime<Utc> {
        record["created_at"].as_str().unwrap().parse().unwrap()
    };
    let end = app.now() + TimeDelta::hours(1);
    let mut cuts: Vec<_> = records.iter().map(created).collect();
    cuts.extend([
        from,
        end,
        from + TimeDelta::minutes(90),
        from + TimeDelta::hours(24),
    ]);
    cuts.sort_unstable();
    for (at, &from) in cuts.iter().enumerate().step_by(3) {
        for &to in cuts[at..].iter().filter(|to| **to > from).step_by(2) {
            let path = format!("{USAGE}?from={}&to={}", stamp(from), stamp(to));
            let report = app.get(&account.key, &path).await.expect(200);
            let within = records.iter().filter(|r| (from..to).contains(&created(r)));
            assert_eq!(reported_sums(&report["total"]), sums(within), "{path}");
        }
    }
}

#[sqlx::test]
async fn deleted_generations_stay_in_the_report(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let made = app
        .text(&account.key, json!({"prompt": "hello"}))
        .await
        .expect(200);
    let from = stamp(app.now());
    let to = stamp(app.now() + TimeDelta::microseconds(1));
    let narrow = format!("{USAGE}?from={from}&to={to}");
    let before = [
        app.get(&account.key, USAGE).await.expect(200),
        app.get(&account.key, &narrow).await.expect(200),
    ];
    assert_eq!(before[0]["total"]["completed"], 1);
    assert_eq!(before[0], before[1]);
    let path = format!("/v1/generate/{}", made["uuid"].as_str().unwrap());
    app.delete(&account.key, &path).await.expect(204);
    assert_eq!(app.get(&account.key, USAGE).await.expect(200), before[0]);
    assert_eq!(app.get(&account.key, &narrow).await.expect(200), before[1]);
}

#[sqlx::test]
async fn the_window_is_the_last_30_days_unless_told(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    app.text(&account.key, json!({"prompt": "old"}))
        .await
        .expect(200);
    let completed = async || app.get(&account.key, USAGE).await.expect(200)["total"].clone();
    app.advance(TimeDelta::days(30));
    assert_eq!(completed().await["completed"], 1);
    app.advance(TimeDelta::seconds(1));
    assert_eq!(completed().await["completed"], 0);
    let empty = app.get(&account.key, USAGE).await.expect(200);
    assert_eq!(empty["data"], json!([]));
    assert_eq!(empty["total"]["charged"], "0");
    let old = stamp(app.now() - TimeDelta::days(29));
    let path = format!("{USAGE}?to={old}");
    assert_eq!(
        app.get(&account.key, &path).await.expect(200)["total"]["completed"],
        1
    );
}

#[sqlx::test]
async fn bad_queries_are_named(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("0").await;
    for (query, param, code) in [
        ("group_by=hour", "group_by", "not_allowed"),
        ("group_by=day,day", "group_by", "not_allowed"),
        ("group_by=day,", "group_by", "not_allowed"),
        ("from=yesterday", "from", "invalid_format"),
        (
            "from=2030-01-02T00:00:00Z&to=2030-01-01T00:00:00Z",
            "from",
            "out_of_range",
        ),
        (
            "from=2030-01-01T00:00:00Z&to=2030-01-01T00:00:00Z",
            "from",
            "out_of_range",
        ),
        ("until=2030-01-01T00:00:00Z", "until", "unknown_field"),
    ] {
        let fields = app
            .get(&account.key, &format!("{USAGE}?{query}"))
            .await
            .fields();
        assert_eq!(fields.get(param).map(String::as_str), Some(code), "{query}");
    }
}
