//! What a handler of the operator takes: an admin token, and an account's id.

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::{
    api::{
        ApiState,
        error::ApiError,
        extract::{FromPath, bearer},
        middleware::CallerSlot,
    },
    domain::ids::{AccountId, AdminTokenId, ApiKeyId},
    service::{ServiceError, admin_tokens::Presented},
};

/// A request with a good admin token, within its rate limit: 401, 429, 403, in this order. A
/// type, so that a handler cannot forget it.
#[derive(Debug)]
pub struct Operator {
    pub token: AdminTokenId,
}

impl FromRequestParts<ApiState> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let token = bearer(&parts.headers).map_err(ApiError::token)?;
        let presented = state.service.authenticate_operator(token).await?;
        let rate = match &presented {
            Presented::Operator(_, rate) => *rate,
            Presented::Customer(known) => known.rate,
        };
        if let Some(slot) = parts.extensions.get::<CallerSlot>() {
            slot.set(&presented, state.service.now());
        }
        if rate.retry_after_seconds.is_some() {
            return Err(ServiceError::RateLimited(rate).into());
        }
        match presented {
            Presented::Operator(token, _) => Ok(Self { token }),
            Presented::Customer(known) => {
                known.caller.require_active()?;
                Err(ServiceError::AdminRequired.into())
            }
        }
    }
}

impl FromPath for AccountId {
    fn from_path(text: &str) -> Option<Self> {
        // All numeric ids are read alike.
        ApiKeyId::from_path(text).map(|id| Self(id.0))
    }
}
