//! Which Postgres: the one that `DATABASE_URL` names, or a private one.

use std::{str::FromStr as _, time::Duration};

use secrecy::ExposeSecret as _;
use sqlx::postgres::PgConnectOptions;

use super::AppError;
use crate::{
    config::Config,
    local_postgres::{LocalPostgres, Role},
    store::Store,
};

/// How long busy connections are waited for at the end of a command.
const PATIENCE: Duration = Duration::from_secs(3);

/// An open database.
pub struct Database {
    /// The store over it.
    pub store: Store,
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
        let settings = &config.database;
        let store = Store::connect_lazy(
            options,
            *settings.max_connections,
            *settings.acquire_timeout,
        );
        let database = Self { store, local };
        match database.store.migrate().await {
            Ok(()) => Ok(database),
            Err(error) => {
                database.close().await?;
                Err(error.into())
            }
        }
    }

    /// Closes the connections, and stops the private cluster unless others use it.
    pub async fn close(self) -> Result<(), AppError> {
        self.store.close(PATIENCE).await;
        if let Some(local) = self.local {
            local.close().await?;
        }
        Ok(())
    }
}
