//! Adapters and their settings.

use std::{any::Any, collections::BTreeMap, time::Duration};

use secrecy::SecretString;

use super::{
    Registry,
    http::{HttpClient, SetupError, VendorClient},
};
use crate::{
    catalogue::vendor::{SharedSettings, Vendor},
    domain::clock::SharedClock,
};

/// Address, credentials and model settings of a provider.
#[derive(Clone)]
pub struct Setup {
    /// Its name in our API and in the log.
    pub name: String,
    pub http: HttpClient,
    /// Base URL with or without a version path; empty for the sandbox.
    pub base_url: String,
    /// `None` for the sandbox and for servers that need no key.
    pub api_key: Option<SecretString>,
    /// Maximum duration of a call, from connecting to the last byte.
    pub timeout: Duration,
    /// Interval between two polls of a task within one call.
    pub poll_interval: Duration,
    pub clock: SharedClock,
    pub models: BTreeMap<String, SharedSettings>,
}

/// The adapter of a vendor for one modality.
#[derive(Debug, Clone)]
pub struct Adapter<S> {
    pub client: VendorClient,
    pub models: BTreeMap<String, S>,
}

impl<S: Any + Clone> Adapter<S> {
    /// Creates an adapter for models with settings of type `S`. `client` builds the client of their
    /// API.
    pub fn new(
        setup: &Setup,
        client: fn(&Setup) -> Result<VendorClient, SetupError>,
    ) -> Result<Self, SetupError> {
        let of_type = |(id, settings): (&String, &SharedSettings)| {
            let settings: &dyn Any = &**settings;
            Some((id.clone(), settings.downcast_ref::<S>()?.clone()))
        };
        Ok(Self {
            client: client(setup)?,
            models: setup.models.iter().filter_map(of_type).collect(),
        })
    }

    /// Returns the settings of a model, or the defaults.
    pub fn settings(&self, model: &str) -> S
    where
        S: Default,
    {
        self.models.get(model).cloned().unwrap_or_default()
    }
}

#[derive(Debug)]
pub struct Adapters {
    pub vendor: Vendor,
    /// Adds a provider's adapters to the registry.
    pub add: fn(&mut Registry, &Setup) -> Result<(), SetupError>,
}
