//! Accounts: management by operators, and the accounts' own settings.

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, json};

use super::{Result, Service, ServiceError, auth::Caller};
use crate::{
    domain::{
        credits::Credits,
        generation::Modality,
        ids::{AccountId, ApiKeyId, UserId},
        validate::FieldError,
    },
    request::{
        AccountChange, AccountRequest, AccountUpdate, KeyRequest, Target, normalized_email,
        password_violations,
    },
    store::{
        accounts::{AccountRecord, AccountSettings, NewAccount, USERS_EMAIL_KEY, UserRow},
        deletion::Closed,
        keys::ApiKeyRecord,
    },
};

/// Maximum generations whose content one step of an erasure removes.
const ERASED_AT_ONCE: i64 = 500;

fn email_is_taken() -> ServiceError {
    let message = "already belongs to an account";
    ServiceError::not_allowed("email", message)
}

impl Service {
    async fn hashed(&self, password: SecretString) -> Result<String> {
        let turn = self.0.passwords.turn_of_operator().await?;
        self.0.passwords.hash(turn, password).await
    }

    /// Creates an account with its first user and its first grant.
    pub async fn create_account(&self, request: &AccountRequest) -> Result<(AccountId, UserId)> {
        if request.credits > Credits::ZERO {
            self.require_running()?;
        }
        let password_hash = self.hashed(request.password.clone()).await?;
        let local = request.email.split('@').next().unwrap_or_default();
        let new = NewAccount {
            name: request.name.as_deref().unwrap_or(local),
            email: &request.email,
            password_hash: &password_hash,
            credits: request.credits,
            now: self.0.clock.now(),
        };
        let made = match self.0.store.create_account(&new).await {
            Err(error) if error.is_constraint(USERS_EMAIL_KEY) => None,
            made => made?,
        };
        made.ok_or_else(email_is_taken)
    }

    /// Changes an account's name and its first user's email.
    pub async fn update_account(
        &self,
        account: AccountId,
        change: &AccountUpdate,
    ) -> Result<AccountRecord> {
        let (email, name) = (change.email.as_deref(), change.name.as_deref());
        match self.0.store.update_account(account, email, name).await {
            Err(error) if error.is_constraint(USERS_EMAIL_KEY) => Err(email_is_taken()),
            Err(error) => Err(error.into()),
            Ok(false) => Err(ServiceError::NotFound),
            Ok(true) => self.account(account).await,
        }
    }

    /// Deletes an account; [`Self::erase_deleted`] then removes the content of its generations.
    pub async fn delete_account(&self, account: AccountId) -> Result<AccountRecord> {
        self.require_running()?;
        match self.0.store.close_account(account, self.now()).await? {
            Closed::Done => self.account(account).await,
            Closed::NoAccount => Err(ServiceError::NotFound),
            Closed::IsOperators => {
                let email = self.account(account).await?.email;
                let message = format!(
                    "belongs to the operator {email}; first run `gensvc user operator --revoke \
                     --email {email}`"
                );
                Err(ServiceError::not_allowed("id", message))
            }
        }
    }

    /// Removes content and files of some generations of deleted accounts. Returns whether there
    /// may be more.
    pub async fn erase_deleted(&self) -> Result<bool> {
        Ok(self.0.runner.erase_deleted(ERASED_AT_ONCE).await?)
    }

    /// Sets a user's password and ends all of the user's sessions. Returns their number.
    pub async fn reset_password(&self, user: UserId, password: SecretString) -> Result<u64> {
        ServiceError::any(password_violations(password.expose_secret()))?;
        let hash = self.hashed(password).await?;
        let (store, now) = (&self.0.store, self.0.clock.now());
        let ended = store.set_password(user, &hash, None, now).await?;
        ended.ok_or(ServiceError::NotFound)
    }

    pub async fn user(&self, email: &str) -> Result<UserRow> {
        let user = self.0.store.user_by_email(&normalized_email(email)).await?;
        user.ok_or(ServiceError::NotFound)
    }

    pub async fn account(&self, id: AccountId) -> Result<AccountRecord> {
        let account = self.0.store.account(id).await?;
        account.ok_or(ServiceError::NotFound)
    }

    /// Suspends or resumes an account. Suspension refuses its tokens; running work finishes.
    pub async fn set_suspended(
        &self,
        account: AccountId,
        suspended: bool,
        reason: Option<&str>,
    ) -> Result<AccountRecord> {
        let (store, now) = (&self.0.store, self.0.clock.now());
        let changed = store.set_suspended(account, suspended, reason, now);
        changed.await?.ok_or(ServiceError::NotFound)
    }

    /// Replaces a key's name, abilities and limits.
    pub async fn replace_key(
        &self,
        account: AccountId,
        id: ApiKeyId,
        request: &KeyRequest,
    ) -> Result<ApiKeyRecord> {
        ServiceError::any(self.key_violations(request))?;
        let now = self.now();
        let key = self.0.store.replace_key(account, id, request, now).await?;
        key.ok_or(ServiceError::NotFound)
    }

    /// Returns the settings of a change that name models which this server does not have.
    pub fn change_violations(&self, change: &AccountChange) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (modality, target) in &change.defaults {
            let Some(target) = target else { continue };
            let found = self
                .catalogue()
                .resolve(*modality, target, &Target::default());
            errors.extend(found.err());
            let unknown = self.unknown_fallbacks(*modality, target).into_iter();
            errors.extend(unknown.map(|(_, error)| error));
            // A default follows its replacement.
            errors.retain(|error| error.replacement.is_none());
            for error in &mut errors {
                if !error.param.starts_with("defaults.") {
                    error.param = format!("defaults.{modality}.{}", error.param);
                }
            }
        }
        errors
    }

    pub async fn change_account(
        &self,
        caller: &Caller,
        change: &AccountChange,
    ) -> Result<AccountSettings> {
        ServiceError::any(self.change_violations(change))?;
        let default = |(modality, target): &(Modality, Option<Target>)| {
            let default = target.as_ref().map(|target| {
                let mut default = json!({"provider": target.provider, "model": target.model});
                let fallbacks = target.fallbacks.iter();
                let fallbacks =
                    fallbacks.map(|one| json!({"provider": one.provider, "model": one.model}));
                default["fallbacks"] = fallbacks.collect();
                default
            });
            (modality.to_string(), default.unwrap_or_default())
        };
        let defaults: Map<_, _> = change.defaults.iter().map(default).collect();
        let store = &self.0.store;
        let changed = store
            .merge_defaults(caller.account_id, &defaults.into())
            .await?;
        self.0.key_cache.remove_account(caller.account_id);
        Ok(changed)
    }
}
