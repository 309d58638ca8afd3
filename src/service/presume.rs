//! Keys that were read a moment ago, whose requests need no reading of their own.
//!
//! A request by such a key begins as if it were still good. If it places a hold, the hold's
//! statement looks at the key again and counts the request; if it ends without one,
//! [`Service::settle_presumed`] does so before it is answered. So nothing is done or told for a key
//! that has ended, on any server, and every request counts once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chrono::{DateTime, TimeDelta, Utc};

use super::{
    Service, ServiceError,
    auth::{Authenticated, Caller},
};
use crate::{
    domain::token::{BearerToken, TokenDigest},
    store::keys::{AuthenticatedKey, Presumed},
};

/// For how long a key is presumed to be as it was read.
const PERIOD: TimeDelta = TimeDelta::seconds(15);
/// Keys that are remembered: some megabytes.
const MOST: usize = 16_384;

/// What was read, and when.
type Read = HashMap<TokenDigest, (Arc<AuthenticatedKey>, DateTime<Utc>)>;

#[derive(Debug, Default)]
pub struct ReadKeys(Mutex<Read>);

impl ReadKeys {
    /// Remembers a key whose request was let through.
    pub fn remember(&self, digest: TokenDigest, key: Arc<AuthenticatedKey>, now: DateTime<Utc>) {
        let mut keys = self.lock();
        if keys.len() >= MOST {
            keys.clear();
        }
        keys.insert(digest, (key, now));
    }

    fn forget(&self, digest: &TokenDigest) {
        self.lock().remove(digest);
    }

    fn get(&self, digest: &TokenDigest, now: DateTime<Utc>) -> Option<Arc<AuthenticatedKey>> {
        let keys = self.lock();
        let (key, at) = keys.get(digest)?;
        let is_fresh = (TimeDelta::zero()..PERIOD).contains(&(now - at));
        let is_alive = key.expires_at.is_none_or(|at| at > now);
        (is_fresh && is_alive).then(|| Arc::clone(key))
    }

    fn lock(&self) -> MutexGuard<'_, Read> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service {
    /// The caller by a key that was read a moment ago.
    pub fn presume(&self, token: &str) -> Option<Caller> {
        let Some(BearerToken::ApiKey(digest)) = BearerToken::parse(token) else {
            return None;
        };
        let key = self.0.read_keys.get(&digest, self.0.clock.now())?;
        let presumed = Presumed::new(digest, Arc::clone(&key))?;
        let mut caller = Caller::of_key(&key);
        caller.presumed = Some(Arc::new(presumed));
        Some(caller)
    }

    /// Reads the key of a request that has placed no hold, and counts the request.
    pub async fn settle_presumed(
        &self,
        presumed: &Presumed,
    ) -> Result<Authenticated, ServiceError> {
        self.0.read_keys.forget(&presumed.digest);
        let known = self.authenticate_key(presumed.digest).await?;
        presumed.count(known.rate);
        match known.rate.retry_after_seconds {
            Some(_) => Err(ServiceError::RateLimited(known.rate)),
            None => Ok(known),
        }
    }

    /// Has the next request of a key read it.
    pub(super) fn forget_presumed(&self, caller: &Caller) {
        if let Some(presumed) = &caller.presumed {
            self.0.read_keys.forget(&presumed.digest);
        }
    }
}
