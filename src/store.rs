//! All SQL of the service.
//!
//! Statements, row types and names of constraints. Every movement of credits is one statement or
//! transaction together with the state it belongs to, so that a crash leaves both or neither.
//! Prices and status codes are elsewhere.

pub mod accounts;
pub mod audit;
pub mod credits;
pub mod deletion;
pub mod deliveries;
pub mod generations;
pub mod history;
pub mod instances;
pub mod jobs;
pub mod keys;
pub mod media;
pub mod operators;
pub mod sessions;
pub mod templates;
pub mod uploads;
pub mod usage;
pub mod verify;
pub mod webhooks;

mod decode;
mod group_rows;
mod groups;
mod hosts;
mod pool;
mod purge;
mod schema;

use std::{io::ErrorKind, sync::Arc, time::Duration};

use sqlx::migrate::MigrateError;
use tokio::{sync::oneshot::error::RecvError, time::Instant};

use generations::{CreditWriter, Prices};
use groups::Groups;
use keys::KeyReader;
use pool::{Outages, Pool};

pub use hosts::{Hosts, HostsError};
pub use schema::MIGRATOR;

#[derive(Clone)]
pub struct Store {
    requests: Pool,
    /// Holds and settlements.
    credits: Groups<CreditWriter>,
    /// One connection, for scans of all settled generations.
    walks: Pool,
    /// Authentication of API keys.
    keys: Groups<KeyReader>,
    /// Jobs and sweeps, which must continue when requests use every connection.
    jobs: Pool,
    /// One connection, for heartbeats: statements that never wait for a lock.
    heartbeat: Pool,
    /// All pools, for metrics and for closing.
    pools: [(&'static str, Pool); 7],
    prices: Prices,
    outages: Arc<Outages>,
    hosts: Hosts,
}

/// Each connection plans a statement once. Statements are written so that the plan does not depend
/// on values.
const PLANNED_ONCE: &str = "set plan_cache_mode = force_generic_plan";
/// Plans use indexes even if a table was empty when its statement was planned: a cached plan stays
/// until the table is analysed, however many rows it gets before.
const BY_INDEX: &str = "set enable_seqscan = off; set jit = off";
/// Plans a statement well for any number of rows in a group.
const NO_NESTED_LOOPS: &str = "set enable_nestloop = off";
/// A shared statement waits for a lock only as long as another server's commit takes.
const BRIEF_LOCKS: &str = "set lock_timeout = '5ms'";
/// For writes that need not survive a crash.
const UNFLUSHED: &str = "set synchronous_commit = off";

/// Connections of a process by purpose.
#[derive(Debug, Clone, Copy)]
pub struct Connections {
    /// Other statements of requests.
    pub requests: u32,
    /// Shared statements of holds and settlements.
    pub credits: u32,
    /// Holds and settlements of accounts whose row is locked.
    pub locked: u32,
    /// Authentication and rate limits of keys.
    pub keys: u32,
    /// Jobs and sweeps.
    pub jobs: u32,
    /// Maximum wait for a free connection.
    pub acquire_timeout: Duration,
}

/// Settings of the database server that decide what a crash can lose.
#[derive(Debug, Clone, Copy)]
pub struct Durability {
    pub fsync: bool,
    pub synchronous_commit: bool,
}

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Cheap to clone: several callers may share a statement.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Not reachable, shutting down, or out of connections. The statement may have been executed.
    #[error("the database is unavailable")]
    Unavailable(#[source] Arc<sqlx::Error>),
    /// A named constraint refused the write.
    #[error("constraint {0} refused the write")]
    Constraint(String, #[source] Arc<sqlx::Error>),
    /// A number does not fit the column.
    #[error("a number is out of the database's range")]
    OutOfRange(#[source] Arc<sqlx::Error>),
    /// A write touched an unexpected number of rows.
    #[error("{statement} touched {rows} rows")]
    RowCount { statement: &'static str, rows: u64 },
    /// Stored data that the code cannot read: the schema and the code differ.
    #[error("stored data cannot be read: {0}")]
    Corrupt(String),
    /// The database keeps text in another encoding.
    #[error("the database's encoding is {0}; it must be UTF8")]
    Encoding(String),
    /// The database is read-only: a standby, or during a failover.
    #[error("the database is read-only")]
    ReadOnly,
    /// The schema has a migration that this version does not know.
    #[error(
        "the database is of a newer gensvc: its schema is of version {0}, and this gensvc knows \
         versions up to {1}; start the newer gensvc, or restore a backup from before its first start"
    )]
    NewerSchema(i64, i64),
    /// The schema lacks a migration, which a server's start or `gensvc migrate` applies.
    #[error(
        "the database's schema lacks migration {0}, which this gensvc needs: start the server, or \
         run `gensvc migrate`"
    )]
    OlderSchema(i64),
    #[error(
        "the database is behind a pooler whose clients share sessions, and gensvc keeps settings \
         and prepared statements in its own: use the pooler's session mode (PgBouncer: pool_mode = \
         session), or Postgres itself"
    )]
    SharedSessions,
    /// The schema cannot be upgraded by this version.
    #[error(
        "the database was made by a gensvc before its first release; use the version that made \
         it, or another database"
    )]
    OtherSchema,
    /// An applied migration differs from this version's migration of that number.
    #[error(
        "migration {0} of the database differs from that of this gensvc, which was built from \
         other sources: use the gensvc that made the database, or another database"
    )]
    OtherMigration(i64),
    #[error("the schema could not be brought up to date")]
    Migrate(#[source] Arc<MigrateError>),
    #[error("the database refused a statement")]
    Database(#[source] Arc<sqlx::Error>),
    /// The task panicked.
    #[error("a task ended without a result")]
    GivenUp(#[from] RecvError),
}

impl StoreError {
    /// Whether a lock timeout passed.
    pub fn is_locked(&self) -> bool {
        self.has_code(LOCK_NOT_AVAILABLE)
    }

    pub fn obstacle(&self) -> Option<Obstacle> {
        let (Self::Unavailable(error) | Self::Database(error)) = self else {
            return None;
        };
        let reached = error.as_database_error();
        let code = reached.and_then(sqlx::error::DatabaseError::code);
        Some(Obstacle {
            reached: reached.is_some(),
            at_the_door: code.is_none_or(|code| DOOR.iter().any(|class| code.starts_with(class))),
            cause: match &**error {
                sqlx::Error::Database(error) => error.message().to_owned(),
                sqlx::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    "connection refused".to_owned()
                }
                sqlx::Error::Io(error) => error.to_string(),
                error => error.to_string(),
            },
        })
    }

    /// Whether the statement may have been executed.
    pub fn is_unconfirmed(&self) -> bool {
        self.concerns_all() && !self.is_of_a_lock()
    }

    /// Whether the statement timed out waiting for another transaction.
    fn is_of_a_lock(&self) -> bool {
        self.is_locked() || self.is_deadlock()
    }

    fn is_deadlock(&self) -> bool {
        self.has_code(DEADLOCK_DETECTED)
    }

    /// Whether the whole database failed, not only one row's data.
    const fn concerns_all(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }

    fn has_code(&self, code: &str) -> bool {
        let Self::Unavailable(error) = self else {
            return false;
        };
        let error = error.as_database_error();
        error.is_some_and(|error| error.code().as_deref() == Some(code))
    }

    /// Whether a constraint of that name refused the write.
    pub fn is_constraint(&self, name: &str) -> bool {
        matches!(self, Self::Constraint(found, _) if found == name)
    }
}

/// Why a database cannot be reached.
#[derive(Debug)]
pub struct Obstacle {
    pub reached: bool,
    /// Whether another URL may help: the host is wrong, or it refused the login.
    pub at_the_door: bool,
    pub cause: String,
}

/// SQLSTATE classes of login errors: connection exceptions, wrong user or password, no such
/// database.
const DOOR: [&str; 3] = ["08", "28", "3D"];
/// SQLSTATE of a lock timeout.
const LOCK_NOT_AVAILABLE: &str = "55P03";
/// SQLSTATE of a deadlock.
const DEADLOCK_DETECTED: &str = "40P01";

/// SQLSTATE classes and codes of transient errors: connection exceptions, read-only transactions (a
/// failover), prepared statements that a pooler lost, refused logins, deadlocks, resources,
/// locks, operator intervention, system errors.
const TRANSIENT: [&str; 11] = [
    "08", "25006", "26000", "28", "3D000", "40", "53", "55", "57", "58", "XX000",
];

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let error = Arc::new(error);
        match &*error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::Protocol(_) => Self::Unavailable(error),
            sqlx::Error::Database(db) => {
                if let Some(name) = db.constraint() {
                    return Self::Constraint(name.to_owned(), Arc::clone(&error));
                }
                match db.code().as_deref() {
                    // Data exceptions, such as a character outside the encoding or a large number.
                    Some(code) if code.starts_with("22") => Self::OutOfRange(Arc::clone(&error)),
                    Some(code) if TRANSIENT.iter().any(|c| code.starts_with(c)) => {
                        Self::Unavailable(Arc::clone(&error))
                    }
                    _ => Self::Database(Arc::clone(&error)),
                }
            }
            sqlx::Error::ColumnDecode { .. } => Self::Corrupt(error.to_string()),
            _ => Self::Database(error),
        }
    }
}

