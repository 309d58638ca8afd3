//! The operator's management of accounts.

use secrecy::{ExposeSecret as _, SecretString};

use super::{Service, ServiceError};
use crate::{
    domain::{
        ids::{AccountId, ApiKeyId, UserId},
        page::{Page, PageRequest},
        request::{AccountRequest, password_violations},
        validate::{FieldCode, FieldError},
    },
    store::{
        accounts::{AccountRecord, NewAccount, USERS_EMAIL_KEY, UserRow},
        keys::ApiKeyRecord,
        sessions::NewPassword,
    },
};

impl Service {
    async fn hashed(&self, password: SecretString) -> Result<String, ServiceError> {
        let turn = self.0.passwords.turn_of_operator().await?;
        self.0.passwords.hash(turn, password).await
    }

    /// Creates an account with its first user and its first grant.
    pub async fn create_account(
        &self,
        request: &AccountRequest,
    ) -> Result<(AccountId, UserId), ServiceError> {
        ServiceError::any(request.violations())?;
        let password_hash = self.hashed(request.password.clone().into()).await?;
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
        made.ok_or_else(|| {
            let message = "belongs to an account already";
            ServiceError::invalid(FieldError::new("email", FieldCode::NotAllowed, message))
        })
    }

    /// Sets a user's password and ends all of the user's sessions. Returns their number.
    pub async fn reset_password(
        &self,
        user: UserId,
        password: SecretString,
    ) -> Result<u64, ServiceError> {
        ServiceError::any(password_violations(password.expose_secret()))?;
        let hash = self.hashed(password).await?;
        let new = NewPassword {
            user,
            hash: &hash,
            replaces: None,
            keep: None,
            now: self.0.clock.now(),
        };
        let ended = self.0.store.set_password(&new).await?;
        ended.ok_or(ServiceError::NotFound)
    }

    pub async fn user(&self, email: &str) -> Result<UserRow, ServiceError> {
        let user = self.0.store.user_by_email(email).await?;
        user.ok_or(ServiceError::NotFound)
    }

    pub async fn account(&self, id: AccountId) -> Result<AccountRecord, ServiceError> {
        let account = self.0.store.account(id).await?;
        account.ok_or(ServiceError::NotFound)
    }

    /// All accounts, newest first; with `email`, the one that has a user of it.
    pub async fn accounts(
        &self,
        email: Option<&str>,
        page: &PageRequest,
    ) -> Result<Page<AccountRecord>, ServiceError> {
        Ok(self.0.store.accounts(email, page).await?)
    }

    /// Suspends or resumes an account. A suspended account's tokens are refused; its running work
    /// finishes.
    pub async fn set_suspended(
        &self,
        account: AccountId,
        suspended: bool,
        reason: Option<&str>,
    ) -> Result<AccountRecord, ServiceError> {
        let now = self.0.clock.now();
        let account = self
            .0
            .store
            .set_suspended(account, suspended, reason, now)
            .await?;
        account.ok_or(ServiceError::NotFound)
    }

    /// Revokes a key of any account, immediately and permanently.
    pub async fn revoke_key_of(
        &self,
        account: AccountId,
        id: ApiKeyId,
    ) -> Result<ApiKeyRecord, ServiceError> {
        let now = self.0.clock.now();
        let key = self.0.store.revoke_key(account, id, now).await?;
        key.ok_or(ServiceError::NotFound)
    }
}
