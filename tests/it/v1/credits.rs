//! /v1/credits: the balance and the ledger.

use std::sync::Arc;

use gensvc::store::credits::Move;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::common::{Answer, TestApp, Upstream};

const LEDGER: &str = "/v1/credits/ledger";

/// Kind, amount, balance and held of each entry.
fn entries(answer: &Answer) -> Vec<[String; 4]> {
    let page = answer.expect(200);
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
    page["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| ["kind", "amount", "balance", "held"].map(|name| text(e, name)))
        .collect()
}

fn expected(rows: &[[&str; 4]]) -> Vec<[String; 4]> {
    rows.iter().map(|row| row.map(str::to_owned)).collect()
}

#[sqlx::test]
async fn each_generation_has_a_hold_and_one_resolution(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let small = json!({"max_tokens": 1});
    let good = app
        .text(&account.key, json!({"prompt": "x", "parameters": small}))
        .await
        .expect(200);
    let bad = app
        .text(
            &account.key,
            json!({"prompt": "[[reject]]", "parameters": small}),
        )
        .await
        .expect(502)["generation"]
        .clone();
    let service = &app.app.service;
    let adjust = |amount: &str| {
        let amount = amount.parse().unwrap();
        service.move_credits(account.id, Move::Adjustment(amount), Some("a correction"))
    };
    adjust("-0.5").await.unwrap();
    let [estimated, charged] =
        ["estimated", "charged"].map(|name| good["credits"][name].as_str().unwrap().to_owned());
    let [held, nothing] =
        ["estimated", "charged"].map(|name| bad["credits"][name].as_str().unwrap().to_owned());
    assert_eq!((estimated.as_str(), nothing.as_str()), ("0.0007", "0"));
    let left = app.get(&account.key, LEDGER).await.expect(200)["data"][1]["balance"].clone();
    let left = left.as_str().unwrap();
    let answer = app.get(&account.key, LEDGER).await;
    let after: gensvc::domain::credits::Credits = left.parse().unwrap();
    let paid: gensvc::domain::credits::Credits = charged.parse().unwrap();
    assert_eq!(after.checked_add(paid).unwrap().to_string(), "10");
    let end = after.checked_add("-0.5".parse().unwrap()).unwrap();
    assert_eq!(
        entries(&answer),
        expected(&[
            ["adjustment", "-0.5", &end.to_string(), "0"],
            ["release", &held, left, "0"],
            ["hold", &held, left, &held],
            ["charge", &charged, left, "0"],
            ["hold", &estimated, "10", &estimated],
            ["grant", "10", "10", "0"],
        ])
    );
    let data = answer.json()["data"].clone();
    let column = |name: &str| -> Vec<Value> {
        let rows = data.as_array().unwrap().iter();
        rows.map(|e| e[name].clone()).collect()
    };
    let (one, two) = (&good["uuid"], &bad["uuid"]);
    let none = Value::Null;
    assert_eq!(
        column("generation"),
        [&none, two, two, one, one, &none].map(Clone::clone)
    );
    assert_eq!(column("reference")[0], "a correction");
    let ids: Vec<_> = column("id").iter().map(|id| id.as_i64().unwrap()).collect();
    assert!(ids.is_sorted_by(|a, b| a > b), "{ids:?}");
    app.assert_settled().await;
}

#[sqlx::test]
async fn the_ledger_is_filtered_and_paged(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("10").await, app.account("10").await);
    let mut uuids = Vec::new();
    for n in 0..4 {
        let prompt = if n == 2 { "[[reject]]" } else { "x" };
        let body = json!({"prompt": prompt, "parameters": {"max_tokens": 8}});
        let answer = app.text(&account.key, body).await.json();
        let record = answer.get("generation").unwrap_or(&answer);
        uuids.push(record["uuid"].as_str().unwrap().to_owned());
    }
    let kinds = |query: String| {
        let (app, key) = (&app, &account.key);
        async move {
            let answer = app.get(key, &format!("{LEDGER}?{query}")).await;
            let rows = entries(&answer).into_iter();
            rows.map(|[kind, ..]| kind).collect::<Vec<_>>().join(" ")
        }
    };
    for (query, found) in [
        ("kind=hold".to_owned(), "hold hold hold hold"),
        ("kind=charge".to_owned(), "charge charge charge"),
        ("kind=release".to_owned(), "release"),
        ("kind=grant".to_owned(), "grant"),
        ("kind=adjustment".to_owned(), ""),
        (format!("generation={}", uuids[0]), "charge hold"),
        (format!("generation={}", uuids[2]), "release hold"),
        (format!("kind=hold&generation={}", uuids[2]), "hold"),
        (format!("kind=charge&generation={}", uuids[2]), ""),
        (format!("generation={}", uuid::Uuid::now_v7()), ""),
    ] {
        assert_eq!(kinds(query.clone()).await, found, "{query}");
    }
    let theirs = format!("{LEDGER}?generation={}", uuids[0]);
    assert_eq!(entries(&app.get(&other.key, &theirs).await).len(), 0);
    for (query, param, code) in [
        ("kind=holds", "kind", "not_allowed"),
        ("generation=1", "generation", "invalid_format"),
        ("per_page=101", "per_page", "out_of_range"),
        ("cursor=x", "cursor", "invalid_format"),
    ] {
        let url = format!("{LEDGER}?{query}");
        let fields = app.get(&account.key, &url).await.fields();
        assert_eq!(fields[param], code);
    }
    // 9 entries in pages of 4, while new ones arrive.
    let whole = app.get(&account.key, LEDGER).await.expect(200)["data"].clone();
    let (mut found, mut sizes) = (Vec::new(), Vec::new());
    let mut url = format!("{LEDGER}?per_page=4");
    while !url.is_empty() {
        let answer = app.get(&account.key, &url).await;
        let rows = answer.expect(200)["data"].as_array().unwrap().clone();
        sizes.push(rows.len());
        found.extend(rows);
        app.text(&account.key, json!({"prompt": "more"}))
            .await
            .expect(200);
        url = answer.next_page();
    }
    assert_eq!((Value::from(found), sizes), (whole, vec![4, 4, 1]));
    // A deleted generation keeps its numbers.
    let path = format!("/v1/generate/{}", uuids[0]);
    app.delete(&account.key, &path).await.expect(204);
    assert_eq!(
        kinds(format!("generation={}", uuids[0])).await,
        "charge hold"
    );
    app.assert_settled().await;
}

