//! What every adapter is made from.

use std::{any::Any, collections::BTreeMap, time::Duration};

use secrecy::SecretString;

use super::{
    Registry,
    http::{HttpClient, SetupError},
};
use crate::domain::{
    clock::SharedClock,
    vendor::{SharedSettings, Vendor},
};

/// How a provider is reached, and how its models are asked.
#[derive(Clone)]
pub struct Setup {
    /// Its name in our API and in the log.
    pub name: String,
    /// The client of all adapters.
    pub http: HttpClient,
    /// Where it is, with the version path or without; empty for the sandbox.
    pub base_url: String,
    /// Its key; none for the sandbox and for servers that need none.
    pub api_key: Option<SecretString>,
    /// Bounds one call from connecting to the last byte.
    pub timeout: Duration,
    /// The time, for an adapter that lets some pass.
    pub clock: SharedClock,
    /// The settings of its models, by model id.
    pub models: BTreeMap<String, SharedSettings>,
}

impl Setup {
    /// The key of a vendor that is never called without one.
    pub(super) fn key(&self) -> SecretString {
        self.api_key.clone().unwrap_or_default()
    }

    /// The settings of the models that have these, which are those of one adapter.
    pub(super) fn models<S: Any + Clone>(&self) -> BTreeMap<String, S> {
        let of_type = |(id, settings): (&String, &SharedSettings)| {
            let settings: &dyn Any = &**settings;
            Some((id.clone(), settings.downcast_ref::<S>()?.clone()))
        };
        self.models.iter().filter_map(of_type).collect()
    }
}

/// A vendor and its adapters.
#[derive(Debug)]
pub struct Adapters {
    /// What the configuration has to know of it.
    pub vendor: Vendor,
    /// Adds its adapters of a provider to those of the server.
    pub add: fn(&mut Registry, &Setup) -> Result<(), SetupError>,
}
