//! Login, logout, passwords, and who the caller is.

use chrono::{DateTime, Utc};
use secrecy::SecretString;

use super::{Result, Service, ServiceError, auth::Caller, password::Turn};
use crate::{
    domain::{
        ids::{AccountId, UserId},
        party::Address,
        request::{Login, PasswordChange},
        token,
    },
    store::{
        accounts::{Identity, UserRow},
        generations::Credential,
        sessions::NewPassword,
    },
};

#[derive(Debug)]
pub struct LoggedIn {
    pub token: SecretString,
    pub expires_at: DateTime<Utc>,
    /// Id, email and name.
    pub user: (UserId, String, Option<String>),
    /// Id and name.
    pub account: (AccountId, String),
}

impl Service {
    /// Creates a session. A wrong email and a wrong password take the same time and get the same error.
    pub async fn login(&self, login: Login, address: Address) -> Result<LoggedIn> {
        let now = self.0.clock.now();
        let turn = self.0.passwords.turn(address, &login.email, now).await?;
        let service = self.clone();
        // Each attempt is counted, also that of a caller who hangs up.
        self.complete("a login", async move {
            service.attempt(login, address, turn).await
        })
        .await?
    }

    /// Returns the user of these credentials. Failures are counted, and too many are refused.
    async fn verified(
        &self,
        email: &str,
        password: SecretString,
        address: Address,
        turn: Turn,
    ) -> Result<(Option<UserRow>, Turn)> {
        let (store, now) = (&self.0.store, self.0.clock.now());
        let text = address.to_string();
        if let Err(wait) = store.begin_login(email, &text, now).await? {
            let millis = u64::try_from(wait.num_milliseconds()).unwrap_or(0);
            let seconds = millis.div_ceil(1000).max(1);
            return Err(ServiceError::TooManyLogins(seconds));
        }
        let user = store.user_by_email(email).await?;
        let stored = user.as_ref().map(|u| u.password_hash.clone());
        let passwords = &self.0.passwords;
        let (right, turn) = passwords.verify(turn, password, stored).await?;
        if !right {
            passwords.failed(address, now);
        }
        store.end_login(email, &text, now, !right).await?;
        Ok((user.filter(|_| right), turn))
    }

    async fn attempt(&self, login: Login, address: Address, turn: Turn) -> Result<LoggedIn> {
        let verified = self.verified(&login.email, login.password, address, turn);
        let (user, turn) = verified.await?;
        drop(turn);
        let user = user.ok_or(ServiceError::InvalidCredentials)?;
        let token =
            token::new_session_token().map_err(|e| ServiceError::Internal(e.to_string()))?;
        let (store, now) = (&self.0.store, self.0.clock.now());
        let expires_at = now + self.0.settings.session_period;
        let (hash, digest) = (&user.password_hash, token.digest);
        let making = store.create_session(user.id, hash, digest, expires_at, now);
        if !making.await? {
            return Err(ServiceError::InvalidCredentials);
        }
        Ok(LoggedIn {
            token: token.secret,
            expires_at,
            user: (user.id, user.email, user.name),
            account: (user.account_id, user.account_name),
        })
    }

    pub async fn logout(&self, caller: &Caller) -> Result<()> {
        match caller.credential {
            Credential::Session(id) => Ok(self.0.store.end_session(id, self.0.clock.now()).await?),
            Credential::ApiKey(_) => Err(ServiceError::SessionRequired),
        }
    }

    /// Changes the password of the caller's user and ends the user's other sessions.
    pub async fn change_password(
        &self,
        caller: &Caller,
        change: PasswordChange,
        address: Address,
    ) -> Result<()> {
        let Credential::Session(session) = caller.credential else {
            return Err(ServiceError::SessionRequired);
        };
        let user = self.identity(caller).await?.user;
        let (_, email, _) = user.ok_or(ServiceError::SessionRequired)?;
        let now = self.0.clock.now();
        let turn = self.0.passwords.turn(address, &email, now).await?;
        let service = self.clone();
        self.complete("a login", async move {
            let wrong = || {
                let message = "is not the current password";
                ServiceError::not_allowed("current_password", message)
            };
            let verified = service.verified(&email, change.current, address, turn);
            let (user, turn) = verified.await?;
            let user = user.ok_or_else(wrong)?;
            let hash = service.0.passwords.hash(turn, change.new).await?;
            let new = NewPassword {
                user: user.id,
                hash: &hash,
                replaces: Some(&user.password_hash),
                keep: Some(session),
                now: service.0.clock.now(),
            };
            let ended = service.0.store.set_password(&new).await?;
            ended.map(|_| ()).ok_or_else(wrong)
        })
        .await?
    }

    pub async fn identity(&self, caller: &Caller) -> Result<Identity> {
        let store = &self.0.store;
        Ok(store.identity(caller.account_id, caller.user_id).await?)
    }
}
