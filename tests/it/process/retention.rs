//! Deletion by age, at the program's pace.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::{PATIENCE, operator::database_url};
use crate::{common::TestApp, process::Site};

/// More than two batches, finished two days ago.
const OLD: &str = "
    with model as (
        insert into models (type, provider, name) values ('text', 'sandbox', 'm') returning id
    ), price as (
        insert into prices (model_id, pricing) select id, '{}' from model returning id, model_id
    )
    insert into finished_generations (id, account_id, model_id, price_id, prompt, parameters,
        attempts, estimated, charged, created_at, started_at, completed_at)
    select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '70008'
                || lpad(to_hex(n), 15, '0'))::uuid,
           $1, model_id, price.id, 'p', '{}', 1, 0, 0, at, at, at
    from price, generate_series(1, 1200) n, (select now() - interval '2 days' as at) t";

#[sqlx::test]
async fn retention_goes_on_while_there_is_more(_: PgPoolOptions, options: PgConnectOptions) {
    let site = Site::new(&[("GENSVC__RETENTION__DAYS", "1")]);
    let url = database_url(&options);
    let app = TestApp::new(options).await;
    let account = app.account("1").await;
    let made = sqlx::query(OLD).bind(account.id.0).execute(&app.pool).await;
    assert_eq!(made.unwrap().rows_affected(), 1_200);
    let mut server = site
        .command()
        .env("DATABASE_URL", url)
        .arg("serve")
        .spawn()
        .unwrap();
    let deleted = async {
        loop {
            let (left, first, last): (i64, Option<DateTime<Utc>>, Option<DateTime<Utc>>) =
                sqlx::query_as(
                    "select count(*) filter (where deleted_at is null), min(deleted_at),
                            max(deleted_at) from generations",
                )
                .fetch_one(&app.pool)
                .await
                .unwrap();
            if left == 0 {
                return (last.unwrap() - first.unwrap()).to_std().unwrap();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let took = tokio::time::timeout(PATIENCE, deleted).await.unwrap();
    // Two rounds are ten seconds apart, and three batches were needed.
    assert!(took < Duration::from_secs(10), "{took:?}");
    server.kill().await.unwrap();
}
