//! The providers of a server.

use std::{collections::BTreeMap, sync::Arc};

use super::{ImageProvider, Setup, SpeechProvider, TextProvider, VideoProvider};
use crate::domain::{
    ids::AccountId,
    limiter::{Limiter, Permit},
};

/// The providers of this server, by name and modality.
#[derive(Default, Clone)]
pub struct Registry {
    pub text: BTreeMap<String, Arc<dyn TextProvider>>,
    pub image: BTreeMap<String, Arc<dyn ImageProvider>>,
    pub speech: BTreeMap<String, Arc<dyn SpeechProvider>>,
    pub video: BTreeMap<String, Arc<dyn VideoProvider>>,
    /// Limits of this process's concurrent calls, by provider, in total and per account.
    pub limiters: BTreeMap<String, Limiter<AccountId>>,
    pub base_urls: BTreeMap<String, String>,
}

/// A permit for one running call to a provider; `None` inside if the provider has no limit.
#[derive(Debug)]
pub struct ProviderPermit(
    #[expect(dead_code, reason = "held, not read")] Option<Permit<AccountId>>,
);

impl Registry {
    pub fn add_text(&mut self, setup: &Setup, adapter: impl TextProvider + 'static) {
        self.text.insert(setup.name.clone(), Arc::new(adapter));
    }

    pub fn add_image(&mut self, setup: &Setup, adapter: impl ImageProvider + 'static) {
        self.image.insert(setup.name.clone(), Arc::new(adapter));
    }

    pub fn add_speech(&mut self, setup: &Setup, adapter: impl SpeechProvider + 'static) {
        self.speech.insert(setup.name.clone(), Arc::new(adapter));
    }

    pub fn add_video(&mut self, setup: &Setup, adapter: impl VideoProvider + 'static) {
        self.video.insert(setup.name.clone(), Arc::new(adapter));
    }

    /// Returns a permit for a call of `account`; `None` if the provider or account is at its limit.
    pub fn try_acquire(&self, provider: &str, account: AccountId) -> Option<ProviderPermit> {
        let permit = match self.limiters.get(provider) {
            Some(limiter) => Some(limiter.try_acquire(account)?),
            None => None,
        };
        Some(ProviderPermit(permit))
    }

    /// As [`Self::try_acquire`], but waits for the account's turn.
    pub async fn acquire(&self, provider: &str, account: AccountId) -> Option<ProviderPermit> {
        let permit = match self.limiters.get(provider) {
            Some(limiter) => Some(limiter.acquire(account, 1).await?),
            None => None,
        };
        Some(ProviderPermit(permit))
    }

    /// Returns the account's share of the calls to `provider`, if it is used up.
    pub fn reached_share(&self, provider: &str, account: AccountId) -> Option<usize> {
        let limiter = self.limiters.get(provider)?;
        let share = limiter.per_key();
        (share < limiter.total() && limiter.held_by(account) >= share).then_some(share)
    }
}
