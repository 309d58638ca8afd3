//! Which Postgres: the one that `DATABASE_URL` names, or a private one.

use std::{str::FromStr as _, sync::Arc, time::Duration};

use secrecy::ExposeSecret as _;
use sqlx::postgres::PgConnectOptions;

use super::AppError;
use crate::{
    config::Config,
    domain::clock::{ClockReading, DatabaseClock, SharedClock, machine_time},
    local_postgres::{LocalPostgres, Role},
    store::{Connections, Store, StoreError},
};

/// How long busy connections are waited for at the end of a command.
const PATIENCE: Duration = Duration::from_secs(3);

pub struct Database {
    /// The store over it.
    pub store: Store,
    pub clock: SharedClock,
    /// The private cluster, if it is one.
    pub local: Option<LocalPostgres>,
}

impl Database {
    /// Connects, starting a private cluster where no other is named, and brings the schema up
    /// to date.
    pub async fn open(config: &Config, role: Role) -> Result<Self, AppError> {
        let (options, local) = match config.database_url() {
            Some(url) => {
                let options = PgConnectOptions::from_str(url.expose_secret());
                (options.map_err(|_| AppError::DatabaseUrl)?, None)
            }
            None => {
                let local = LocalPostgres::open(&config.data.dir, role).await?;
                let options = PgConnectOptions::from_str(local.url());
                (options.map_err(|_| AppError::DatabaseUrl)?, Some(local))
            }
        };
        let store = Store::connect_lazy(options.clone(), connections(config));
        match ready(&store).await {
            Ok(reading) => Ok(Self {
                store,
                clock: Arc::new(DatabaseClock::new(machine_time, &reading)),
                local,
            }),
            Err(error) => {
                let explained = explained(error, &options, local.as_ref().map(|_| config));
                close(&store, local).await?;
                Err(explained)
            }
        }
    }

    /// Closes the connections, and stops the private cluster unless others use it.
    pub async fn close(self) -> Result<(), AppError> {
        close(&self.store, self.local).await
    }
}

/// How the connections of a server are shared out.
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
        acquire_timeout: *settings.acquire_timeout,
    }
}

/// Brings the schema up to date and reads the clock.
async fn ready(store: &Store) -> Result<ClockReading, StoreError> {
    store.migrate().await?;
    ClockReading::of(store.time()).await
}

/// The error of a start, with what the operator needs to mend it. `private`: the configuration of
/// a private Postgres.
fn explained(error: StoreError, options: &PgConnectOptions, private: Option<&Config>) -> AppError {
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
            let host = match options.get_socket() {
                Some(socket) => socket.display().to_string(),
                None => options.get_host().to_owned(),
            };
            let place = format!("Postgres at {host}:{}", options.get_port());
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
