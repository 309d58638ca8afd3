//! Connections to the database, and the statements that run on them.
//!
//! Every statement has a name, for logs and traces, and a time limit. A connection returns to the
//! pool only after a complete answer. Otherwise it is closed: pinging a dead connection would block
//! its pool slot.

mod call;

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use deadpool::managed::{
    self, Manager, Metrics, Object, PoolError, QueueMode, RecycleError, RecycleResult,
};
use sqlx::{Connection as _, PgConnection, raw_sql};
use tokio::time::{Instant, sleep, timeout};

pub use call::{Call, Transaction, statement_span};

use super::Hosts;
use crate::domain::lock::lock;

/// Time limit of a statement, so that a lost host is noticed within seconds. Longer than
/// `lock_timeout`.
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// First and longest pause between attempts while the server is starting.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// Pause between two checks of a closing pool.
const CLOSE_PAUSE: Duration = Duration::from_millis(10);

pub const CONNECT_LIMIT: Duration = Duration::from_secs(3);
pub const PROBE_LIMIT: Duration = Duration::from_secs(1);
/// A connection that was idle for longer is pinged before use.
const PROBE_AFTER: Duration = Duration::from_secs(1);
/// A connection that was idle for longer is replaced: a firewall may have dropped it.
const MAX_IDLE: Duration = Duration::from_mins(10);
/// An older connection is replaced: the server's memory per session grows with use.
const MAX_AGE: Duration = Duration::from_mins(30);

/// Settings that must not depend on the server's defaults. Statements of requests take milliseconds
/// unless they are blocked. The keep-alives let the server notice that this host is lost; sqlx
/// cannot set them on its own sockets, so time limits and pings replace them here.
pub const SETTINGS: &str = "
    set default_transaction_isolation = 'read committed';
    set statement_timeout = '15s';
    set lock_timeout = '3s';
    set idle_in_transaction_session_timeout = '10s';
    set tcp_keepalives_idle = 30;
    set tcp_keepalives_interval = 10;
    set tcp_keepalives_count = 3;
    set tcp_user_timeout = '30s';
";

/// Connections for one purpose, opened on demand.
#[derive(Debug, Clone)]
pub struct Pool {
    connections: managed::Pool<Sessions>,
    acquire_timeout: Duration,
}

impl Pool {
    /// Creates a pool of at most `size` connections to `hosts`, each with `settings`. A call waits
    /// at most `acquire_timeout` for a connection.
    pub fn new(
        hosts: Hosts,
        settings: &'static [&'static str],
        size: u32,
        acquire_timeout: Duration,
        outages: Arc<Outages>,
    ) -> Self {
        let sessions = Sessions {
            hosts,
            settings,
            outages,
        };
        let connections = managed::Pool::builder(sessions)
            .max_size(size as usize)
            // The connection used last is the most likely to be alive; the others may expire.
            .queue_mode(QueueMode::Lifo)
            .build();
        let Ok(connections) = connections else {
            unreachable!("only time-outs, which are not set, need more");
        };
        Self {
            connections,
            acquire_timeout,
        }
    }

    pub fn named(&self, name: &'static str) -> Call<'_> {
        Call::new(self, name, CALL_LIMIT)
    }

    /// Takes a connection out of the pool, which may then open another.
    pub async fn detach(&self) -> Result<PgConnection, sqlx::Error> {
        Ok(Object::take(self.acquire().await?).connection)
    }

    /// Returns the number of busy and of idle connections.
    pub fn usage(&self) -> (u32, u32) {
        let status = self.connections.status();
        let count = |connections| u32::try_from(connections).unwrap_or(u32::MAX);
        (
            count(status.size - status.available),
            count(status.available),
        )
    }

    /// Closes idle connections at once and busy ones when they are returned.
    pub async fn close(&self) {
        self.connections.close();
        while self.connections.status().size > 0 {
            sleep(CLOSE_PAUSE).await;
        }
    }

    async fn acquire(&self) -> Result<Object<Sessions>, sqlx::Error> {
        // The server's last refusal explains more than a timeout.
        let mut last = sqlx::Error::PoolTimedOut;
        let acquiring = async {
            let mut pause = RETRY_PAUSE.0;
            loop {
                match self.connections.get().await {
                    Ok(connection) => return Ok(connection),
                    Err(PoolError::Backend(error)) if is_starting(&error) => {
                        last = error;
                        sleep(pause).await;
                        pause = RETRY_PAUSE.1.min(pause * 2);
                    }
                    Err(PoolError::Backend(error)) => return Err(error),
                    Err(PoolError::Closed) => return Err(sqlx::Error::PoolClosed),
                    Err(_) => return Err(sqlx::Error::PoolTimedOut),
                }
            }
        };
        let acquired = timeout(self.acquire_timeout, acquiring).await;
        acquired.unwrap_or(Err(last))
    }

    fn outages(&self) -> &Arc<Outages> {
        &self.connections.manager().outages
    }
}

