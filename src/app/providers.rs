//! Creates adapters from the configuration.

use super::AppError;
use crate::{
    config::{Config, Provider},
    domain::{clock::SharedClock, limiter::Limiter, share::share},
    providers::{Registry, Setup, VENDORS, http::HttpClient},
};

pub(super) fn registry(
    config: &Config,
    providers: Vec<Provider>,
    http: &HttpClient,
    clock: &SharedClock,
) -> Result<Registry, AppError> {
    let mut registry = Registry::default();
    for provider in providers {
        let models = provider.models.iter();
        let setup = Setup {
            name: provider.name.clone(),
            http: http.clone(),
            base_url: provider.base_url.map(String::from).unwrap_or_default(),
            api_key: provider.api_key,
            timeout: provider.timeout,
            poll_interval: *config.jobs.poll_interval_ms,
            clock: clock.clone(),
            models: models
                .map(|model| (model.id.clone(), model.settings.clone()))
                .collect(),
        };
        let base_url = setup.base_url.clone();
        registry.base_urls.insert(provider.name.clone(), base_url);
        let calls = provider.max_concurrent;
        let per_account = share(*config.server.account_share_percent, calls);
        // At most as many wait as there are workers.
        let waiters = (usize::MAX, usize::MAX);
        let limiter = Limiter::with_queue((calls, per_account), waiters);
        registry.limiters.insert(provider.name.clone(), limiter);
        let kind = provider.vendor.kind;
        for adapters in VENDORS.iter().filter(|other| other.vendor.kind == kind) {
            (adapters.add)(&mut registry, &setup).map_err(|source| AppError::Provider {
                name: provider.name.clone(),
                source,
            })?;
        }
    }
    Ok(registry)
}
