//! From what went wrong to its code: the exhaustive matches.

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
    #[expect(clippy::too_many_lines, reason = "one arm for each error")]
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Token(refusal) => Self::token(refusal),
            ServiceError::RateLimited(rate) => Self::new(
                Code::RateLimited,
                format!("over the limit of {} requests per minute", rate.limit),
            )
            .retry_after(rate.retry_after_seconds.unwrap_or(1)),
            ServiceError::MissingAbility(ability) => Self::new(
                Code::MissingAbility,
                format!("the API key lacks the ability {ability}"),
            )
            .detail("required_ability", ability),
            ServiceError::SessionRequired => Self::new(
                Code::SessionRequired,
                "this needs a session token from POST /v1/auth/login, not an API key",
            ),
            ServiceError::CappedKey => Self::new(
                Code::SessionRequired,
                "an API key with a spend_limit cannot make API keys; use a session token, or a key without a spend_limit",
            ),
            ServiceError::AdminRequired => Self::new(
                Code::MissingAbility,
                "this needs an admin token, which only the operator can make",
            )
            .detail("required_ability", "admin"),
            ServiceError::Suspended => {
                Self::new(Code::AccountSuspended, "the account is suspended")
            }
            ServiceError::InvalidCredentials => {
                Self::new(Code::InvalidCredentials, "email or password is wrong").unauthenticated()
            }
            ServiceError::TooManyLogins(seconds) => Self::new(
                Code::TooManyLogins,
                "too many failed logins with this email from this address",
            )
            .retry_after(seconds),
            ServiceError::Invalid(errors) => Self::invalid(errors),
            ServiceError::StorageUnavailable => Self::storage_unavailable(),
            ServiceError::ContextLength(overflow) => {
                Self::new(Code::ContextLengthExceeded, overflow.to_string())
            }
            ServiceError::NotFound => Self::not_found("not found"),
            ServiceError::Deleted => Self::not_found("the generation was deleted"),
            ServiceError::Lost => Self::database_unavailable(),
            ServiceError::IdempotencyKeyReused => Self::new(
                Code::IdempotencyKeyReused,
                "this Idempotency-Key was used with a different request",
            ),
            ServiceError::ReferenceReused(_) => Self::new(Code::ReferenceReused, error.to_string()),
            ServiceError::IdempotencyInProgress => Self::busy(
                Code::IdempotencyInProgress,
                "the first request with this Idempotency-Key, or the first attempt at this request, is still running",
            ),
            ServiceError::TooManyJobs(most) => Self::busy(
                Code::TooManyJobs,
                format!("the account has {most} unfinished jobs, its limit"),
            ),
            ServiceError::TooManyRequests(ShareReached { most, provider }) => {
                let running = provider.map_or_else(
                    || "synchronous generations running".to_owned(),
                    |name| format!("generations running with {name}"),
                );
                let message = format!("the account has {most} {running}, its limit");
                Self::busy(Code::TooManyRequests, message)
            }
            ServiceError::InputsStored { used, quota } => {
                let message = format!(
                    "the account's uploads use {} of {quota} bytes; {} of these are inputs sent \
                     within requests and are removed when no work can need them",
                    used.all, used.transient
                );
                Self::busy(Code::TooManyRequests, message).retry_after(60)
            }
            ServiceError::CreditsShort(short) => Self::short(&short),
            ServiceError::AlreadyFinished => {
                Self::new(Code::AlreadyFinished, "the generation is finished")
            }
            ServiceError::NotFinished => Self::new(
                Code::NotFinished,
                "the generation is not finished; cancel it first",
            ),
            ServiceError::ShuttingDown => {
                Self::busy(Code::ShuttingDown, "the server is shutting down")
            }
            ServiceError::Paused => Self::busy(
                Code::Paused,
                "this server is paused (jobs.paused): it takes no work, and ends and moves nothing",
            ),
            ServiceError::ProviderBusy(provider) => Self::busy(
                Code::ProviderOverloaded,
                format!(
                    "{provider} is at its concurrency limit (max_concurrent); no credits were held"
                ),
            ),
            ServiceError::NoCandidate(left) => Self::new(
                Code::ProviderOverloaded,
                "every candidate has failed several times within seconds and is skipped for a \
                 while; no credits were held",
            )
            .retry_after(left.as_secs() + 1),
            ServiceError::NotCounted(error) => Self::not_counted(&error),
            ServiceError::CatalogueChanged(_) => Self::busy(
                Code::Overloaded,
                "prices changed while the request was being accepted; no credits were held",
            ),
            ServiceError::Overloaded => Self::overloaded(),
            ServiceError::Store(error) => error.into(),
            ServiceError::Unconfirmed(generation, error) => {
                let cause = &error as &dyn std::error::Error;
                tracing::warn!(generation = %generation.id, error = cause, "a hold is unconfirmed");
                Self::unconfirmed(*generation)
            }
            ServiceError::StoppedWaiting(generation) => Self::new(
                Code::ShuttingDown,
                "the server is shutting down; the generation continues, and its record can be read later",
            )
            .header(header::RETRY_AFTER, BUSY_RETRY_SECONDS)
            .unfinished(*generation),
            ServiceError::TooManyWait(generation) => Self::new(
                Code::Overloaded,
                "too many requests of the account wait; the generation continues, and its record can be read later",
            )
            .header(header::RETRY_AFTER, BUSY_RETRY_SECONDS)
            .unfinished(*generation),
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