/// Whether the server is starting, or has not noticed yet that other connections were closed.
fn is_starting(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => matches!(
            error.kind(),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotConnected
        ),
        sqlx::Error::Database(error) => error.is_transient_in_connect_phase(),
        _ => false,
    }
}

pub fn timed_out(what: &str) -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(
        io::ErrorKind::TimedOut,
        format!("{what}: no answer from the database in time"),
    ))
}

#[derive(Debug)]
pub struct Session {
    pub connection: PgConnection,
    /// When the server last answered.
    answered: Instant,
    /// Whether no statement is running.
    ready: bool,
}

impl Session {
    /// Marks the answer as complete.
    pub fn finished(&mut self) {
        self.answered = Instant::now();
        self.ready = true;
    }

    /// Marks a statement as running.
    pub fn started(&mut self) {
        self.ready = false;
    }
}

/// Failures that affect all connections to a database, in all pools: if a host is lost, every
/// connection is dead.
#[derive(Debug, Default)]
pub struct Outages(Mutex<Verdicts>);

#[derive(Debug, Default, Clone, Copy)]
struct Verdicts {
    /// Connections that have not answered since may be dead.
    suspect: Option<Instant>,
    /// Connections that have not answered since are dead.
    dead: Option<Instant>,
}

impl Outages {
    /// Has every idle connection pinged before use, after one has failed.
    pub fn suspect_idle(&self) {
        lock(&self.0).suspect = Some(Instant::now());
    }

    /// Marks connections that have not answered since `then` as dead.
    pub fn dead_since(&self, then: Instant) {
        let mut verdicts = lock(&self.0);
        verdicts.dead = verdicts.dead.max(Some(then));
    }
}

#[derive(Debug)]
pub struct Sessions {
    hosts: Hosts,
    /// Settings of this pool's sessions, in addition to [`SETTINGS`].
    settings: &'static [&'static str],
    pub outages: Arc<Outages>,
}

impl Manager for Sessions {
    type Type = Session;
    type Error = sqlx::Error;

    async fn create(&self) -> Result<Session, sqlx::Error> {
        let connecting = async {
            let mut connection = self.hosts.connect().await?;
            raw_sql(SETTINGS).execute(&mut connection).await?;
            for settings in self.settings {
                raw_sql(*settings).execute(&mut connection).await?;
            }
            Ok(connection)
        };
        let connected = timeout(CONNECT_LIMIT, connecting)
            .await
            .unwrap_or_else(|_elapsed| Err(timed_out("connect")));
        Ok(Session {
            connection: connected.inspect_err(|_| self.outages.suspect_idle())?,
            answered: Instant::now(),
            ready: true,
        })
    }

    async fn recycle(
        &self,
        session: &mut Session,
        metrics: &Metrics,
    ) -> RecycleResult<sqlx::Error> {
        let Verdicts { suspect, dead } = *lock(&self.outages.0);
        let idle = session.answered.elapsed();
        let unheard = |since: Option<Instant>| since.is_some_and(|at| session.answered <= at);
        if !session.ready || unheard(dead) || idle > MAX_IDLE || metrics.age() > MAX_AGE {
            return Err(RecycleError::message("not to be used again"));
        }
        if idle > PROBE_AFTER || unheard(suspect) {
            let asked = Instant::now();
            match timeout(PROBE_LIMIT, session.connection.ping()).await {
                Ok(Ok(())) => session.finished(),
                Ok(Err(error)) => {
                    self.outages.suspect_idle();
                    return Err(error.into());
                }
                // Pinging the other connections of this age would take as long each.
                Err(_elapsed) => {
                    self.outages.dead_since(asked);
                    return Err(timed_out("probe").into());
                }
            }
        }
        Ok(())
    }
}
