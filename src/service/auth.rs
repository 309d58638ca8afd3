//! Who calls, and what they may do.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::{Service, ServiceError, TokenRefusal};
use crate::{
    domain::{
        ability::{Abilities, Ability},
        generation::Modality,
        ids::{AccountId, UserId},
        rate::RateState,
        request::Target,
        token::{BearerToken, TokenDigest},
    },
    store::{
        generations::Credential,
        keys::{AuthenticatedKey, Presumed},
    },
};

/// A caller whose token is good.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Whose credits are spent.
    pub account_id: AccountId,
    pub credential: Credential,
    /// The session's user; `None` for keys.
    pub user_id: Option<UserId>,
    /// What the caller may do; everything for sessions.
    pub abilities: Abilities,
    /// When the token ends.
    pub expires_at: Option<DateTime<Utc>>,
    /// Whether it is a session of one who runs the server.
    pub operator: bool,
    /// Whether the account is suspended.
    suspended: bool,
    /// Whether it is a key with a spend limit.
    capped: bool,
    /// The account's default providers and models, by modality.
    defaults: serde_json::Value,
    /// A key that was not read for this request.
    pub(super) presumed: Option<Arc<Presumed>>,
}

impl Caller {
    pub(super) fn of_key(key: &AuthenticatedKey) -> Self {
        Self {
            account_id: key.account_id,
            credential: Credential::ApiKey(key.id),
            user_id: None,
            abilities: key.abilities.clone(),
            expires_at: key.expires_at,
            operator: false,
            suspended: key.suspended,
            capped: key.spend_limit.is_some(),
            defaults: key.defaults.clone(),
            presumed: None,
        }
    }

    /// The key by which the caller is only presumed to be who it was.
    pub const fn presumed(&self) -> Option<&Arc<Presumed>> {
        self.presumed.as_ref()
    }

    /// Whether the key is still to be read, and the request to be counted.
    pub fn is_open(&self) -> bool {
        self.presumed
            .as_ref()
            .is_some_and(|presumed| presumed.is_open())
    }

    /// Whether a request is planned alike for both.
    pub(super) fn plans_like(&self, other: &Self) -> bool {
        self.defaults == other.defaults
    }

    /// The account's default provider and model of a modality.
    pub fn account_default(&self, modality: Modality) -> Target {
        let text = |name: &str| {
            let value = &self.defaults[modality.as_str()][name];
            value.as_str().map(str::to_owned)
        };
        Target {
            provider: text("provider"),
            model: text("model"),
        }
    }

    /// Refuses a suspended account's caller, and one that lacks the ability.
    pub fn require(&self, ability: Ability) -> Result<(), ServiceError> {
        self.require_active()?;
        if self.abilities.grant(ability) {
            Ok(())
        } else {
            Err(ServiceError::MissingAbility(ability))
        }
    }

    /// Refuses a suspended account's caller.
    pub fn require_active(&self) -> Result<(), ServiceError> {
        if self.suspended {
            return Err(ServiceError::Suspended);
        }
        Ok(())
    }

    /// Whether it is a key with a spend limit.
    pub fn is_capped(&self) -> bool {
        self.capped
    }

    /// Refuses an API key.
    pub fn require_session(&self) -> Result<(), ServiceError> {
        self.require_active()?;
        match self.credential {
            Credential::Session(_) => Ok(()),
            Credential::ApiKey(_) => Err(ServiceError::SessionRequired),
        }
    }
}

/// A good token, and its request counted.
#[derive(Debug)]
pub struct Authenticated {
    pub caller: Caller,
    /// How the limit stands after this request.
    pub rate: RateState,
}

impl Service {
    /// The caller by which an operator reads an account of a customer, also a suspended one.
    pub async fn view_as(
        &self,
        operator: &Caller,
        account: AccountId,
    ) -> Result<Caller, ServiceError> {
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

    /// Checks a bearer token and counts the request, unless it is a session's that `counts` not:
    /// a part of one that was counted. Whether the request is over the limit is
    /// in [`Authenticated::rate`]: the caller is known either way.
    pub async fn authenticate(
        &self,
        token: &str,
        counts: bool,
    ) -> Result<Authenticated, ServiceError> {
        let refused = |why| Err(ServiceError::Token(why));
        let now = self.0.clock.now();
        match BearerToken::parse(token) {
            // An admin token is good for /v1/admin only.
            None | Some(BearerToken::Admin(_)) => refused(TokenRefusal::Invalid),
            Some(BearerToken::ApiKey(digest)) => self.authenticate_key(digest).await,
            Some(BearerToken::Session(digest)) => {
                let Some(session) = self.0.store.present_session(digest, counts, now).await? else {
                    return refused(TokenRefusal::Invalid);
                };
                let caller = Caller {
                    account_id: session.account_id,
                    credential: Credential::Session(session.id),
                    user_id: Some(session.user_id),
                    abilities: Abilities::all(),
                    expires_at: Some(session.expires_at),
                    operator: session.operator,
                    suspended: session.suspended,
                    capped: false,
                    defaults: session.defaults,
                    presumed: None,
                };
                Ok(Authenticated {
                    caller,
                    rate: session.rate,
                })
            }
        }
    }

    /// Reads a key and counts the request.
    pub(super) async fn authenticate_key(
        &self,
        digest: TokenDigest,
    ) -> Result<Authenticated, ServiceError> {
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
        let caller = Caller::of_key(&key);
        if rate.retry_after_seconds.is_none() && !key.suspended {
            self.0.read_keys.remember(digest, Arc::new(key), now);
        }
        Ok(Authenticated { caller, rate })
    }
}
