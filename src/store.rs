//! All SQL of the service.
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

mod decode;
mod pool;

use std::{sync::Arc, time::Duration};

use sqlx::{ConnectOptions as _, Connection as _, postgres::PgConnectOptions};
use tokio::time::Instant;

use pool::{Outages, Pool};

pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!();

/// Connections kept apart from requests, for settlements and jobs: a fourth of all, within these
/// bounds.
const RESERVED_CONNECTIONS: (u32, u32) = (2, 4);

/// The database, as the rest of the code sees it.
#[derive(Debug, Clone)]
pub struct Store {
    requests: Pool,
    /// For settlements and jobs, which must continue when requests use every connection.
    reserved: Pool,
    /// One, for the heartbeat: settlements may wait for a locked account.
    heartbeat: Pool,
    outages: Arc<Outages>,
}

/// What the server is set to risk in a crash.
#[derive(Debug, Clone, Copy)]
pub struct Durability {
    /// Whether it waits for the disk at all.
    pub fsync: bool,
    /// Whether it waits for the disk before it answers.
    pub synchronous_commit: bool,
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
    #[error("the schema could not be brought up to date")]
    Migrate(#[source] sqlx::migrate::MigrateError),
    #[error("the database refused a statement")]
    Database(#[source] sqlx::Error),
}

impl StoreError {
    /// Whether a row that was needed stayed locked by somebody else for too long.
    pub fn is_locked(&self) -> bool {
        matches!(self, Self::Unavailable(sqlx::Error::Database(error))
            if error.code().as_deref() == Some(LOCK_NOT_AVAILABLE))
    }

    /// Whether a constraint of that name refused the write.
    pub fn is_constraint(&self, name: &str) -> bool {
        matches!(self, Self::Constraint(found, _) if found == name)
    }
}

/// SQLSTATE when `lock_timeout` has passed.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// Classes and codes of errors that pass: connection exceptions, read-only transactions (a
/// failover), prepared statements that a pooler lost, refused logins, deadlocks, resources,
/// locks, operator intervention, system errors.
const TRANSIENT: [&str; 11] = [
    "08", "25006", "26000", "28", "3D000", "40", "53", "55", "57", "58", "XX000",
];

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
                    // data exceptions (a byte that the encoding lacks, a number out of range)
                    Some(code) if code.starts_with("22") => Self::OutOfRange(error),
                    Some(code) if TRANSIENT.iter().any(|c| code.starts_with(c)) => {
                        Self::Unavailable(error)
                    }
                    _ => Self::Database(error),
                }
            }
            sqlx::Error::ColumnDecode { .. } => Self::Corrupt(error.to_string()),
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
    /// A store over at most `max_connections` (4 or more) to `options`, made when they are first
    /// needed. A request waits at most `acquire_timeout` for one.
    pub fn connect_lazy(
        options: PgConnectOptions,
        max_connections: u32,
        acquire_timeout: Duration,
    ) -> Self {
        // Statements are logged by their names.
        let options = options
            .application_name("gensvc")
            .disable_statement_logging();
        let outages = Arc::new(Outages::default());
        let (least, most) = RESERVED_CONNECTIONS;
        let reserved = (max_connections / 4).clamp(least, most);
        let pool = |connections| {
            let outages = Arc::clone(&outages);
            Pool::new(options.clone(), connections, acquire_timeout, outages)
        };
        Self {
            requests: pool(max_connections - reserved - 1),
            reserved: pool(reserved),
            heartbeat: pool(1),
            outages,
        }
    }

    /// Brings the schema up to date.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let encoding = sqlx::query_scalar!(r#"select current_setting('server_encoding') as "e!""#)
            .fetch_one(self.reserved.named("read the encoding"))
            .await?;
        if encoding != "UTF8" {
            return Err(StoreError::Encoding(encoding));
        }
        // A migration may take long.
        let mut connection = self.reserved.detach().await?;
        sqlx::raw_sql("set statement_timeout = 0; set lock_timeout = 0")
            .execute(&mut connection)
            .await?;
        let migrated = MIGRATOR.run(&mut connection).await;
        connection.close().await?;
        migrated.map_err(|error| match error {
            sqlx::migrate::MigrateError::Execute(e) => e.into(),
            other => StoreError::Migrate(other),
        })
    }

    /// Whether the database answers on a connection for requests, and takes writes.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let writable = sqlx::query_scalar!(
            r#"select current_setting('transaction_read_only') = 'off' as "writable!""#
        )
        .fetch_one(self.requests.named("check health"));
        if writable.await? {
            Ok(())
        } else {
            // A new connection may lead to the database that takes them.
            self.outages.dead_since(Instant::now());
            Err(StoreError::ReadOnly)
        }
    }

    /// What a crash of the database's machine could lose.
    pub async fn durability(&self) -> Result<Durability, StoreError> {
        let durability = sqlx::query_as!(
            Durability,
            r#"select current_setting('fsync') = 'on' as "fsync!",
                      current_setting('synchronous_commit') <> 'off' as "synchronous_commit!""#
        )
        .fetch_one(self.requests.named("read durability settings"));
        Ok(durability.await?)
    }

    /// Says that the database was started anew: connections from before are not used again.
    pub fn distrust_connections(&self) {
        self.outages.dead_since(Instant::now());
    }

    /// Closes all connections, waiting for busy ones no longer than `patience`.
    pub async fn close(&self, patience: Duration) {
        let closed = async {
            tokio::join!(
                self.requests.close(),
                self.reserved.close(),
                self.heartbeat.close()
            )
        };
        if tokio::time::timeout(patience, closed).await.is_err() {
            tracing::warn!("connections to the database were still busy at the stop");
        }
    }
}
