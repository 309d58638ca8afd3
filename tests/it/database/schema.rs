//! Schemas that are not as this version has them.

use std::sync::Arc;

use gensvc::store::{MIGRATOR, StoreError};
use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
    raw_sql,
};

use super::Watcher;
use crate::common::TestApp;

fn newest() -> i64 {
    MIGRATOR
        .iter()
        .map(|migration| migration.version)
        .max()
        .unwrap()
}

async fn execute(app: &TestApp, statement: impl Into<String>) {
    let statement = raw_sql(AssertSqlSafe(statement.into()));
    statement.execute(&app.pool).await.unwrap();
}

/// Notes a migration that this version does not know.
async fn add_migration(app: &TestApp, version: i64) {
    let statement = format!(
        "insert into _sqlx_migrations (version, description, success, checksum, execution_time)
         values ({version}, 'x', true, '', 0)"
    );
    execute(app, statement).await;
}

#[sqlx::test]
async fn a_newer_schema_is_worked_with_as_long_as_it_says_so(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    add_migration(&app, 9_000).await;
    app.store.migrate().await.unwrap();
    app.store.expect_schema().await.unwrap();

    execute(&app, "update schema_floor set version = 9000").await;
    for result in [app.store.migrate().await, app.store.expect_schema().await] {
        let error = result.unwrap_err();
        assert!(
            matches!(error, StoreError::NewerSchema(9_000, known) if known == newest()),
            "{error}"
        );
        assert!(error.to_string().contains("of a newer gensvc"), "{error}");
    }
}

#[sqlx::test]
async fn commands_change_no_schema_that_is_in_use(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let newest_row = format!("delete from _sqlx_migrations where version = {}", newest());
    execute(&app, newest_row).await;
    let error = app.store.expect_schema().await.unwrap_err();
    assert!(
        matches!(error, StoreError::OlderSchema(lacking) if lacking == newest()),
        "{error}"
    );
    assert!(
        error.to_string().contains("run `gensvc migrate`"),
        "{error}"
    );
    let count = sqlx::query_scalar::<_, i64>("select count(*) from _sqlx_migrations");
    let count = count.fetch_one(&app.pool).await.unwrap();
    assert_eq!(usize::try_from(count).unwrap(), MIGRATOR.iter().count() - 1);

    // In an empty one there is nothing that could be harmed.
    execute(&app, "drop schema public cascade; create schema public").await;
    app.store.expect_schema().await.unwrap();
    app.store.expect_schema().await.unwrap();
}

#[sqlx::test]
async fn a_schema_of_other_sources_or_of_before_the_first_release_is_refused(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    execute(
        &app,
        "update _sqlx_migrations set checksum = '' where version = 1",
    )
    .await;
    let error = app.store.migrate().await.unwrap_err();
    assert!(matches!(error, StoreError::OtherMigration(1)), "{error}");

    execute(&app, "delete from _sqlx_migrations").await;
    add_migration(&app, 20_261_120_000_001).await;
    let error = app.store.migrate().await.unwrap_err();
    assert!(matches!(error, StoreError::OtherSchema), "{error}");
    assert!(error.to_string().contains("another database"), "{error}");
}

#[sqlx::test]
async fn a_migration_that_waits_for_a_report_lets_others_pass(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = Arc::new(TestApp::new(options.clone()).await);
    execute(&app, "drop schema public cascade; create schema public").await;
    // As it is, but empty.
    execute(
        &app,
        "create table _sqlx_migrations (version bigint primary key, description text not null,
             installed_on timestamptz not null default now(), success boolean not null,
             checksum bytea not null, execution_time bigint not null)",
    )
    .await;
    let mut report = PgConnection::connect_with(&options).await.unwrap();
    let statement = "begin; lock table _sqlx_migrations in share mode";
    raw_sql(statement).execute(&mut report).await.unwrap();
    let migration = tokio::spawn({
        let app = Arc::clone(&app);
        async move { app.store.migrate().await }
    });
    let mut watcher = Watcher::new(&options).await;
    watcher.waiting(1).await;
    // The migration's wait times out by itself while the report still holds its lock.
    watcher.none_waits().await;
    raw_sql("commit").execute(&mut report).await.unwrap();
    migration.await.unwrap().unwrap();
    app.store.expect_schema().await.unwrap();
}

