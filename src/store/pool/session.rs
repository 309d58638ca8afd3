//! Making connections, and deciding which of the idle ones may still be used.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use deadpool::managed::{Manager, Metrics, RecycleError, RecycleResult};
use sqlx::{Connection as _, PgConnection, raw_sql};
use tokio::time::{Instant, timeout};

use super::{super::Hosts, timed_out};

/// How long a connection may take to be made.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(3);
/// How long the answer to a probe may take.
pub const PROBE_LIMIT: Duration = Duration::from_secs(1);
/// A connection that was idle for longer is probed before it is used.
const PROBE_AFTER: Duration = Duration::from_secs(1);
/// One that was idle for longer is replaced: something in between may have forgotten it.
const MAX_IDLE: Duration = Duration::from_mins(10);
/// So is one that is older: sessions of the server grow with what they have done.
const MAX_AGE: Duration = Duration::from_mins(30);

/// What must hold whatever the server's defaults are. What a request does takes milliseconds;
/// what takes longer is stuck behind somebody else's work. The last lines let the server notice
/// that this host has vanished. The other direction cannot be had in the same way, because sqlx
/// sets no options on its sockets: time limits and probes stand in for it.
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

#[derive(Debug)]
pub struct Session {
    pub connection: PgConnection,
    /// When the server last answered on it.
    answered: Instant,
    /// Whether nothing is under way on it.
    ready: bool,
}

impl Session {
    /// Notes that what was asked was answered in full.
    pub fn finished(&mut self) {
        self.answered = Instant::now();
        self.ready = true;
    }

    /// Notes that something is asked.
    pub fn started(&mut self) {
        self.ready = false;
    }
}

/// What the failures of some connections say about others, which have not been used since:
/// where a host has vanished, all are dead. Shared by all pools to one database.
#[derive(Debug, Default)]
pub struct Outages(Mutex<Verdicts>);

#[derive(Debug, Default, Clone, Copy)]
struct Verdicts {
    /// What has not answered since then may be dead.
    suspect: Option<Instant>,
    /// What has not answered since then is dead.
    dead: Option<Instant>,
}

impl Outages {
    /// Notes that a connection has failed.
    pub fn suspect_idle(&self) {
        self.lock().suspect = Some(Instant::now());
    }

    /// Notes that connections which have not answered since then are dead.
    pub fn dead_since(&self, then: Instant) {
        let mut verdicts = self.lock();
        verdicts.dead = verdicts.dead.max(Some(then));
    }

    fn verdicts(&self) -> Verdicts {
        *self.lock()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Verdicts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub struct Sessions {
    hosts: Hosts,
    /// What holds for the sessions of this pool, beside what holds for all.
    settings: &'static [&'static str],
    pub outages: Arc<Outages>,
}

impl Sessions {
    pub fn new(hosts: Hosts, settings: &'static [&'static str], outages: Arc<Outages>) -> Self {
        Self {
            hosts,
            settings,
            outages,
        }
    }
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
        let Verdicts { suspect, dead } = self.outages.verdicts();
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
                // Others as old would each take as long to tell.
                Err(_elapsed) => {
                    self.outages.dead_since(asked);
                    return Err(timed_out("probe").into());
                }
            }
        }
        Ok(())
    }
}
