//! The providers of a server, ready to be called.

use std::{collections::BTreeMap, sync::Arc};

use super::{ImageProvider, SpeechProvider, TextProvider, VideoProvider};
use crate::domain::limiter::{Limiter, Permit};

/// The providers of this server, by name and modality.
#[derive(Default, Clone)]
pub struct Registry {
    pub text: BTreeMap<String, Arc<dyn TextProvider>>,
    pub image: BTreeMap<String, Arc<dyn ImageProvider>>,
    pub speech: BTreeMap<String, Arc<dyn SpeechProvider>>,
    pub video: BTreeMap<String, Arc<dyn VideoProvider>>,
    /// How many calls each may have at once from this process, by provider.
    pub limiters: BTreeMap<String, Limiter>,
    /// The base URL of each, by provider.
    pub base_urls: BTreeMap<String, String>,
}

/// One call to a provider, while it lasts; `None` inside where the provider has no limit.
#[derive(Debug)]
pub struct ProviderPermit(#[expect(dead_code, reason = "held, not read")] Option<Permit>);

impl Registry {
    /// A permit for a call to `provider`, or `None` where it is at its limit.
    pub fn try_acquire(&self, provider: &str) -> Option<ProviderPermit> {
        let permit = match self.limiters.get(provider) {
            Some(limiter) => Some(limiter.try_acquire(())?),
            None => None,
        };
        Some(ProviderPermit(permit))
    }
}
