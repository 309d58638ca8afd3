//! Caches recently read API keys, so that their requests start before the key is read again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use chrono::{DateTime, TimeDelta, Utc};

use crate::{
    domain::{ids::AccountId, lock::lock, token::TokenDigest},
    store::keys::AuthenticatedKey,
};

/// How long a key stays in the cache.
const PERIOD: TimeDelta = TimeDelta::seconds(15);
/// Maximum number of keys, of half a KiB each, or some KiB if their account has defaults.
const MAX_KEYS: usize = 16_384;

/// Keys, and when they were read.
type Keys = HashMap<TokenDigest, (Arc<AuthenticatedKey>, DateTime<Utc>)>;

#[derive(Debug, Default)]
pub struct KeyCache(Mutex<Keys>);

impl KeyCache {
    /// Adds a key whose request was let through.
    pub fn insert(&self, digest: TokenDigest, key: Arc<AuthenticatedKey>, now: DateTime<Utc>) {
        let mut keys = lock(&self.0);
        if keys.len() >= MAX_KEYS {
            keys.retain(|_, (_, at)| is_fresh(*at, now));
        }
        if keys.len() < MAX_KEYS {
            keys.insert(digest, (key, now));
        }
    }

    pub fn remove(&self, digest: &TokenDigest) {
        lock(&self.0).remove(digest);
    }

    /// Removes all keys of an account.
    pub fn remove_account(&self, account: AccountId) {
        lock(&self.0).retain(|_, (key, _)| key.account_id != account);
    }

    pub fn get(&self, digest: &TokenDigest, now: DateTime<Utc>) -> Option<Arc<AuthenticatedKey>> {
        let keys = lock(&self.0);
        let (key, at) = keys.get(digest)?;
        let is_alive = key.expires_at.is_none_or(|at| at > now);
        (is_fresh(*at, now) && is_alive).then(|| Arc::clone(key))
    }
}

fn is_fresh(at: DateTime<Utc>, now: DateTime<Utc>) -> bool {
    (TimeDelta::zero()..PERIOD).contains(&(now - at))
}
