//! What the operator does from the command line: accounts, grants, keys, the audit.

use super::{Service, ServiceError, password::PASSWORD_CHARS};
use crate::{
    domain::{
        credits::Credits,
        ids::{AccountId, UserId},
        validate::{FieldCode, FieldError},
    },
    store::{
        StoreError,
        accounts::{NewAccount, USERS_EMAIL_KEY, UserRow},
        credits::{Balance, MoveKind, Moved},
    },
};

/// Characters of an email.
const EMAIL_CHARS: usize = 254;
/// Characters of an account's name.
const NAME_CHARS: usize = 100;

/// An account that is asked for.
#[derive(Debug, Clone)]
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

impl AccountRequest {
    fn check(&self) -> Result<(), ServiceError> {
        let mut errors = Vec::new();
        let mut error =
            |param, code, message: &str| errors.push(FieldError::new(param, code, message));
        let halves = self.email.split_once('@');
        let sound = |part: &str| {
            !part.is_empty()
                && !part.contains(|c: char| c.is_whitespace() || c.is_control() || c == '@')
        };
        if self.email.chars().count() > EMAIL_CHARS {
            error(
                "email",
                FieldCode::TooLong,
                "must be at most 254 characters",
            );
        } else if !halves.is_some_and(|(name, host)| sound(name) && sound(host)) {
            error(
                "email",
                FieldCode::InvalidFormat,
                "must be an address with one @",
            );
        }
        if !PASSWORD_CHARS.contains(&self.password.chars().count()) {
            error(
                "password",
                FieldCode::OutOfRange,
                "must have 8 to 1,024 characters",
            );
        }
        if let Some(name) = &self.name
            && (name.trim().is_empty() || name.chars().count() > NAME_CHARS || name.contains('\0'))
        {
            error(
                "name",
                FieldCode::OutOfRange,
                "must have 1 to 100 characters",
            );
        }
        if self.credits < Credits::ZERO {
            error("credits", FieldCode::OutOfRange, "must not be negative");
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(ServiceError::Invalid(errors))
        }
    }
}

impl Service {
    /// Makes an account with its first user and its first grant.
    pub async fn create_account(
        &self,
        request: &AccountRequest,
    ) -> Result<(AccountId, UserId), ServiceError> {
        request.check()?;
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

    /// Grants or adjusts credits; the same reference once. Answers the balance, and whether
    /// anything was moved.
    pub async fn move_credits(
        &self,
        account: AccountId,
        kind: MoveKind,
        amount: Credits,
        reference: Option<&str>,
    ) -> Result<(Balance, bool), ServiceError> {
        let invalid = |message: &str| {
            ServiceError::invalid(FieldError::new("amount", FieldCode::OutOfRange, message))
        };
        if amount == Credits::ZERO {
            return Err(invalid("must not be 0"));
        }
        if kind == MoveKind::Grant && amount < Credits::ZERO {
            return Err(invalid(
                "must be positive; use an adjustment to take credits back",
            ));
        }
        let now = self.0.clock.now();
        match self
            .0
            .store
            .move_credits(account, kind, amount, reference, now)
            .await
        {
            Ok(Moved::Done(balance)) => Ok((balance, true)),
            Ok(Moved::Repeated(balance)) => Ok((balance, false)),
            Ok(Moved::Short(balance)) => Err(invalid(&format!(
                "takes more than the {} credits that are available",
                balance.available()
            ))),
            Err(StoreError::OutOfRange(_)) => Err(invalid("makes the balance too large")),
            Err(error) => Err(error.into()),
        }
    }

    /// Suspends an account or lets it go on.
    pub async fn set_suspended(
        &self,
        account: AccountId,
        suspended: bool,
    ) -> Result<(), ServiceError> {
        let now = self.0.clock.now();
        Ok(self.0.store.set_suspended(account, suspended, now).await?)
    }
}
