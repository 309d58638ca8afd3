//! Connections to the database, and the statements that run on them.
//!
//! Every statement has a name, by which logs and traces know it, and a time limit. A connection goes
//! back to the pool only when its statement was answered in full: one that was not may be dead,
//! and to find out by asking it would take its place in the pool for as long as it is silent.

mod call;
mod session;
mod transaction;

use std::{io, sync::Arc, time::Duration};

use deadpool::managed::{self, Object, PoolError, QueueMode};
use tokio::time::{sleep, timeout};

pub use call::{Call, statement_span};
pub use session::{CONNECT_LIMIT, Outages, PROBE_LIMIT, SETTINGS};
pub use transaction::Transaction;

use super::Hosts;
use session::Sessions;

/// How long a statement may take as seen from here: a host that vanished answers nothing, and
/// whoever asked is to learn of it within seconds. Longer than `lock_timeout`.
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// The first and the longest pause before a server that is starting is tried again.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// How often a pool that is closing is checked.
const CLOSE_PAUSE: Duration = Duration::from_millis(10);

/// Connections for one purpose, made when they are first needed.
#[derive(Debug, Clone)]
pub struct Pool {
    connections: managed::Pool<Sessions>,
    acquire_timeout: Duration,
}

impl Pool {
    /// At most `size` connections to `hosts`, with `settings` made on each. A call waits at most
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
            // What was used last is the likeliest to be alive; the rest may grow old and go.
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

    /// A call whose statement has this name.
    pub fn named(&self, name: &'static str) -> Call<'_> {
        Call::new(self, name, CALL_LIMIT)
    }

    /// A connection that is the caller's own for good. Not bounded by the pool any more.
    pub async fn detach(&self) -> Result<sqlx::PgConnection, sqlx::Error> {
        Ok(Object::take(self.acquire().await?).connection)
    }

    /// The connections at work, and the idle ones.
    pub fn usage(&self) -> (u32, u32) {
        let status = self.connections.status();
        let count = |connections| u32::try_from(connections).unwrap_or(u32::MAX);
        (
            count(status.size - status.available),
            count(status.available),
        )
    }

    /// Closes idle connections at once, and the others when they are no longer needed.
    pub async fn close(&self) {
        self.connections.close();
        while self.connections.status().size > 0 {
            sleep(CLOSE_PAUSE).await;
        }
    }

    async fn acquire(&self) -> Result<Object<Sessions>, sqlx::Error> {
        // What was in the way tells more than that the time is over.
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

/// Whether a connection could not be made because the server is about to be there, or has to
/// notice first that others were closed.
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
