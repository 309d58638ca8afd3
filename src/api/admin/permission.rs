//! The permission that operators' routes require.

use std::fmt;

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::{
    api::{
        ApiState,
        context::{is_counted, record_caller},
        error::ApiError,
        extract::bearer,
    },
    domain::ids::{AdminTokenId, UserId},
    service::{ServiceError, operators::Presented},
};

/// The caller of an operator's route: an admin token, or the session of an operator, within its
/// rate limit. Others are refused with 401, 429 or 403, checked in this order.
#[derive(Debug, Clone, Copy)]
pub enum Operator {
    Token(AdminTokenId),
    Person(UserId),
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token(id) => write!(f, "admin token {id}"),
            Self::Person(id) => write!(f, "user {id}"),
        }
    }
}

impl FromRequestParts<ApiState> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let token = bearer(&parts.headers).map_err(ApiError::token)?;
        let counts = is_counted(parts);
        let presented = state.service.authenticate_operator(token, counts).await?;
        record_caller(parts, counts, &presented, state.service.now());
        let rate = match &presented {
            Presented::Operator(_, rate) => Some(*rate),
            Presented::Customer(caller) => caller.rate(),
        };
        if let Some(rate) = rate.filter(|rate| rate.retry_after_seconds.is_some()) {
            return Err(ServiceError::RateLimited(rate).into());
        }
        match presented {
            Presented::Operator(token, _) => Ok(Self::Token(token)),
            Presented::Customer(caller) => {
                caller.require_active()?;
                let user = caller.user_id.filter(|_| caller.operator);
                let user = user.ok_or(ServiceError::AdminRequired)?;
                Ok(Self::Person(user))
            }
        }
    }
}
