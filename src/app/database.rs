//! Opens the Postgres of `DATABASE_URL`, or a private one.

use std::{sync::Arc, time::Duration};

use secrecy::ExposeSecret as _;

use super::AppError;
use crate::{
    config::Config,
    domain::clock::{ClockReading, DatabaseClock, SharedClock, machine_time},
    local_postgres::{LocalPostgres, Role},
    store::{Connections, Hosts, Store, StoreError},
};

/// Maximum wait for busy connections at the end of a command.
const PATIENCE: Duration = Duration::from_secs(3);

pub struct Database {
    pub store: Store,
    pub clock: SharedClock,
    pub local: Option<LocalPostgres>,
}

impl Database {
    /// Connects. Starts a private Postgres if `DATABASE_URL` is not set.
    pub async fn open(config: &Config, role: Role, schema: Schema) -> Result<Self, AppError> {
        let (hosts, local) = match &config.database.url {
            Some(url) => (url.expose_secret().parse::<Hosts>()?, None),
            None => {
                let local = LocalPostgres::open(&config.data.dir, role).await?;
                (local.url().parse()?, Some(local))
            }
        };
        let store = Store::connect_lazy(hosts.clone(), connections(config));
        match ready(&store, local.is_some(), schema).await {
            Ok(reading) => Ok(Self {
                store,
                clock: Arc::new(DatabaseClock::new(machine_time, &reading)),
                local,
            }),
            Err(error) => {
                let error = explain(error, &hosts, local.as_ref().map(|_| config));
                close(&store, local).await?;
                Err(error)
            }
        }
    }

    /// Closes the connections, and stops the private Postgres unless others use it.
    pub async fn close(self) -> Result<(), AppError> {
        close(&self.store, self.local).await
    }
}

/// How to treat a schema that is older than this version's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schema {
    Migrate,
    /// Refuse it, except in an empty database.
    Expect,
}

/// Divides the connections of a server among their uses.
pub fn connections(config: &Config) -> Connections {
    let settings = &config.database;
    let (credits, locked) = (*settings.credit_connections, *settings.locked_connections);
    let (keys, jobs) = (*settings.key_connections, *settings.job_connections);
    let (heartbeat, walks, listening) = (1, 1, 1);
    let taken = credits + locked + keys + jobs + heartbeat + walks + listening;
    Connections {
        requests: settings.max_connections.saturating_sub(taken).max(2),
        credits,
        locked,
        keys,
        jobs,
        acquire_timeout: *settings.acquire_timeout_ms,
    }
}

async fn ready(store: &Store, private: bool, schema: Schema) -> Result<ClockReading, StoreError> {
    if !private && store.shares_sessions().await? {
        return Err(StoreError::SharedSessions);
    }
    match schema {
        Schema::Migrate => store.migrate().await?,
        Schema::Expect => store.expect_schema().await?,
    }
    ClockReading::of(store.time()).await
}

/// Adds advice to the error of a start. `private`: the configuration, if Postgres is a private one.
fn explain(error: StoreError, hosts: &Hosts, private: Option<&Config>) -> AppError {
    let Some(obstacle) = error.obstacle() else {
        return error.into();
    };
    let verb = if obstacle.reached { "use" } else { "reach" };
    let (place, advice) = match private {
        Some(config) => {
            let folder = config.data.dir.display();
            let advice = format!(": read {folder}/postgres.log");
            (format!("the private Postgres in {folder}"), advice)
        }
        None => {
            let place = format!("Postgres at {}", hosts.places());
            let advice = if obstacle.at_the_door {
                ": check DATABASE_URL"
            } else {
                ""
            };
            (place, advice.to_owned())
        }
    };
    AppError::Database {
        verb,
        place,
        cause: obstacle.cause,
        advice,
    }
}

async fn close(store: &Store, local: Option<LocalPostgres>) -> Result<(), AppError> {
    store.close(PATIENCE).await;
    if let Some(local) = local {
        local.close().await?;
    }
    Ok(())
}
