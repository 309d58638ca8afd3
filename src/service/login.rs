//! Login, logout, and who the caller is.

use chrono::{DateTime, Utc};
use secrecy::SecretString;
use tokio::sync::oneshot;

use super::{Service, ServiceError, auth::Caller};
use crate::{
    domain::{
        ids::{AccountId, UserId},
        limiter::Permit,
        request::Login,
        token,
    },
    store::{accounts::Identity, generations::Credential},
};

/// A session just made.
#[derive(Debug)]
pub struct LoggedIn {
    pub token: SecretString,
    /// When the server ends the session.
    pub expires_at: DateTime<Utc>,
    /// The user: id, email, name.
    pub user: (UserId, String, Option<String>),
    /// The account: id, name.
    pub account: (AccountId, String),
}

impl Service {
    /// Makes a session. Wrong email and wrong password take the same time and answer alike.
    /// Runs to its end also when the caller hangs up, so that each attempt gets its verdict.
    pub async fn login(&self, login: Login, address: String) -> Result<LoggedIn, ServiceError> {
        // Before anything is known of the email: a full queue tells nothing.
        let admitted = self.0.passwords.admit()?;
        let (service, (done, verdict)) = (self.clone(), oneshot::channel());
        self.0.runner.spawn(async move {
            // Whoever asked may be gone.
            let _ = done.send(service.attempt(login, &address, admitted).await);
        });
        let gone = |_| ServiceError::Internal("a login ended without a verdict".to_owned());
        verdict.await.map_err(gone)?
    }

    async fn attempt(
        &self,
        login: Login,
        address: &str,
        admitted: Permit,
    ) -> Result<LoggedIn, ServiceError> {
        let (store, now) = (&self.0.store, self.0.clock.now());
        if let Err(wait) = store.begin_login(&login.email, address, now).await? {
            let millis = u64::try_from(wait.num_milliseconds()).unwrap_or(0);
            let seconds = millis.div_ceil(1000).max(1);
            return Err(ServiceError::TooManyLogins(seconds));
        }
        let user = store.user_by_email(&login.email).await?;
        let stored = user.as_ref().map(|u| u.password_hash.clone());
        let passwords = &self.0.passwords;
        let right = passwords.verify(admitted, login.password, stored).await?;
        store.end_login(&login.email, address, now, !right).await?;
        let Some(user) = user.filter(|_| right) else {
            return Err(ServiceError::InvalidCredentials);
        };
        let token =
            token::new_session_token().map_err(|e| ServiceError::Internal(e.to_string()))?;
        let expires_at = now + self.0.settings.session_period;
        store
            .create_session(user.id, user.account_id, token.digest, expires_at, now)
            .await?;
        Ok(LoggedIn {
            token: token.secret,
            expires_at,
            user: (user.id, user.email, user.name),
            account: (user.account_id, user.account_name),
        })
    }

    /// Ends the caller's own session.
    pub async fn logout(&self, caller: &Caller) -> Result<(), ServiceError> {
        match caller.credential {
            Credential::Session(id) => Ok(self.0.store.end_session(id, self.0.clock.now()).await?),
            Credential::ApiKey(_) => Err(ServiceError::SessionRequired),
        }
    }

    /// Who the caller is.
    pub async fn identity(&self, caller: &Caller) -> Result<Identity, ServiceError> {
        Ok(self
            .0
            .store
            .identity(caller.account_id, caller.user_id)
            .await?)
    }
}
