//! From what went wrong to status and code: the exhaustive matches.

use http::{HeaderValue, StatusCode, header};

use super::{ApiError, BUSY_RETRY_SECONDS, ErrorType};
use crate::{service::ServiceError, store::StoreError};

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let cause = &error as &dyn std::error::Error;
        if let StoreError::Unavailable(_) = error {
            tracing::warn!(error = cause, "the database is unavailable");
            return Self::database_unavailable();
        }
        tracing::error!(error = cause, "the database failed");
        Self::internal()
    }
}

impl From<ServiceError> for ApiError {
    fn from(error: ServiceError) -> Self {
        use ErrorType::{
            AuthenticationError, Conflict, PermissionError, RateLimited, Unavailable,
            ValidationError,
        };
        let of = |status, kind| move |code, message: &str| Self::new(status, kind, code, message);
        let permission = of(StatusCode::FORBIDDEN, PermissionError);
        let conflict = of(StatusCode::CONFLICT, Conflict);
        let unprocessable = of(StatusCode::UNPROCESSABLE_ENTITY, ValidationError);
        let busy = of(StatusCode::TOO_MANY_REQUESTS, RateLimited);
        let unavailable = of(StatusCode::SERVICE_UNAVAILABLE, Unavailable);
        match error {
            ServiceError::Token(refusal) => Self::token(refusal),
            ServiceError::RateLimited(rate) => busy(
                "rate_limited",
                &format!("over the limit of {} requests per minute", rate.limit),
            )
            .retry_after(rate.retry_after_seconds.unwrap_or(1)),
            ServiceError::MissingAbility(ability) => permission(
                "missing_ability",
                &format!("the API key lacks the ability {ability}"),
            )
            .detail("required_ability", ability),
            ServiceError::SessionRequired => permission(
                "session_required",
                "this needs a session token from POST /v1/auth/login, not an API key",
            ),
            ServiceError::CappedKey => permission(
                "session_required",
                "an API key with a spend_limit cannot make API keys; use a session token, or a key without a spend_limit",
            ),
            ServiceError::AdminRequired => permission(
                "missing_ability",
                "this needs an admin token, which only the operator can make",
            )
            .detail("required_ability", "admin"),
            ServiceError::Suspended => permission("account_suspended", "the account is suspended"),
            ServiceError::InvalidCredentials => Self::new(
                StatusCode::UNAUTHORIZED,
                AuthenticationError,
                "invalid_credentials",
                "email or password is wrong",
            )
            .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
            ServiceError::TooManyLogins(seconds) => busy(
                "too_many_logins",
                "too many failed logins with this email from this address",
            )
            .retry_after(seconds),
            ServiceError::Invalid(errors) => Self::invalid(errors),
            ServiceError::NotFound => Self::not_found("there is nothing of yours under this id"),
            ServiceError::IdempotencyKeyReused => unprocessable(
                "idempotency_key_reused",
                "this Idempotency-Key was used with a different request",
            ),
            ServiceError::ReferenceReused(_) => {
                unprocessable("reference_reused", &error.to_string())
            }
            ServiceError::IdempotencyInProgress => conflict(
                "idempotency_in_progress",
                "the first request with this Idempotency-Key is still running",
            )
            .retry_after(BUSY_RETRY_SECONDS),
            ServiceError::TooManyJobs(most) => busy(
                "too_many_jobs",
                &format!(
                    "the account has {most} unfinished generations, which is the most it may have"
                ),
            )
            .retry_after(BUSY_RETRY_SECONDS),
            ServiceError::CreditsShort(short) => Self::short(&short),
            ServiceError::AlreadyFinished => {
                conflict("already_finished", "the generation is finished")
            }
            ServiceError::CancelRequested => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                Unavailable,
                "overloaded",
                "the cancel was requested, but the server that streams the text is not answering",
            )
            .retry_after(BUSY_RETRY_SECONDS),
            ServiceError::NotFinished => conflict(
                "not_finished",
                "the generation is not finished; cancel it first",
            ),
            ServiceError::ShuttingDown => {
                unavailable("shutting_down", "the server is shutting down")
                    .retry_after(BUSY_RETRY_SECONDS)
            }
            ServiceError::ProviderBusy(provider) => unavailable(
                "provider_overloaded",
                &format!("{provider} has reached its limit of concurrent calls (max_concurrent); nothing was held"),
            )
            .retry_after(BUSY_RETRY_SECONDS),
            ServiceError::Overloaded => Self::overloaded(),
            ServiceError::Store(error) => error.into(),
            ServiceError::Internal(what) => {
                tracing::error!(what, "an internal error");
                Self::internal()
            }
        }
    }
}
