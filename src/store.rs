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
pub mod deletion;
pub mod deliveries;
pub mod estimate;
pub mod generations;
pub mod history;
pub mod instances;
pub mod jobs;
pub mod keys;
pub mod media;
pub mod movements;
pub mod notices;
pub mod operators;
pub mod outbox;
pub mod receipts;
pub mod sessions;
pub mod templates;
pub mod usage;
pub mod verify;
pub mod webhooks;

mod decode;
mod group_rows;
mod groups;
mod hosts;
mod pool;
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

/// The database, as the rest of the code sees it.
#[derive(Clone)]
pub struct Store {
    requests: Pool,
    /// Holds and settlements.
    credits: Groups<CreditWriter>,
    /// One, for what walks through all that was settled.
    walks: Pool,
    /// API keys that are presented.
    keys: Groups<KeyReader>,
    /// For jobs and sweeps, which must continue when requests use every connection.
    jobs: Pool,
    /// One, for signs of life and health: nothing that waits for a lock.
    heartbeat: Pool,
    /// All of them, for metrics and the end.
    pools: [(&'static str, Pool); 7],
    prices: Prices,
    outages: Arc<Outages>,
    /// For the connection that listens.
    hosts: Hosts,
}

/// A statement is planned once by each connection. Where values could mislead a plan, the text of
/// the statement decides how it is carried out.
const PLANNED_ONCE: &str = "set plan_cache_mode = force_generic_plan; set jit = off";
/// Whatever the tables held when it was planned, and however little of them lies behind a cursor.
const BY_INDEX: &str = "set enable_seqscan = off";
/// For any number of rows in a group.
const NO_NESTED_LOOPS: &str = "set enable_nestloop = off";
/// What many share waits for a lock no longer than another server's commit takes.
const BRIEF_LOCKS: &str = "set lock_timeout = '5ms'";
/// Where nothing is written that must outlive a crash.
const UNFLUSHED: &str = "set synchronous_commit = off";

/// How many connections a process has for what.
#[derive(Debug, Clone, Copy)]
pub struct Connections {
    /// Statements of requests, but those below.
    pub requests: u32,
    /// Holds and settlements: statements that many share.
    pub credits: u32,
    /// Holds and settlements of accounts whose row somebody else has locked.
    pub locked: u32,
    /// Reading keys and counting their requests.
    pub keys: u32,
    /// Jobs and sweeps.
    pub jobs: u32,
    /// How long a statement of a request waits for one.
    pub acquire_timeout: Duration,
}

/// What the server is set to risk in a crash.
#[derive(Debug, Clone, Copy)]
pub struct Durability {
    /// Whether it waits for the disk at all.
    pub fsync: bool,
    /// Whether it waits for the disk before it answers.
    pub synchronous_commit: bool,
}

/// How the database failed. Cheap to clone: a statement may be many callers'.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Not reachable, shutting down, or out of connections. The statement may or may not have
    /// been carried out.
    #[error("the database is unavailable")]
    Unavailable(#[source] Arc<sqlx::Error>),
    /// A named constraint refused the write.
    #[error("constraint {0} refused the write")]
    Constraint(String, #[source] Arc<sqlx::Error>),
    /// A number does not fit the column.
    #[error("a number is out of the database's range")]
    OutOfRange(#[source] Arc<sqlx::Error>),
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
    /// The schema has a migration that this version does not know.
    #[error(
        "the database is of a newer gensvc: its schema is of version {0}, and this gensvc knows \
         versions up to {1}; start the newer gensvc, or restore a backup from before its first start"
    )]
    NewerSchema(i64, i64),
    /// The schema lacks a migration, and only a server's start or `gensvc migrate` brings it.
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
    /// The schema is of a version that this one cannot start from.
    #[error(
        "the database was made by a gensvc of before its first release; use the version that made \
         it, or another database"
    )]
    OtherSchema,
    /// One of its migrations is not what this version has under that number.
    #[error(
        "migration {0} of the database differs from that of this gensvc, which was built from \
         other sources: use the gensvc that made the database, or another database"
    )]
    OtherMigration(i64),
    #[error("the schema could not be brought up to date")]
    Migrate(#[source] Arc<MigrateError>),
    #[error("the database refused a statement")]
    Database(#[source] Arc<sqlx::Error>),
    /// The task that shared the statement ended without a word.
    #[error("a statement was given up")]
    GivenUp(#[from] RecvError),
}

impl StoreError {
    /// Whether a row that was needed stayed locked by somebody else for too long.
    pub fn is_locked(&self) -> bool {
        self.has_code(LOCK_NOT_AVAILABLE)
    }

    /// Of a database that cannot be used.
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

    /// Whether the statement may have been carried out all the same.
    pub fn is_unconfirmed(&self) -> bool {
        self.concerns_all() && !self.is_of_a_lock()
    }

    /// Whether it waited in vain for somebody else.
    fn is_of_a_lock(&self) -> bool {
        self.is_locked() || self.is_deadlock()
    }

    fn is_deadlock(&self) -> bool {
        self.has_code(DEADLOCK_DETECTED)
    }

    /// Whether it is about the database, and not about what one row wanted of it.
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

/// What is in the way to a database.
#[derive(Debug)]
pub struct Obstacle {
    /// Whether something answered.
    pub reached: bool,
    /// Whether another URL may lead past it.
    pub at_the_door: bool,
    pub cause: String,
}

/// Classes of errors of a login: connection exceptions, wrong user or password, no such database.
const DOOR: [&str; 3] = ["08", "28", "3D"];
/// SQLSTATE when `lock_timeout` has passed.
const LOCK_NOT_AVAILABLE: &str = "55P03";
/// SQLSTATE of a statement that was ended because it and others waited for each other.
const DEADLOCK_DETECTED: &str = "40P01";

/// Classes and codes of errors that pass: connection exceptions, read-only transactions (a
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
                    // data exceptions (a byte that the encoding lacks, a number out of range)
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

/// A write that must touch exactly one row.
fn exactly_one(statement: &'static str, rows: u64) -> Result<(), StoreError> {
    if rows == 1 {
        Ok(())
    } else {
        Err(StoreError::RowCount { statement, rows })
    }
}

impl Store {
    /// A store over connections to these hosts, made when they are first needed.
    pub fn connect_lazy(hosts: impl Into<Hosts>, connections: Connections) -> Self {
        let hosts = hosts.into();
        let outages = Arc::new(Outages::default());
        let pool = |settings: &'static [&'static str], size| {
            let (hosts, outages) = (hosts.clone(), Arc::clone(&outages));
            Pool::new(hosts, settings, size, connections.acquire_timeout, outages)
        };
        let requests = pool(&[PLANNED_ONCE], connections.requests);
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
        let jobs = pool(&[], connections.jobs);
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

    /// Whether the database answers, and takes writes.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let writable = sqlx::query_scalar!(
            r#"select current_setting('transaction_read_only') = 'off' as "writable!""#
        )
        .fetch_one(self.heartbeat.named("check health"));
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
