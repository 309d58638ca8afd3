//! Plans that were made while tables were empty.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sqlx::{
    AssertSqlSafe,
    postgres::{PgConnectOptions, PgPoolOptions},
    raw_sql,
};

use crate::common::{Account, Reply, TestApp, Upstream};

#[path = "../../scale/plans.rs"]
mod notices;
use notices::{Plan, Plans, explained};

/// Rows that each table gets between the two rounds.
const ROWS: u32 = 20_000;
/// Buffers that a statement may touch beyond those of the first round, for deeper indexes. A plan that
/// scans a table for each key touches thousands.
const MORE: u64 = 300;
const CHAT: &str = "/openai/v1/chat/completions";

/// Adds copies of a row with these columns changed.
async fn add_copies(app: &TestApp, table: &str, filter: &str, changes: &str) {
    let columns: String = sqlx::query_scalar(
        "select string_agg(quote_ident(attname), ', ') from pg_attribute
         where attrelid = $1::text::regclass and attnum > 0 and not attisdropped
             and attgenerated = ''",
    )
    .bind(table)
    .fetch_one(&app.pool)
    .await
    .unwrap();
    let statement = format!(
        "insert into {table} ({columns}) overriding system value
         select {columns} from (
             select (jsonb_populate_record(r, {changes})).*
             from (select t from {table} t {filter} limit 1) s (r), generate_series(1, {ROWS}) n
         ) copies"
    );
    run(app, statement).await;
}

async fn run(app: &TestApp, statement: String) {
    let running = raw_sql(AssertSqlSafe(statement)).execute(&app.pool);
    running.await.unwrap();
}

/// A turn of an agent with this many messages.
fn turn(messages: usize) -> Value {
    let message = |n| match n % 2 {
        0 => json!({"role": "user", "content": format!("{n} {}", "lorem ipsum ".repeat(500))}),
        _ => json!({"role": "assistant", "content": "Sure."}),
    };
    let messages: Vec<Value> = (0..messages).map(message).collect();
    json!({"model": "openai/gpt-6-luna", "max_tokens": 64, "messages": messages})
}

/// Sends what customers send most, and returns the costliest plan of each statement.
async fn round(app: &TestApp, account: &Account, plans: &Plans) -> BTreeMap<String, Plan> {
    plans.forget();
    let text = json!({"prompt": "x", "provider": "sandbox", "parameters": {"max_tokens": 8}});
    for n in 0..3 {
        app.text(&account.key, text.clone()).await.expect(200);
        app.post(&account.key, CHAT, &turn(61 + 2 * n))
            .await
            .expect(200);
        let mut unlimited = turn(61 + 2 * n);
        unlimited.as_object_mut().unwrap().remove("max_tokens");
        app.post(&account.key, CHAT, &unlimited).await.expect(200);
        let video = json!({"prompt": "x", "provider": "sandbox", "parameters": {"duration": 1}});
        app.queue(account, "video", &video).await;
        app.work().await;
        let list = app.history(account).await;
        let id = list[0]["uuid"].as_str().unwrap();
        app.get(&account.key, &format!("/v1/generate/{id}"))
            .await
            .expect(200);
        app.get(&account.key, "/v1/credits/balance")
            .await
            .expect(200);
    }
    let mut largest = BTreeMap::<String, Plan>::new();
    for (statement, plan) in plans.all() {
        let pages = largest.get(&statement).map_or(0, |plan| plan.pages);
        if plan.pages >= pages {
            largest.insert(statement, plan);
        }
    }
    largest
}

#[sqlx::test]
async fn plans_of_empty_tables_serve_full_ones(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.play(|_| Reply::Text("Sure.".to_owned(), 30_000, 3));
    let (plans, subscriber) = Plans::new();
    let _collecting = tracing::subscriber::set_default(subscriber);
    let app = TestApp::upstream(explained(options), &upstream).await;
    let account = app.account("10000").await;
    let id = "jsonb_build_object('id', gen_random_uuid())";
    let grown = [
        ("finished_generations", "", id),
        (
            "ledger_entries",
            "where kind = 'hold'",
            "jsonb_build_object('id', 1000000 + n, 'generation_id', gen_random_uuid())",
        ),
        (
            "prefix_receipts",
            "",
            "jsonb_build_object('key', gen_random_uuid())",
        ),
    ];
    for (table, ..) in grown {
        let statement = format!("alter table {table} set (autovacuum_enabled = off)");
        run(&app, statement).await;
    }
    // They are known to be empty then.
    run(&app, "vacuum analyze".to_owned()).await;
    let before = round(&app, &account, &plans).await;
    for (table, filter, changes) in grown {
        add_copies(&app, table, filter, changes).await;
    }
    let after = round(&app, &account, &plans).await;
    for part in ["prefix_receipts", "hold_row"] {
        let names =
            |statement: &&String| statement.contains(part) && before.contains_key(*statement);
        assert!(after.keys().any(|statement| names(&statement)), "{part}");
    }
    for (statement, plan) in after {
        if let Some(before) = before.get(&statement) {
            assert!(
                plan.pages <= before.pages + MORE,
                "{} buffers after {}, with scans of {:?}:\n{statement}",
                plan.pages,
                before.pages,
                plan.scanned
            );
        }
    }
}

#[sqlx::test]
async fn a_turn_takes_three_statements(_: PgPoolOptions, options: PgConnectOptions) {
    let upstream = Upstream::start().await;
    upstream.play(|_| Reply::Text("Sure.".to_owned(), 30_000, 3));
    let (plans, subscriber) = Plans::new();
    let _collecting = tracing::subscriber::set_default(subscriber);
    let app = TestApp::upstream(explained(options), &upstream).await;
    let account = app.account("10").await;
    // It is read, and the price of the model is stored.
    app.post(&account.key, CHAT, &turn(61)).await.expect(200);
    plans.forget();
    app.post(&account.key, CHAT, &turn(63)).await.expect(200);
    let statements: Vec<String> = plans
        .all()
        .into_iter()
        .map(|(statement, _)| statement)
        .collect();
    assert_eq!(statements.len(), 3, "{statements:#?}");
    app.assert_settled().await;
}
