//! Applies the catalogue of a changed configuration to the running server.

use std::sync::{Arc, Mutex, PoisonError};

use toml::Table;

use super::{AppError, providers};
use crate::{
    config::{Config, Provider},
    domain::clock::SharedClock,
    jobs::Adapters,
    providers::http::HttpClient,
    service::Service,
};

/// Cheap to clone.
#[derive(Clone)]
pub struct Reload(Arc<Inner>);

struct Inner {
    config: Config,
    service: Service,
    adapters: Adapters,
    http: HttpClient,
    clock: SharedClock,
    /// Locked while a reload runs.
    applied: Mutex<Applied>,
}

struct Applied {
    /// The providers that are served, with each model that was ever served.
    providers: Vec<Provider>,
    settings: Table,
}

impl Reload {
    pub(super) fn new(
        config: &Config,
        service: Service,
        adapters: Adapters,
        http: HttpClient,
        clock: SharedClock,
    ) -> Self {
        Self(Arc::new(Inner {
            config: config.clone(),
            service,
            adapters,
            http,
            clock,
            applied: Mutex::new(Applied {
                providers: config.enabled_providers(),
                settings: config.settings().clone(),
            }),
        }))
    }

    /// Reads the configuration again and applies its catalogue. Changes nothing if it is invalid.
    /// Returns the changed settings that need a restart.
    pub fn run(&self) -> Result<Vec<String>, AppError> {
        let inner = &self.0;
        let applied = inner.applied.lock();
        let mut applied = applied.unwrap_or_else(PoisonError::into_inner);
        let new = inner.config.reload(&applied.providers)?;
        if new.settings == applied.settings {
            tracing::info!("the configuration has not changed");
            return Ok(new.needs_restart);
        }
        let share = *inner.config.server.account_share_percent;
        let registry = providers::registry(&new.providers, share, &inner.http, &inner.clock)?;
        for warning in &new.warnings {
            tracing::warn!("{warning}");
        }
        // The adapters first: no request may have a model that they do not know.
        inner.adapters.replace(&registry);
        inner.service.replace_catalogue(&new.catalogue);
        *applied = Applied {
            providers: new.providers,
            settings: new.settings,
        };
        let models = new.catalogue.models().len();
        tracing::info!(models, "the catalogue was reloaded");
        if !new.needs_restart.is_empty() {
            let settings = new.needs_restart.join(", ");
            tracing::warn!("restart the server to apply the changes of {settings}");
        }
        Ok(new.needs_restart)
    }

    /// As [`Self::run`]; logs an error.
    pub(super) fn run_logged(&self) {
        if let Err(error) = self.run() {
            tracing::error!("the catalogue was not reloaded: {error}");
        }
    }
}
