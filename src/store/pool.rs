//! Connections to the database, and the statements that run on them.
//!
//! Every statement has a name, for logs and traces, and a time limit. A connection returns to the
//! pool only after a complete answer. Otherwise it is closed: pinging a dead connection would block
//! its pool slot.

mod call;
mod session;

use std::{io, sync::Arc, time::Duration};

use deadpool::managed::{self, Object, PoolError, QueueMode};
use tokio::time::{sleep, timeout};

pub use call::{Call, Transaction, statement_span};
pub use session::{CONNECT_LIMIT, Outages, PROBE_LIMIT, SETTINGS};

use super::Hosts;
use session::Sessions;

/// Time limit of a statement, so that a lost host is noticed within seconds. Longer than
/// `lock_timeout`.
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// The first and the longest backoff while the server is starting.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// Between two checks of a pool that is closing.
const CLOSE_PAUSE: Duration = Duration::from_millis(10);

/// Connections for one purpose, made on demand.
#[derive(Debug, Clone)]
pub struct Pool {
    connections: managed::Pool<Sessions>,
    acquire_timeout: Duration,
}

impl Pool {
    /// At most `size` connections to `hosts`, each with `settings`. A call waits at most
    /// `acquire_timeout` for one.
    pub fn new(
        hosts: Hosts,
        settings: &'static [&'static str],
        size: u32,
        acquire_timeout: Duration,
        outages: Arc<Outages>,
    ) -> Self {
        let connections = managed::Pool::builder(Sessions::new(hosts, settings, outages))
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
    pub async fn detach(&self) -> Result<sqlx::PgConnection, sqlx::Error> {
        Ok(Object::take(self.acquire().await?).connection)
    }

    /// Busy and idle connections.
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
        // The last refusal explains more than a timeout.
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

/// Whether the server is starting, or has not yet noticed that other connections were closed.
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
