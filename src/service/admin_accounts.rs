//! What the operator does with accounts: making, listing, suspending them.

use std::fmt;

use serde_json::{Map, Value};

use super::{Service, ServiceError, password::PASSWORD_CHARS};
use crate::{
    domain::{
        credits::Credits,
        ids::{AccountId, ApiKeyId, UserId},
        page::{Page, PageRequest},
        validate::{Errors, FieldCode, FieldError, Fields, too_long},
    },
    store::{
        accounts::{AccountRecord, NewAccount, USERS_EMAIL_KEY, UserRow},
        keys::ApiKeyRecord,
    },
};

/// Characters of an email.
const EMAIL_CHARS: usize = 254;
/// Characters of an account's name.
const NAME_CHARS: usize = 100;

/// An account that is asked for.
#[derive(Clone)]
pub struct AccountRequest {
    /// The first user's email: one `@`, at most 254 characters.
    pub email: String,
    /// 8 to 1,024 characters.
    pub password: String,
    /// The account's name; the email's first part when absent.
    pub name: Option<String>,
    /// Credits granted at once.
    pub credits: Credits,
}

impl fmt::Debug for AccountRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("AccountRequest");
        out.field("email", &self.email)
            .field("credits", &self.credits);
        out.finish_non_exhaustive()
    }
}

impl AccountRequest {
    /// Reads and checks a body.
    pub fn read(body: &Map<String, Value>) -> Result<Self, ServiceError> {
        let errors = Errors::default();
        let fields = Fields::new(body, &errors);
        let email = fields.required_text("email", EMAIL_CHARS);
        let password = fields.string("password");
        if password.is_none() && !errors.has("password") {
            fields.error("password", FieldCode::Required, "is required");
        }
        let name = fields.text("name", NAME_CHARS);
        let credits = fields.credits("credits");
        fields.finish();
        let request = Self {
            email: email.unwrap_or_default().to_owned(),
            password: password.unwrap_or_default().to_owned(),
            name: name.map(str::to_owned),
            credits: credits.unwrap_or(Credits::ZERO),
        };
        request.check(&errors);
        ServiceError::any(&errors)?;
        Ok(request)
    }

    /// Adds what is wrong with fields that have no error yet.
    fn check(&self, errors: &Errors) {
        let error = |param, code, message: &str| {
            if !errors.has(param) {
                errors.add(param, code, message);
            }
        };
        let halves = self.email.split_once('@');
        let sound = |part: &str| {
            !part.is_empty()
                && !part.contains(|c: char| c.is_whitespace() || c.is_control() || c == '@')
        };
        if self.email.chars().count() > EMAIL_CHARS {
            error("email", FieldCode::TooLong, &too_long(EMAIL_CHARS));
        } else if !halves.is_some_and(|(name, host)| sound(name) && sound(host)) {
            error(
                "email",
                FieldCode::InvalidFormat,
                "must be an address with one @",
            );
        }
        let password = self.password.chars().count();
        if password > *PASSWORD_CHARS.end() {
            error(
                "password",
                FieldCode::TooLong,
                &too_long(*PASSWORD_CHARS.end()),
            );
        } else if password < *PASSWORD_CHARS.start() {
            error(
                "password",
                FieldCode::OutOfRange,
                "must have 8 to 1,024 characters",
            );
        } else if self.password.trim().is_empty() {
            // A login takes no blank one.
            error("password", FieldCode::NotAllowed, "must not be blank");
        }
        match &self.name {
            Some(name) if name.trim().is_empty() => {
                error("name", FieldCode::OutOfRange, "must not be blank");
            }
            Some(name) if name.chars().count() > NAME_CHARS => {
                error("name", FieldCode::TooLong, &too_long(NAME_CHARS));
            }
            _ => {}
        }
        if self.credits < Credits::ZERO {
            error("credits", FieldCode::OutOfRange, "must not be negative");
        }
    }
}

impl Service {
    /// Makes an account with its first user and its first grant.
    pub async fn create_account(
        &self,
        request: &AccountRequest,
    ) -> Result<(AccountId, UserId), ServiceError> {
        let errors = Errors::default();
        request.check(&errors);
        ServiceError::any(&errors)?;
        let password_hash = self.0.passwords.hash(request.password.clone()).await?;
        let local = request.email.split('@').next().unwrap_or_default();
        let new = NewAccount {
            name: request.name.as_deref().unwrap_or(local),
            email: &request.email,
            password_hash: &password_hash,
            credits: request.credits,
            now: self.0.clock.now(),
        };
        match self.0.store.create_account(&new).await {
            Ok(ids) => Ok(ids),
            Err(error) if error.is_constraint(USERS_EMAIL_KEY) => {
                Err(ServiceError::invalid(FieldError::new(
                    "email",
                    FieldCode::NotAllowed,
                    "belongs to an account already",
                )))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The user of an email.
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

    /// Suspends an account or lets it go on. A suspended account's tokens are refused; its
    /// running work finishes.
    pub async fn set_suspended(
        &self,
        account: AccountId,
        suspended: bool,
    ) -> Result<AccountRecord, ServiceError> {
        let now = self.0.clock.now();
        let account = self.0.store.set_suspended(account, suspended, now).await?;
        account.ok_or(ServiceError::NotFound)
    }

    /// Revokes a key of any account, at once and for ever.
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
