//! GET /v1/generate/history: `prompt`.

use chrono::{SecondsFormat, TimeDelta};
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{HISTORY, list, make, uuids};
use crate::common::{Account, TestApp};

/// More than one page of a search reads, each a millisecond newer than the last, from $2 on.
const MANY: &str = "
    insert into finished_generations (id, account_id, model_id, price_id, prompt, parameters,
        attempts, estimated, charged, created_at, started_at, completed_at)
    select (lpad(to_hex($2 + n), 12, '0') || '70008000000000000000')::uuid, account_id, model_id,
           price_id, case n when 1 then 'the first needle' else 'hay' end, '{}', 1, 0, 0,
           created_at, started_at, completed_at
    from finished_generations, generate_series(1, 10005) n where account_id = $1";

async fn search(
    app: &TestApp,
    account: &Account,
    text: &str,
    filters: &[(&str, &str)],
) -> Vec<String> {
    let query = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("prompt", text)
        .extend_pairs(filters)
        .finish();
    list(app, account, &query).await
}

#[sqlx::test]
async fn a_text_is_found_in_upper_and_lower_case(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let (account, other) = (app.account("10").await, app.account("10").await);
    let long = format!("{} late {}", "x".repeat(1_990), "y".repeat(5_000));
    let prompts = [
        "A Cat on the Dächern",
        "100 % of a_b *(c)* [d] \\e ^f$ g.h",
        "кошка und ΣΊΣΥΦΟΣ",
        &long,
    ];
    let mut made = Vec::new();
    for prompt in prompts {
        made.push(make(&app, &account, prompt).await);
    }
    make(&app, &other, "A Cat").await;
    for (text, found) in [
        ("cat", Some(0)),
        ("CAT ON", Some(0)),
        ("DÄCH", Some(0)),
        ("dogs", None),
        ("c.t", None),
        ("0 % of A_B *(C)* [D] \\E ^F$ G.", Some(1)),
        ("%", Some(1)),
        ("a.b", None),
        ("КОШКА UND σίσυφοσ", Some(2)),
        ("late yyyy", Some(3)),
        ("late yyyyy", None),
        ("***=Cat", None),
        ("(?i)cat", None),
    ] {
        let expected: Vec<_> = found.map(|n: usize| made[n].clone()).into_iter().collect();
        assert_eq!(search(&app, &account, text, &[]).await, expected, "{text}");
    }
    made.reverse();
    assert_eq!(search(&app, &account, "", &[]).await, made);
    let fields = app
        .get(
            &account.key,
            &format!("{HISTORY}?prompt={}", "x".repeat(201)),
        )
        .await;
    assert_eq!(fields.fields()["prompt"], "too_long");
    let nul = app
        .get(&account.key, &format!("{HISTORY}?prompt=%00"))
        .await;
    assert_eq!(nul.status, 422);
    app.delete(&account.key, &format!("/v1/generate/{}", made[3]))
        .await
        .expect(204);
    assert!(search(&app, &account, "cat", &[]).await.is_empty());
}

#[sqlx::test]
async fn a_search_respects_the_other_filters(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    let second = app.key(account.id, json!({"name": "second"})).await;
    let keys = app.get(&account.key, "/v1/api-keys").await.expect(200);
    let id = keys["data"]
        .as_array()
        .unwrap()
        .iter()
        .find(|key| key["name"] == "second");
    let id = id.unwrap()["id"].to_string();
    let first = make(&app, &account, "a needle").await;
    let failed = make(&app, &account, "[[fail]] needle").await;
    let by_second = Account {
        key: second,
        ..account.clone()
    };
    let of_second = make(&app, &by_second, "Needle").await;
    app.advance(TimeDelta::hours(1));
    let hour = app.now().to_rfc3339_opts(SecondsFormat::Secs, true);
    let video = json!({"prompt": "[[slow:60]] needle"});
    let running = app
        .post(&account.key, "/v1/generate/video", &video)
        .await
        .expect(202);
    let running = running["uuid"].as_str().unwrap().to_owned();
    for (filters, expected) in [
        (&[][..], vec![&running, &of_second, &failed, &first]),
        (&[("status", "failed")], vec![&failed]),
        (&[("type", "video")], vec![&running]),
        (&[("type", "image")], vec![]),
        (&[("api_key", id.as_str())], vec![&of_second]),
        (&[("api_key", "none")], vec![]),
        (
            &[("created_before", hour.as_str())],
            vec![&of_second, &failed, &first],
        ),
        (&[("created_after", hour.as_str())], vec![&running]),
    ] {
        let found = search(&app, &account, "NEEDLE", filters).await;
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{filters:?}");
    }
}

/// `first`: the time in their ids, in milliseconds.
pub(super) async fn add_many(app: &TestApp, account: &Account, first: i64) {
    let adding = sqlx::query(MANY).bind(account.id.0).bind(first);
    let added = adding.execute(&app.pool).await.unwrap();
    assert_eq!(added.rows_affected(), 10_005);
}

#[sqlx::test]
async fn a_page_searches_a_bounded_number_of_rows(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let last = make(&app, &account, "the last needle").await;
    add_many(&app, &account, 0).await;
    let url = format!("{HISTORY}?prompt=needle");
    let newest = app.get(&account.key, &url).await;
    assert_eq!(uuids(&newest), [last]);
    let older = app.get(&account.key, &newest.next_page()).await;
    assert_eq!(uuids(&older).len(), 1);
    assert_eq!(older.next_page(), "");
    let url = format!("{HISTORY}?prompt=elsewhere");
    let nothing = app.get(&account.key, &url).await;
    assert!(uuids(&nothing).is_empty());
    assert!(nothing.next_page().contains("prompt=elsewhere"));
}

#[sqlx::test]
async fn old_running_generations_are_found_once(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("100").await;
    make(&app, &account, "hay").await;
    let video = json!({"prompt": "[[slow:60]] needle"});
    let jobs = [
        app.queue(&account, "video", &video).await,
        app.queue(&account, "video", &video).await,
    ];
    let year_2100 = 4_102_444_800_000;
    add_many(&app, &account, year_2100).await;
    let url = format!("{HISTORY}?prompt=needle");
    let newest = app.get(&account.key, &url).await;
    assert!(uuids(&newest).is_empty());
    let older = uuids(&app.get(&account.key, &newest.next_page()).await);
    // The finished one is newer than the running ones.
    assert_eq!(older[1..], [jobs[1].clone(), jobs[0].clone()]);
    let (mut one_by_one, mut url) = (Vec::new(), format!("{url}&per_page=1"));
    while !url.is_empty() {
        let page = app.get(&account.key, &url).await;
        one_by_one.extend(uuids(&page));
        url = page.next_page();
    }
    assert_eq!(one_by_one, older);
}
