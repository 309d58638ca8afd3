//! Checks whether this version can use the schema, and migrates it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use sqlx::{
    Connection as _, PgConnection,
    migrate::{Migrate as _, MigrateError, Migration, Migrator},
    raw_sql,
};
use tokio::time::{Instant, sleep};

use super::{DEADLOCK_DETECTED, LOCK_NOT_AVAILABLE, Result, Store, StoreError};

pub static MIGRATOR: Migrator = sqlx::migrate!();

/// The table in which `sqlx` records applied migrations.
const TABLE: &str = "_sqlx_migrations";
/// Highest migration number: four digits. Before the first release migrations had dates.
const LAST_NUMBER: i64 = 9_999;
/// While a migration waits for a table, all other statements queue behind it. It therefore gives up
/// early, lets them pass, and retries.
const BRIEFLY: &str =
    "set statement_timeout = 0; set lock_timeout = '500ms'; set client_min_messages = warning";
/// `create index concurrently` waits for transactions but blocks none.
const FOR_AS_LONG_AS_IT_TAKES: &str = "set lock_timeout = 0";
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Maximum wait at startup for a table's lock, or for another server's migration.
const PATIENCE: Duration = Duration::from_mins(10);

impl Store {
    pub async fn migrate(&self) -> Result<()> {
        self.check_database().await?;
        let begun = Instant::now();
        loop {
            let mut connection = self.jobs.detach().await?;
            let migrated = migrate(&mut connection).await;
            // Releases the migration lock.
            connection.close().await?;
            match migrated {
                Err(error)
                    if (error.is_locked() || error.is_deadlock()) && begun.elapsed() < PATIENCE =>
                {
                    tracing::warn!(
                        "the migration waits for others to leave a table, or to end theirs; it is \
                         tried again"
                    );
                    sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(error),
                Ok(()) => break,
            }
        }
        self.recount_restored().await
    }

    /// Migrates an empty database. Fails if the schema is not this version's: commands must not
    /// change a schema that servers use.
    pub async fn expect_schema(&self) -> Result<()> {
        self.check_database().await?;
        let mut connection = self.jobs.detach().await?;
        let pending = pending(&mut connection).await;
        connection.close().await?;
        let pending = pending?;
        match pending.first() {
            None => self.recount_restored().await,
            Some(_) if pending.len() == MIGRATOR.iter().count() => self.migrate().await,
            Some(first) => Err(StoreError::OlderSchema(first.version)),
        }
    }

    async fn check_database(&self) -> Result<()> {
        let encoding = sqlx::query_scalar!(r#"select current_setting('server_encoding') as "e!""#)
            .fetch_one(self.jobs.named("read the encoding"))
            .await?;
        if encoding == "UTF8" {
            Ok(())
        } else {
            Err(StoreError::Encoding(encoding))
        }
    }

    /// Whether connections share sessions, as behind a pooler in transaction mode.
    pub async fn shares_sessions(&self) -> Result<bool> {
        let (mut one, mut other) = (self.jobs.detach().await?, self.jobs.detach().await?);
        raw_sql("set gensvc.session = 'one'")
            .execute(&mut one)
            .await?;
        let seen = "do $$ begin
                if current_setting('gensvc.session', true) = 'one' then
                    raise 'shared' using errcode = 'GS001';
                end if;
            end $$";
        let seen = raw_sql(seen).execute(&mut other).await;
        one.close().await?;
        other.close().await?;
        match seen {
            Ok(_) => Ok(false),
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("GS001") => {
                Ok(true)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Recounts usage after a restore from a dump, where transaction ids, the cursors, start over.
    async fn recount_restored(&self) -> Result<()> {
        let restored = sqlx::query_scalar!(
            r#"select exists (select from settled_cursors
                   where upto > pg_snapshot_xmax(pg_current_snapshot())) as "restored!""#
        )
        .fetch_one(self.jobs.named("look at the cursors"))
        .await?;
        if restored {
            tracing::info!("the database was restored from a dump: recounting usage");
            self.recount().await?;
        }
        Ok(())
    }
}

fn known() -> i64 {
    let versions = MIGRATOR.iter().map(|migration| migration.version);
    versions.max().unwrap_or(0)
}

async fn migrate(connection: &mut PgConnection) -> Result<()> {
    raw_sql(BRIEFLY).execute(&mut *connection).await?;
    connection.lock().await?;
    connection.ensure_migrations_table(TABLE).await?;
    let pending = pending(connection).await?;
    // In a new database, all migrations are pending.
    let is_new = pending.len() == MIGRATOR.iter().count();
    for migration in pending {
        if migration.no_tx {
            let settings = raw_sql(FOR_AS_LONG_AS_IT_TAKES);
            settings.execute(&mut *connection).await?;
        }
        connection.apply(TABLE, migration).await?;
        raw_sql(BRIEFLY).execute(&mut *connection).await?;
        if !is_new {
            tracing::info!(migration = %migration.description, "the schema was migrated");
        }
    }
    Ok(())
}

/// Returns missing migrations. Fails if this version cannot use the applied ones.
async fn pending(connection: &mut PgConnection) -> Result<Vec<&'static Migration>> {
    let begun = "select to_regclass('_sqlx_migrations') is not null";
    if !sqlx::query_scalar(begun)
        .fetch_one(&mut *connection)
        .await?
    {
        return Ok(MIGRATOR.iter().collect());
    }
    let applied = connection.list_applied_migrations(TABLE).await?;
    let mut applied: BTreeMap<_, _> = applied.into_iter().map(|m| (m.version, m)).collect();
    let mut pending = Vec::new();
    for migration in MIGRATOR.iter() {
        match applied.remove(&migration.version) {
            None => pending.push(migration),
            Some(applied) if applied.checksum == migration.checksum => {}
            Some(_) => return Err(StoreError::OtherMigration(migration.version)),
        }
    }
    let Some(newest) = applied.into_keys().next_back() else {
        return Ok(pending);
    };
    if newest > LAST_NUMBER {
        return Err(StoreError::OtherSchema);
    }
    let floor = sqlx::query_scalar!("select version from schema_floor");
    if floor.fetch_one(connection).await? > known() {
        return Err(StoreError::NewerSchema(newest, known()));
    }
    tracing::info!(
        newest,
        known = known(),
        "the schema is of a newer version, which this one can work with"
    );
    Ok(pending)
}

impl From<MigrateError> for StoreError {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::Execute(error) => error.into(),
            // Lock timeouts are transient.
            MigrateError::ExecuteMigration(error, _)
                if error.as_database_error().is_some_and(|error| {
                    let code = error.code();
                    code.is_some_and(|code| {
                        [LOCK_NOT_AVAILABLE, DEADLOCK_DETECTED].contains(&&*code)
                    })
                }) =>
            {
                error.into()
            }
            other => Self::Migrate(Arc::new(other)),
        }
    }
}
