//! Keys that were read a moment ago, whose requests need no reading of their own.
//!
//! A request by such a key begins as if it were still good. If it places a hold, the hold's
//! statement looks at the key again and counts the request; if it ends without one,
//! [`Service::settle_presumed`] does so before it is answered. So nothing is done or told for a key
//! that has ended, on any server, and every request counts once, also if its sender hangs up.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::oneshot;

use super::{
    Service, ServiceError,
    auth::{Authenticated, Caller},
};
use crate::{
    domain::{
        ids::AccountId,
        token::{BearerToken, TokenDigest},
    },
    store::keys::{AuthenticatedKey, Presumed},
};

/// For how long a key is presumed to be as it was read.
const PERIOD: TimeDelta = TimeDelta::seconds(15);
/// Keys that are remembered, of half a KiB each, or some KiB where their account has defaults.
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
            keys.retain(|_, (_, at)| is_fresh(*at, now));
        }
        if keys.len() < MOST {
            keys.insert(digest, (key, now));
        }
    }

    fn forget(&self, digest: &TokenDigest) {
        self.lock().remove(digest);
    }

    /// Forgets all keys of an account.
    pub fn forget_account(&self, account: AccountId) {
        self.lock().retain(|_, (key, _)| key.account_id != account);
    }

    fn get(&self, digest: &TokenDigest, now: DateTime<Utc>) -> Option<Arc<AuthenticatedKey>> {
        let keys = self.lock();
        let (key, at) = keys.get(digest)?;
        let is_alive = key.expires_at.is_none_or(|at| at > now);
        (is_fresh(*at, now) && is_alive).then(|| Arc::clone(key))
    }

    fn lock(&self) -> MutexGuard<'_, Read> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_fresh(at: DateTime<Utc>, now: DateTime<Utc>) -> bool {
    (TimeDelta::zero()..PERIOD).contains(&(now - at))
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
        presumed.set_counting(true);
        let (service, digest) = (self.clone(), presumed.digest);
        let (read, reading) = oneshot::channel();
        // Completes also if the caller hangs up.
        self.0.runner.spawn(async move {
            let _ = read.send(service.authenticate_key(digest).await);
        });
        let ended = |_| ServiceError::Internal("reading a key ended without a result".to_owned());
        let reading = reading.await.unwrap_or_else(|error| Err(ended(error)));
        presumed.settle(reading.as_ref().ok().map(|known| known.rate));
        let known = reading?;
        match known.rate.retry_after_seconds {
            Some(_) => Err(ServiceError::RateLimited(known.rate)),
            None => Ok(known),
        }
    }

    /// The caller after its key was read and its request counted, before work that is not to be done
    /// for a key that has ended or is over its limit.
    pub async fn confirmed(&self, caller: &Caller) -> Result<Caller, ServiceError> {
        match caller.presumed().filter(|presumed| presumed.is_open()) {
            None => Ok(caller.clone()),
            Some(presumed) => {
                let known = self.settle_presumed(presumed).await?;
                known.caller.require_active()?;
                Ok(known.caller)
            }
        }
    }

    /// Counts a request whose caller hung up.
    pub fn count_dropped(&self, presumed: &Arc<Presumed>) {
        if presumed.is_uncounted() {
            let (service, presumed) = (self.clone(), Arc::clone(presumed));
            self.0.runner.spawn(async move {
                // A failure is the database's; there is no caller to answer.
                let _ = service.settle_presumed(&presumed).await;
            });
        }
    }

    /// Has the next request of a key read it.
    pub(super) fn forget_presumed(&self, caller: &Caller) {
        if let Some(presumed) = &caller.presumed {
            self.0.read_keys.forget(&presumed.digest);
        }
    }
}
