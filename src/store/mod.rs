//! All SQL of the house.
//!
//! Here: statements, row types and the names of constraints. Every path that moves credits is
//! one statement together with the state it belongs to, so that a crash leaves both or
//! neither. Not here: what a thing costs, what a status code is, the network.

pub mod account_settings;
pub mod accounts;
pub mod admin;
pub mod audit;
pub mod credits;
pub mod deliveries;
pub mod estimate;
pub mod generations;
pub mod history;
pub mod instances;
pub mod jobs;
pub mod keys;
pub mod media;
pub mod movements;
pub mod outbox;
pub mod sessions;
pub mod templates;
pub mod usage;
pub mod verify;
pub mod webhooks;

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use sqlx::{
    Connection as _, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};

/// How many connections may wait idle before they are probed again.
const PROBE_AFTER_IDLE: Duration = Duration::from_secs(1);

/// The schema, embedded.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!();

/// How long a statement may run, and wait for a lock. What a request does takes milliseconds;
/// what takes longer is stuck behind somebody else's work.
const STATEMENT_LIMITS: &str = "set statement_timeout = '15s'; set lock_timeout = '3s'";
/// How long a statement may take as seen from here: a host that vanished, or a server that
/// hangs, answers nothing, and whoever asked is to learn of it within seconds. Longer than
/// `lock_timeout`.
const CALL_TIMEOUT: Duration = Duration::from_secs(6);
/// Connections kept apart from requests, for settlements, signs of life and health checks.
const RESERVED_CONNECTIONS: u32 = 4;

/// The database, as the rest of the house sees it.
#[derive(Debug, Clone)]
pub struct Store {
    /// For requests.
    pool: PgPool,
    /// For what must go on when requests have taken every connection.
    reserved: PgPool,
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
    /// The database keeps text in another encoding.
    #[error("the database's encoding is {0}; it must be UTF8")]
    Encoding(String),
    /// The database takes no writes: a standby, or a failover under way.
    #[error("the database is read-only")]
    ReadOnly,
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

/// Classes and codes of errors that pass: connection exceptions, read-only transactions (a
/// failover), prepared statements that a pooler lost, refused logins, deadlocks, resources,
/// locks, operator intervention, system errors.
const TRANSIENT: [&str; 11] = [
    "08", "25006", "26000", "28", "3D000", "40", "53", "55", "57", "58", "XX000",
];

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let error = Self::sorted(error);
        if matches!(error, Self::Unavailable(_)) {
            TROUBLE.note();
        }
        error
    }
}

impl StoreError {
    fn sorted(error: sqlx::Error) -> Self {
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
                    // data exceptions (a byte that the encoding lacks, a number out of range)
                    Some(code) if code.starts_with("22") => Self::OutOfRange(error),
                    Some(code) if TRANSIENT.iter().any(|c| code.starts_with(c)) => {
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

/// When a connection was last found dead, in milliseconds since the process's first look.
/// Others that were not used since may be dead too. One for the process: all stores in it talk
/// to the same database.
static TROUBLE: Trouble = Trouble {
    start: LazyLock::new(Instant::now),
    at: AtomicU64::new(u64::MAX),
};

struct Trouble {
    start: LazyLock<Instant>,
    at: AtomicU64,
}

impl Trouble {
    fn note(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.at.store(now, Ordering::Release);
    }

    /// How long ago it was; for ever when it never was.
    fn since(&self) -> Duration {
        match self.at.load(Ordering::Acquire) {
            u64::MAX => Duration::MAX,
            at => self
                .start
                .elapsed()
                .saturating_sub(Duration::from_millis(at)),
        }
    }
}

/// Bounds a call: what has not answered in time is taken to be away, with an unknown outcome.
async fn bounded<T>(call: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(result) => Ok(result?),
        Err(_elapsed) => Err(StoreError::Unavailable(sqlx::Error::PoolTimedOut)),
    }
}

impl Store {
    /// A store over at most `max_connections` to `options` for requests and a few more for
    /// itself, made when they are first needed. A request waits at most `acquire_timeout` for
    /// one.
    pub fn connect_lazy(
        options: PgConnectOptions,
        max_connections: u32,
        acquire_timeout: Duration,
    ) -> Self {
        let options = options.application_name("gensvc");
        let pool = |connections| {
            PgPoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(acquire_timeout)
                // A probe before every statement would double the round trips; a connection
                // that was used a moment ago is taken to be alive.
                .test_before_acquire(false)
                .before_acquire(|connection, meta| {
                    Box::pin(async move {
                        let unused_since_trouble = TROUBLE.since() <= meta.idle_for;
                        if meta.idle_for > PROBE_AFTER_IDLE || unused_since_trouble {
                            return Ok(connection.ping().await.is_ok());
                        }
                        Ok(true)
                    })
                })
                .after_connect(|connection, _| {
                    Box::pin(async move {
                        sqlx::raw_sql(STATEMENT_LIMITS).execute(connection).await?;
                        Ok(())
                    })
                })
                .connect_lazy_with(options.clone())
        };
        Self {
            pool: pool(max_connections),
            reserved: pool(RESERVED_CONNECTIONS),
        }
    }

    /// Brings the schema up to date.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let mut connection = self.reserved.acquire().await?;
        let encoding = sqlx::query_scalar!(r#"select current_setting('server_encoding') as "e!""#)
            .fetch_one(&mut *connection)
            .await?;
        if encoding != "UTF8" {
            return Err(StoreError::Encoding(encoding));
        }
        // A migration may take long.
        sqlx::raw_sql("set statement_timeout = 0; set lock_timeout = 0")
            .execute(&mut *connection)
            .await?;
        let migrated = MIGRATOR.run(&mut *connection).await;
        connection.close().await?;
        migrated.map_err(|error| match error {
            sqlx::migrate::MigrateError::Execute(e) => e.into(),
            other => StoreError::Migrate(other),
        })
    }

    /// Whether the database answers, and takes writes.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let writable = sqlx::query_scalar!(
            r#"select current_setting('transaction_read_only') = 'off' as "writable!""#
        )
        .fetch_one(&self.reserved);
        if bounded(writable).await? {
            Ok(())
        } else {
            Err(StoreError::ReadOnly)
        }
    }

    /// Says that the database was started anew: connections from before are probed before they
    /// are used again.
    pub fn distrust_connections(&self) {
        TROUBLE.note();
    }

    /// Closes all connections, waiting for busy ones no longer than `patience`.
    pub async fn close(&self, patience: Duration) {
        let closed = async { tokio::join!(self.pool.close(), self.reserved.close()) };
        if tokio::time::timeout(patience, closed).await.is_err() {
            tracing::warn!("connections to the database were still busy at the stop");
        }
    }
}
