//! Applies the catalogue of a changed configuration to the running server.

use std::sync::{Arc, Mutex};

use tokio::task::spawn_blocking;
use toml::Table;

use super::{AppError, providers};
use crate::{
    config::{Config, Provider},
    domain::{clock::SharedClock, lock::lock},
    jobs::Adapters,
    providers::http::HttpClient,
    service::Service,
};

/// Applies changed catalogues. Cheap to clone.
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
    /// The served providers, including models that earlier reloads removed.
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
    /// Returns the changed settings that need a restart; `None` if nothing has changed.
    pub fn run(&self) -> Result<Option<Vec<String>>, AppError> {
        let inner = &self.0;
        let mut applied = lock(&inner.applied);
        let new = inner.config.reload(&applied.providers)?;
        if new.settings == applied.settings {
            return Ok(None);
        }
        let served = new.providers.clone();
        let registry = providers::registry(&inner.config, served, &inner.http, &inner.clock)?;
        for warning in &new.warnings {
            tracing::warn!("{warning}");
        }
        // Adapters first: no request may use an adapter that lacks its model.
        inner.adapters.store(Arc::new(registry));
        inner.service.replace_catalogue(&new.catalogue);
        *applied = Applied {
            providers: new.providers,
            settings: new.settings,
        };
        let models = new.catalogue.models().len();
        tracing::info!(models, "the catalogue was reloaded");
        if !new.needs_restart.is_empty() {
            let settings = new.needs_restart.join(", ");
            tracing::warn!("restart the server to apply the changes to {settings}");
        }
        Ok(Some(new.needs_restart))
    }

    /// As [`Self::run`], off the async threads; logs the result.
    pub(super) async fn run_logged(self) {
        match spawn_blocking(move || self.run()).await {
            Ok(Ok(Some(_))) => {}
            Ok(Ok(None)) => tracing::info!("the configuration has not changed"),
            Ok(Err(error)) => tracing::error!("the catalogue was not reloaded: {error}"),
            Err(error) => tracing::error!(%error, "the reload of the catalogue panicked"),
        }
    }
}
