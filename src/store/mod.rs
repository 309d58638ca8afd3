//! All SQL of the house.
//!
//! Here: statements, row types and the names of constraints. Every path that moves credits is
//! one statement together with the state it belongs to, so that a crash leaves both or
//! neither. Not here: what a thing costs, what a status code is, the network.

pub mod accounts;
pub mod credits;
pub mod generations;
pub mod history;
pub mod instances;
pub mod keys;
pub mod sessions;
pub mod verify;

use std::time::Duration;

use sqlx::{
    Connection as _, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

/// How many connections may wait idle before they are probed again.
const PROBE_AFTER_IDLE: Duration = Duration::from_secs(1);

/// The schema, embedded.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!();

/// The database, as the rest of the house sees it.
#[derive(Debug, Clone)]
pub struct Store {
    pool: PgPool,
}

/// How the database failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Not reachable, shutting down, or out of connections. The statement may or may not have
    /// been carried out.
    #[error("the database is unavailable")]
    Unavailable(#[source] sqlx::Error),
    /// A named constraint refused the write.
    #[error("constraint {0} refused the write")]
    Constraint(String, #[source] sqlx::Error),
    /// A number does not fit the column.
    #[error("a number is out of the database's range")]
    OutOfRange(#[source] sqlx::Error),
    /// A write touched another number of rows than it must.
    #[error("{statement} touched {rows} rows")]
    RowCount {
        /// Which write.
        statement: &'static str,
        /// How many rows it touched.
        rows: u64,
    },
    /// Stored data that the code cannot read: the schema and the code differ.
    #[error("stored data cannot be read: {0}")]
    Corrupt(String),
    /// A migration failed.
    #[error("the schema could not be brought up to date")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    /// Anything else.
    #[error("the database refused a statement")]
    Database(#[source] sqlx::Error),
}

impl StoreError {
    /// Whether a constraint of that name refused the write.
    pub fn is_constraint(&self, name: &str) -> bool {
        matches!(self, Self::Constraint(found, _) if found == name)
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::Protocol(_) => Self::Unavailable(error),
            sqlx::Error::Database(db) => {
                if let Some(name) = db.constraint() {
                    return Self::Constraint(name.to_owned(), error);
                }
                match db.code().as_deref() {
                    // numeric_value_out_of_range
                    Some("22003") => Self::OutOfRange(error),
                    // connection exceptions, insufficient resources, operator intervention
                    Some(code) if ["08", "53", "57"].iter().any(|c| code.starts_with(c)) => {
                        Self::Unavailable(error)
                    }
                    _ => Self::Database(error),
                }
            }
            _ => Self::Database(error),
        }
    }
}

/// A write that must touch exactly one row.
fn exactly_one(statement: &'static str, rows: u64) -> Result<(), StoreError> {
    if rows == 1 {
        Ok(())
    } else {
        Err(StoreError::RowCount { statement, rows })
    }
}

impl Store {
    /// A store over a pool.
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// A store over at most `max_connections` to `options`, made when they are first needed.
    /// A request waits at most `acquire_timeout` for one.
    pub fn connect_lazy(
        options: PgConnectOptions,
        max_connections: u32,
        acquire_timeout: Duration,
    ) -> Self {
        let pool = PgPoolOptions::new()
            .max_connections(max_connections)
            .acquire_timeout(acquire_timeout)
            // A probe before every statement would double the round trips; a connection that
            // was used a moment ago is taken to be alive.
            .test_before_acquire(false)
            .before_acquire(|connection, meta| {
                Box::pin(async move {
                    if meta.idle_for > PROBE_AFTER_IDLE {
                        return Ok(connection.ping().await.is_ok());
                    }
                    Ok(true)
                })
            })
            .connect_lazy_with(options.application_name("gensvc"));
        Self::new(pool)
    }

    /// Brings the schema up to date.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        MIGRATOR.run(&self.pool).await.map_err(|error| match error {
            sqlx::migrate::MigrateError::Execute(e) => e.into(),
            other => StoreError::Migrate(other),
        })
    }

    /// Whether the database answers.
    pub async fn ping(&self) -> Result<(), StoreError> {
        sqlx::query_scalar!("select 1")
            .fetch_one(&self.pool)
            .await?;
        Ok(())
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}
