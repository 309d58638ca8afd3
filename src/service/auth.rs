//! Authenticates and authorizes callers. API keys are cached for seconds, so that a request can
//! start before its key is read again.
//!
//! A request with a cached key starts as if the key were unchanged. The statement that places its
//! hold checks the key and counts the request. If no hold is placed, [`Caller::confirm`] does both
//! before the response. So a revoked key gets no answer from any server, and each request is
//! counted once, even if the client disconnects.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex},
};

use chrono::{DateTime, TimeDelta, Utc};

use super::{Result, Service, ServiceError, TokenRefusal};
use crate::{
    domain::{
        ability::{Abilities, Ability},
        generation::Modality,
        ids::{AccountId, UserId},
        lock::lock,
        rate::RateState,
        token::{BearerToken, TokenDigest},
    },
    request::Target,
    store::{
        generations::Credential,
        keys::{AuthenticatedKey, Presumed},
    },
};

/// An authenticated caller.
#[derive(Debug, Clone)]
pub struct Caller {
    pub account_id: AccountId,
    pub credential: Credential,
    /// The session's user; `None` for keys.
    pub user_id: Option<UserId>,
    /// The caller's abilities; all for sessions.
    pub abilities: Abilities,
    /// When the token expires.
    pub expires_at: Option<DateTime<Utc>>,
    /// Whether the caller is an operator's session.
    pub operator: bool,
    suspended: bool,
    /// The account's default providers and models, by modality.
    defaults: serde_json::Value,
    /// The rate limit after the request, if the token was read for it.
    rate: Option<RateState>,
    /// A key that was not read for this request.
    cached: Option<Arc<CachedKey>>,
}

impl Caller {
    fn of_key(key: &AuthenticatedKey) -> Self {
        Self {
            account_id: key.account_id,
            credential: Credential::ApiKey(key.id),
            user_id: None,
            abilities: key.abilities.clone(),
            expires_at: key.expires_at,
            operator: false,
            suspended: key.suspended,
            defaults: key.defaults.clone(),
            rate: None,
            cached: None,
        }
    }

    /// Whether a request is planned alike for both callers.
    pub(super) fn plans_like(&self, other: &Self) -> bool {
        self.defaults == other.defaults
    }

    /// Returns the account's default provider and model of a modality.
    pub fn account_default(&self, modality: Modality) -> Target {
        default_target(&self.defaults[modality.as_str()])
    }

    /// Refuses callers of suspended accounts, and callers that lack the ability.
    pub fn require(&self, ability: Ability) -> Result<()> {
        self.require_active()?;
        if self.abilities.grant(ability) {
            Ok(())
        } else {
            Err(ServiceError::MissingAbility(ability.as_str()))
        }
    }

    /// Refuses callers of suspended accounts, and callers without any ability to generate.
    pub fn require_any_generation(&self) -> Result<()> {
        let mut types = Modality::ALL.iter().copied().map(Ability::to_generate);
        self.require_active()?;
        if types.any(|ability| self.abilities.grant(ability)) {
            return Ok(());
        }
        Err(ServiceError::MissingAbility("generate:*"))
    }

    /// Refuses callers of suspended accounts.
    pub fn require_active(&self) -> Result<()> {
        if self.suspended {
            return Err(ServiceError::Suspended);
        }
        Ok(())
    }

    /// Refuses requests over the rate limit.
    pub fn check_rate(&self) -> Result<()> {
        match self.rate() {
            Some(rate) if rate.retry_after_seconds.is_some() => {
                Err(ServiceError::RateLimited(rate))
            }
            _ => Ok(()),
        }
    }

    /// Returns the refusal of a credential that has ended since it was read.
    pub(super) fn ended(&self) -> ServiceError {
        ServiceError::Token(match self.credential {
            Credential::ApiKey(_) => TokenRefusal::Revoked,
            Credential::Session(_) => TokenRefusal::Invalid,
        })
    }

    /// Refuses API keys.
    pub fn require_session(&self) -> Result<()> {
        self.require_active()?;
        match self.credential {
            Credential::Session(_) => Ok(()),
            Credential::ApiKey(_) => Err(ServiceError::SessionRequired),
        }
    }
}

impl Service {
    /// Returns the caller with which an operator reads a customer's account, even a suspended one.
    pub async fn view_as(&self, operator: &Caller, account: AccountId) -> Result<Caller> {
        operator.require_active()?;
        if !operator.operator {
            return Err(ServiceError::AdminRequired);
        }
        Ok(Caller {
            account_id: self.account(account).await?.id,
            defaults: serde_json::Value::Null,
            ..operator.clone()
        })
    }

    /// Checks a bearer token and counts the request. [`Caller::check_rate`] refuses a request over
    /// the limit. `counts`: `false` for a further part of a request that was counted already.
    /// `may_defer`: a cached key may be checked later, see [`Caller::confirm`].
    pub async fn authenticate(&self, token: &str, counts: bool, may_defer: bool) -> Result<Caller> {
        let refused = |why| Err(ServiceError::Token(why));
        let now = self.0.clock.now();
        match BearerToken::parse(token) {
            // An admin token is valid for /v1/admin only.
            None | Some(BearerToken::Admin(_)) => refused(TokenRefusal::Invalid),
            Some(BearerToken::ApiKey(digest)) => {
                match may_defer.then(|| self.cached_caller(digest)).flatten() {
                    Some(caller) => Ok(caller),
                    None => self.authenticate_key(digest).await,
                }
            }
            Some(BearerToken::Session(digest)) => {
                let Some(session) = self.0.store.present_session(digest, counts, now).await? else {
                    return refused(TokenRefusal::Invalid);
                };
                Ok(Caller {
                    account_id: session.account_id,
                    credential: Credential::Session(session.id),
                    user_id: Some(session.user_id),
                    abilities: Abilities::all(),
                    expires_at: Some(session.expires_at),
                    operator: session.operator,
                    suspended: session.suspended,
                    defaults: session.defaults,
                    rate: Some(session.rate),
                    cached: None,
                })
            }
        }
    }

