//! Admin tokens of the operator's own systems.

use secrecy::SecretString;

use super::{Result, Service, ServiceError, TokenRefusal, auth::Caller};
use crate::{
    domain::{
        ids::AdminTokenId,
        rate::RateState,
        token::{self, BearerToken},
    },
    store::admin::AdminTokenRecord,
};

/// The owner of the token of a request to the operator's routes, which is counted.
#[derive(Debug)]
pub enum Presented {
    /// An admin token, and its rate limit after the request.
    Operator(AdminTokenId, RateState),
    /// A customer's token: permitted only if it is the session of an operator.
    Customer(Caller),
}

impl Service {
    /// Checks the bearer token of a request to the operator's routes and counts the request, as
    /// [`Service::authenticate`] does.
    pub async fn authenticate_operator(&self, token: &str, counts: bool) -> Result<Presented> {
        let refused = |why| Err(ServiceError::Token(why));
        let Some(BearerToken::Admin(digest)) = BearerToken::parse(token) else {
            let caller = self.authenticate(token, counts, false).await?;
            return Ok(Presented::Customer(caller));
        };
        let now = self.0.clock.now();
        match self.0.store.present_admin(digest, now).await? {
            None => refused(TokenRefusal::Invalid),
            Some(admin) => match admin.rate {
                None => refused(TokenRefusal::Revoked),
                Some(rate) => Ok(Presented::Operator(admin.id, rate)),
            },
        }
    }

    /// Creates an admin token; its plain text is only in this response.
    pub async fn create_admin_token(&self, name: &str) -> Result<(AdminTokenRecord, SecretString)> {
        let token = token::new_admin_token().map_err(|e| ServiceError::Internal(e.to_string()))?;
        let (store, now) = (&self.0.store, self.0.clock.now());
        let record = store.create_admin_token(name, token.digest, now).await?;
        Ok((record, token.secret))
    }

    /// All admin tokens, newest first.
    pub async fn admin_tokens(&self) -> Result<Vec<AdminTokenRecord>> {
        Ok(self.0.store.admin_tokens().await?)
    }

    /// Revokes an admin token, immediately and permanently.
    pub async fn revoke_admin_token(&self, id: AdminTokenId) -> Result<AdminTokenRecord> {
        let now = self.0.clock.now();
        let token = self.0.store.revoke_admin_token(id, now).await?;
        token.ok_or(ServiceError::NotFound)
    }
}