#[sqlx::test]
async fn the_balance_shows_what_running_work_holds(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.hold();
    let app = Arc::new(TestApp::upstream(options, &upstream).await);
    let account = app.account("12.5").await;
    let body = json!({"prompt": "x", "provider": "openai", "parameters": {"max_tokens": 64}});
    let record = app
        .post_with(
            &account.key,
            "/v1/generate/text",
            &[("prefer", "respond-async")],
            &body,
        )
        .await
        .expect(202);
    let balance = || app.get(&account.key, "/v1/credits/balance");
    assert_eq!(
        balance().await.expect(200),
        json!({"balance": "12.5", "held": "0.00385", "available": "12.49615"})
    );
    assert_eq!(record["credits"]["held"], "0.00385");
    let path = format!("/v1/generate/{}/cancel", record["uuid"].as_str().unwrap());
    let cancelled = app.post(&account.key, &path, &json!({})).await.expect(200);
    assert_eq!(cancelled["error"]["code"], "cancelled");
    assert_eq!(
        balance().await.expect(200),
        json!({"balance": "12.5", "held": "0", "available": "12.5"})
    );
    upstream.release(1);
    app.assert_settled().await;
}

/// `max_cost` is credits, as a string or a number.
#[sqlx::test]
async fn credits_are_read_from_strings_and_numbers(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    for (max_cost, code) in [
        ("\"0.051849\"", "max_cost_exceeded"),
        ("0.051849", "max_cost_exceeded"),
        ("0", "max_cost_exceeded"),
        ("0.00001", "max_cost_exceeded"),
        ("0.000009", "max_cost_exceeded"),
        ("0.000001", "max_cost_exceeded"),
        ("\"0.0000001\"", "invalid_format"),
        ("0.0000001", "invalid_format"),
        ("\"1e3\"", "invalid_format"),
        ("\"\"", "invalid_format"),
        ("\" 1\"", "invalid_format"),
        ("\"1,5\"", "invalid_format"),
        ("\"-1\"", "out_of_range"),
        ("-0.5", "out_of_range"),
        ("true", "invalid_type"),
        ("\"0.05185\"", ""),
        ("0.05185", ""),
        ("1000000", ""),
        ("null", ""),
    ] {
        let body = format!(r#"{{"prompt": "x", "max_cost": {max_cost}}}"#);
        let answer = app
            .call(
                http::Method::POST,
                &account.key,
                "/v1/generate/text",
                &[("content-type", "application/json")],
                Some(body),
            )
            .await;
        match code {
            "" => assert_eq!(answer.status, 200, "{max_cost}: {}", answer.text),
            "max_cost_exceeded" => {
                assert_eq!(answer.status, 402, "{max_cost}: {}", answer.text);
                answer.error(402, code);
            }
            code => assert_eq!(answer.fields()["max_cost"], code, "{max_cost}"),
        }
    }
}
