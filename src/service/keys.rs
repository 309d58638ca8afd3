//! API keys.

use chrono::{DateTime, Utc};
use secrecy::SecretString;

use super::{
    Result, Service, ServiceError, TokenRefusal,
    auth::Caller,
    forms::{Created, create_once},
};
use crate::{
    domain::{
        form_token::{self, FormToken},
        ids::{AccountId, ApiKeyId},
        request::KeyRequest,
        token::{self, NewToken},
        validate::{FieldCode, FieldError},
    },
    store::keys::{ApiKeyRecord, NewApiKey},
};

impl Service {
    /// Checks a request for a key against the time of now.
    pub fn key_violations(&self, request: &KeyRequest) -> Vec<FieldError> {
        let past = request.expires_at.filter(|at| *at <= self.now());
        let error = |_| {
            FieldError::new(
                "expires_at",
                FieldCode::OutOfRange,
                "must lie in the future",
            )
        };
        past.map(error).into_iter().collect()
    }

    /// Creates a key; its plain text is only in this response. `by`: the credential that creates it,
    /// which must be valid when the key is stored; `None`: the operator.
    pub async fn create_key(
        &self,
        account: AccountId,
        request: &KeyRequest,
        by: Option<&Caller>,
    ) -> Result<(ApiKeyRecord, SecretString)> {
        let token = token::new_api_key().map_err(|e| ServiceError::Internal(e.to_string()))?;
        let key = self.store_key(account, request, by, &token).await?;
        Ok((key, token.secret))
    }

    /// Creates the key of a form of the console, unless it exists: the form may be sent again, to any
    /// server.
    pub async fn create_key_by_form(
        &self,
        caller: &Caller,
        request: &KeyRequest,
        form: &FormToken,
    ) -> Result<(Created<ApiKeyRecord>, SecretString)> {
        let account = caller.account_id;
        let token = form_token::api_key_of_form(form, account);
        let key = create_once(
            || self.0.store.key_of_digest(account, token.digest),
            |id| self.key(caller, id),
            || self.store_key(account, request, Some(caller), &token),
        );
        Ok((key.await?, token.secret))
    }

    async fn store_key(
        &self,
        account: AccountId,
        request: &KeyRequest,
        by: Option<&Caller>,
        token: &NewToken,
    ) -> Result<ApiKeyRecord> {
        // The new key would not share the spend limit.
        if by.is_some_and(Caller::is_capped) {
            return Err(ServiceError::CappedKey);
        }
        ServiceError::any(self.key_violations(request))?;
        let new = NewApiKey {
            account_id: account,
            name: &request.name,
            digest: token.digest,
            hint: &token.hint,
            abilities: &request.abilities,
            rate_limit_per_minute: request.rate_limit_per_minute,
            expires_at: request.expires_at,
            spend_limit: request.spend_limit,
            spend_period: request.spend_period,
            now: self.0.clock.now(),
        };
        let store = &self.0.store;
        let created = store.create_key(&new, by.map(|caller| caller.credential));
        let ended = || by.map_or(ServiceError::Token(TokenRefusal::Invalid), Caller::ended);
        created.await?.ok_or_else(ended)
    }

    /// The time on the service's clock.
    pub fn now(&self) -> DateTime<Utc> {
        self.0.clock.now()
    }

    pub async fn key(&self, caller: &Caller, id: ApiKeyId) -> Result<ApiKeyRecord> {
        let key = self.0.store.key(caller.account_id, id, self.now()).await?;
        key.ok_or(ServiceError::NotFound)
    }

    /// Revokes a key of an account, immediately and permanently.
    pub async fn revoke_key(&self, account: AccountId, id: ApiKeyId) -> Result<ApiKeyRecord> {
        let now = self.0.clock.now();
        let key = self.0.store.revoke_key(account, id, now).await?;
        key.ok_or(ServiceError::NotFound)
    }
}