/// The fields of a struct in a source file, with the name of the Postgres type of each.
fn fields(source: &str, name: &str) -> Vec<(String, String)> {
    let (_, rest) = source.split_once(&format!("struct {name} {{\n")).unwrap();
    let (body, _) = rest.split_once("\n}").unwrap();
    let fields = body.lines().map(str::trim);
    let fields = fields.filter(|line| !line.starts_with("//") && !line.starts_with("#["));
    let typed = fields.map(|line| {
        let (name, kind) = line.trim_end_matches(',').split_once(": ").unwrap();
        let inner = kind
            .strip_prefix("Option<")
            .and_then(|rest| rest.strip_suffix('>'));
        let postgres = match inner.unwrap_or(kind) {
            "Uuid" => "uuid",
            "i64" => "int8",
            "i32" => "int4",
            "bool" => "bool",
            "&'static str" | "String" => "text",
            "Vec<u8>" => "bytea",
            "DateTime<Utc>" => "timestamptz",
            "Json<Box<RawValue>>" => "jsonb",
            other => panic!("{name}: {other} has no Postgres type here"),
        };
        (
            name.trim_start_matches("pub ").to_owned(),
            postgres.to_owned(),
        )
    });
    typed.collect()
}

/// A struct is sent by position: swapped neighbours of one type would go unnoticed.
#[sqlx::test]
async fn composite_types_have_the_fields_of_their_structs(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/generations");
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Ok(source) = std::fs::read_to_string(&path) else {
            continue;
        };
        for sent in source.split("group_rows::composite!(").skip(1) {
            let (sent, _) = sent.split_once(')').unwrap();
            let (row, name) = sent.split_once(", ").unwrap();
            let name = name.trim_matches('"');
            let columns: Vec<(String, String)> = sqlx::query_as(
                "select a.attname::text, t.typname::text
                 from pg_type c join pg_attribute a on a.attrelid = c.typrelid
                 join pg_type t on t.oid = a.atttypid
                 where c.typname = $1 and a.attnum > 0 and not a.attisdropped order by a.attnum",
            )
            .bind(name)
            .fetch_all(&app.pool)
            .await
            .unwrap();
            assert_eq!(fields(&source, row), columns, "{name}");
            seen.push(name.to_owned());
        }
    }
    for name in ["routed_hold_row", "settlement_row"] {
        assert!(seen.iter().any(|seen| seen.starts_with(name)), "{seen:?}");
    }
}

/// What the code cannot read is an error, not a missing row.
#[sqlx::test]
async fn unknown_values_of_reports_are_corrupt(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("10").await;
    let body = serde_json::json!({"prompt": "x"});
    app.post(&account.key, "/v1/generate/text", &body)
        .await
        .expect(200);
    assert_eq!(app.store.model_health(10, None).await.unwrap().len(), 1);
    let video = serde_json::json!({"prompt": "[[slow:60]]", "parameters": {"duration": 1}});
    app.post(&account.key, "/v1/generate/video", &video)
        .await
        .expect(202);
    assert_eq!(app.store.unfinished_jobs(10).await.unwrap().1, 1);
    execute(&app, "alter table running_generations drop constraint if exists running_generations_status_known").await;
    execute(&app, "update running_generations set status = 'dreaming'").await;
    let error = app.store.unfinished_jobs(10).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
    execute(
        &app,
        "alter table models drop constraint if exists models_type_known",
    )
    .await;
    execute(&app, "update models set type = 'smell'").await;
    let error = app.store.model_health(10, None).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
    let error = app.store.unfinished_jobs(10).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
}