    /// Reads a key and counts the request.
    async fn authenticate_key(&self, digest: TokenDigest) -> Result<Caller> {
        let now = self.0.clock.now();
        let Some(key) = self.0.store.authenticate_key(digest, now).await? else {
            return Err(ServiceError::Token(TokenRefusal::Invalid));
        };
        let Some(rate) = key.rate else {
            return Err(ServiceError::Token(if key.revoked {
                TokenRefusal::Revoked
            } else {
                TokenRefusal::Expired
            }));
        };
        let caller = Caller {
            rate: Some(rate),
            ..Caller::of_key(&key)
        };
        if rate.retry_after_seconds.is_none() && !key.suspended {
            self.0.key_cache.insert(digest, Arc::new(key), now);
        }
        Ok(caller)
    }
}

/// The cached key of a request. Counts an uncounted request on drop.
struct CachedKey {
    service: Service,
    presumed: Arc<Presumed>,
}

impl fmt::Debug for CachedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.presumed.fmt(f)
    }
}

impl Drop for CachedKey {
    fn drop(&mut self) {
        if self.presumed.is_uncounted() {
            let (service, digest) = (self.service.clone(), self.presumed.digest);
            service.0.key_cache.remove(&digest);
            self.service.0.runner.spawn(async move {
                // Only the database can fail; there is no caller to answer.
                let _ = service.authenticate_key(digest).await;
            });
        }
    }
}

impl CachedKey {
    /// Reads the key of a request that placed no hold, and counts the request.
    async fn read(&self) -> Result<Caller> {
        let (service, presumed) = (self.service.clone(), &self.presumed);
        let digest = presumed.digest;
        service.0.key_cache.remove(&digest);
        presumed.set_counting(true);
        let reading = async move { service.authenticate_key(digest).await };
        let reading = self.service.complete("the reading of a key", reading);
        let reading = reading.await.flatten();
        presumed.settle(reading.as_ref().ok().and_then(Caller::rate));
        reading
    }
}

impl Service {
    fn cached_caller(&self, digest: TokenDigest) -> Option<Caller> {
        let key = self.0.key_cache.get(&digest, self.0.clock.now())?;
        let presumed = Arc::new(Presumed::new(digest, Arc::clone(&key))?);
        let service = self.clone();
        Some(Caller {
            cached: Some(Arc::new(CachedKey { service, presumed })),
            ..Caller::of_key(&key)
        })
    }
}

impl Caller {
    /// Whether the key is still to be checked and the request to be counted.
    pub fn is_unconfirmed(&self) -> bool {
        let cached = self.cached.as_ref();
        cached.is_some_and(|cached| cached.presumed.is_open())
    }

    /// Reads a cached key and counts the request, unless a hold has done both. Returns the current
    /// caller if the key was read.
    pub async fn confirm(&self) -> Result<Option<Self>> {
        let Some(cached) = self.cached.as_ref().filter(|_| self.is_unconfirmed()) else {
            return Ok(None);
        };
        let caller = cached.read().await?;
        caller.check_rate()?;
        caller.require_active()?;
        Ok(Some(caller))
    }

    /// Like [`Self::confirm`], but refuses a key that has lost the ability since it was cached.
    pub async fn confirm_for(&self, ability: Ability) -> Result<Option<Self>> {
        let confirmed = self.confirm().await?;
        if let Some(caller) = &confirmed {
            caller.require(ability)?;
        }
        Ok(confirmed)
    }

    /// Ends a request without counting it, because the database is unavailable.
    pub(super) fn leave_uncounted(&self) {
        if let Some(cached) = &self.cached {
            cached.presumed.settle(None);
        }
    }

    /// Returns the cached key, for the hold.
    pub(super) fn presumed(&self) -> Option<Arc<Presumed>> {
        self.cached
            .as_ref()
            .map(|cached| Arc::clone(&cached.presumed))
    }

    /// Removes the key from the cache, so that its next request reads it.
    pub(super) fn forget_key(&self) {
        if let Some(cached) = &self.cached {
            let cache = &cached.service.0.key_cache;
            cache.remove(&cached.presumed.digest);
        }
    }

    /// Returns the rate limit after the request; `None` until a cached key was read.
    pub fn rate(&self) -> Option<RateState> {
        let counted = || self.cached.as_ref()?.presumed.counted();
        self.rate.or_else(counted)
    }
}

/// Parses a stored default of an account.
fn default_target(value: &serde_json::Value) -> Target {
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    let fallbacks = value["fallbacks"].as_array().into_iter().flatten();
    Target {
        provider: text("provider"),
        model: text("model"),
        fallbacks: fallbacks.map(default_target).collect(),
    }
}

/// How long a key stays in the cache.
const PERIOD: TimeDelta = TimeDelta::seconds(15);
/// Maximum cached keys. Each takes half a KiB, or some KiB if its account has defaults.
const MAX_KEYS: usize = 16_384;

/// Keys, and when each was read.
type Keys = HashMap<TokenDigest, (Arc<AuthenticatedKey>, DateTime<Utc>)>;

#[derive(Debug, Default)]
pub struct KeyCache(Mutex<Keys>);

impl KeyCache {
    /// Adds a key whose request was admitted.
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