/// Fails unless a write touched exactly one row.
fn exactly_one(statement: &'static str, rows: u64) -> Result<()> {
    if rows == 1 {
        Ok(())
    } else {
        Err(StoreError::RowCount { statement, rows })
    }
}

/// Whether a batch of rows was full, so that there may be more.
fn is_full(rows: u64, batch: i64) -> bool {
    i64::try_from(rows).is_ok_and(|rows| rows >= batch)
}

impl Store {
    /// Creates the pools; connections are opened on demand.
    pub fn connect_lazy(hosts: impl Into<Hosts>, connections: Connections) -> Self {
        let hosts = hosts.into();
        let outages = Arc::new(Outages::default());
        let pool = |settings: &'static [&'static str], size| {
            let (hosts, outages) = (hosts.clone(), Arc::clone(&outages));
            Pool::new(hosts, settings, size, connections.acquire_timeout, outages)
        };
        let requests = pool(&[PLANNED_ONCE, BY_INDEX], connections.requests);
        let credits = pool(
            &[PLANNED_ONCE, BY_INDEX, NO_NESTED_LOOPS, BRIEF_LOCKS],
            connections.credits,
        );
        let lanes = pool(
            &[PLANNED_ONCE, BY_INDEX, NO_NESTED_LOOPS],
            connections.locked,
        );
        let keys = pool(
            &[PLANNED_ONCE, BY_INDEX, NO_NESTED_LOOPS, UNFLUSHED],
            connections.keys,
        );
        let walks = pool(&[PLANNED_ONCE, BY_INDEX], 1);
        let jobs = pool(&[BY_INDEX], connections.jobs);
        let heartbeat = pool(&[], 1);
        let writer = CreditWriter {
            shared: credits.clone(),
            lanes: lanes.clone(),
        };
        let (statements, at_once) = (connections.credits as usize, connections.locked as usize);
        Self {
            credits: Groups::new(writer, statements, at_once),
            keys: Groups::new(KeyReader(keys.clone()), connections.keys as usize, 0),
            pools: [
                ("requests", requests.clone()),
                ("credits", credits),
                ("lanes", lanes),
                ("walks", walks.clone()),
                ("keys", keys),
                ("jobs", jobs.clone()),
                ("heartbeat", heartbeat.clone()),
            ],
            requests,
            walks,
            jobs,
            heartbeat,
            prices: Prices::default(),
            outages,
            hosts,
        }
    }

    /// Fails unless the database answers on a connection for requests and accepts writes.
    pub async fn ping(&self) -> Result<()> {
        let writable = sqlx::query_scalar!(
            r#"select current_setting('transaction_read_only') = 'off' as "writable!""#
        )
        .fetch_one(self.requests.named("check health"));
        if writable.await? {
            Ok(())
        } else {
            // A new connection may reach the primary.
            self.outages.dead_since(Instant::now());
            Err(StoreError::ReadOnly)
        }
    }

    /// Reads the settings that decide what a crash of the database's machine can lose.
    pub async fn durability(&self) -> Result<Durability> {
        let durability = sqlx::query_as!(
            Durability,
            r#"select current_setting('fsync') = 'on' as "fsync!",
                      current_setting('synchronous_commit') <> 'off' as "synchronous_commit!""#
        )
        .fetch_one(self.requests.named("read durability settings"));
        Ok(durability.await?)
    }

    /// Discards all connections after a restart of the database.
    pub fn distrust_connections(&self) {
        self.prices.forget();
        self.outages.dead_since(Instant::now());
    }

    /// Closes all connections, waiting for busy ones no longer than `patience`.
    pub async fn close(&self, patience: Duration) {
        let pools = self.pools.iter().map(|(_, pool)| pool.close());
        let closed = futures_util::future::join_all(pools);
        if tokio::time::timeout(patience, closed).await.is_err() {
            tracing::warn!("connections to the database were still busy at the stop");
        }
    }
}
