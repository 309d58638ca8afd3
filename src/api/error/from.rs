//! Maps errors of the service to codes, by exhaustive matches.

use http::header;

use super::{ApiError, BUSY_RETRY_SECONDS, Code};
use crate::{domain::share::ShareReached, service::ServiceError, store::StoreError};

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
        let message = error.to_string();
        match error {
            ServiceError::Token(refusal) => Self::token(refusal),
            ServiceError::RateLimited(rate) => Self::new(Code::RateLimited, message)
                .retry_after(rate.retry_after_seconds.unwrap_or(1)),
            ServiceError::MissingAbility(ability) => {
                Self::new(Code::MissingAbility, message).detail("required_ability", ability)
            }
            ServiceError::SessionRequired | ServiceError::CappedKey => {
                Self::new(Code::SessionRequired, message)
            }
            ServiceError::AdminRequired => {
                Self::new(Code::MissingAbility, message).detail("required_ability", "admin")
            }
            ServiceError::Suspended => Self::new(Code::AccountSuspended, message),
            ServiceError::InvalidCredentials => {
                Self::new(Code::InvalidCredentials, message).unauthenticated()
            }
            ServiceError::TooManyLogins(seconds) => {
                Self::new(Code::TooManyLogins, message).retry_after(seconds)
            }
            ServiceError::Invalid(errors) => Self::invalid(errors),
            ServiceError::StorageUnavailable => Self::storage_unavailable(),
            ServiceError::ContextLength(_) => Self::new(Code::ContextLengthExceeded, message),
            ServiceError::NotFound | ServiceError::Deleted => Self::not_found(message),
            ServiceError::Lost => Self::database_unavailable(),
            ServiceError::IdempotencyKeyReused => Self::new(Code::IdempotencyKeyReused, message),
            ServiceError::ReferenceReused(_) => Self::new(Code::ReferenceReused, message),
            ServiceError::IdempotencyInProgress => Self::busy(Code::IdempotencyInProgress, message),
            ServiceError::TooManyJobs(_) => Self::busy(Code::TooManyJobs, message),
            ServiceError::TooManyRequests(ShareReached { most, provider }) => {
                let running = provider.map_or_else(
                    || "synchronous generations running".to_owned(),
                    |name| format!("generations running with {name}"),
                );
                let message = format!("the account has {most} {running}, its limit");
                Self::busy(Code::TooManyRequests, message)
            }
            ServiceError::InputsStored { .. } => {
                Self::busy(Code::TooManyRequests, message).retry_after(60)
            }
            ServiceError::CreditsShort(short) => Self::short(&short),
            ServiceError::AlreadyFinished => Self::new(Code::AlreadyFinished, message),
            ServiceError::NotFinished => Self::new(Code::NotFinished, message),
            ServiceError::ShuttingDown => Self::busy(Code::ShuttingDown, message),
            ServiceError::Paused => Self::busy(Code::Paused, message),
            ServiceError::ProviderBusy(_) => Self::busy(Code::ProviderOverloaded, message),
            ServiceError::NoCandidate(left) => {
                Self::new(Code::ProviderOverloaded, message).retry_after(left.as_secs() + 1)
            }
            ServiceError::NotCounted(error) => Self::not_counted(&error),
            ServiceError::CatalogueChanged(_) => Self::busy(Code::Overloaded, message),
            ServiceError::Overloaded => Self::overloaded(),
            ServiceError::Store(error) => error.into(),
            ServiceError::Unconfirmed(generation, error) => {
                let cause = &error as &dyn std::error::Error;
                tracing::warn!(generation = %generation.id, error = cause, "a hold is unconfirmed");
                Self::unconfirmed(*generation)
            }
            ServiceError::StoppedWaiting(generation) => Self::new(Code::ShuttingDown, message)
                .header(header::RETRY_AFTER, BUSY_RETRY_SECONDS)
                .naming(*generation),
            ServiceError::TooManyWait(generation) => Self::new(Code::Overloaded, message)
                .header(header::RETRY_AFTER, BUSY_RETRY_SECONDS)
                .naming(*generation),
            ServiceError::NotAsPresumed => {
                tracing::error!("a presumed key was not read");
                Self::internal()
            }
            ServiceError::Internal(what) => {
                tracing::error!(what, "an internal error");
                Self::internal()
            }
        }
    }
}
