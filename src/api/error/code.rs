//! Error codes: name, status and type of each.

use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

/// Classes of errors; `type` on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorType {
    /// The request itself is wrong.
    InvalidRequest,
    /// The caller is unknown.
    AuthenticationError,
    /// More credits are needed.
    InsufficientCredits,
    /// The caller lacks a permission.
    PermissionError,
    /// The object does not exist.
    NotFound,
    /// The request conflicts with the current state.
    Conflict,
    /// Fields failed their checks.
    ValidationError,
    /// A limit is reached; retry later.
    RateLimited,
    /// The provider failed.
    ProviderError,
    /// The server is temporarily unavailable.
    Unavailable,
    /// A failure of this server.
    InternalError,
}

macro_rules! codes {
    ($($name:ident = $text:literal, $status:ident $kind:ident;)+) => {
        /// `code` of an error.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Code {
            $($name,)+
        }

        impl Code {
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)+ }
            }

            pub const fn kind(self) -> ErrorType {
                match self { $(Self::$name => ErrorType::$kind,)+ }
            }
        }
    };
}

codes! {
    MalformedJson = "malformed_json", BAD_REQUEST InvalidRequest;
    InvalidHeader = "invalid_header", BAD_REQUEST InvalidRequest;
    ContextLengthExceeded = "context_length_exceeded", BAD_REQUEST InvalidRequest;
    MissingToken = "missing_token", UNAUTHORIZED AuthenticationError;
    InvalidToken = "invalid_token", UNAUTHORIZED AuthenticationError;
    RevokedKey = "revoked_key", UNAUTHORIZED AuthenticationError;
    ExpiredKey = "expired_key", UNAUTHORIZED AuthenticationError;
    InvalidCredentials = "invalid_credentials", UNAUTHORIZED AuthenticationError;
    InsufficientCredits = "insufficient_credits", PAYMENT_REQUIRED InsufficientCredits;
    MaxCostExceeded = "max_cost_exceeded", PAYMENT_REQUIRED InsufficientCredits;
    SpendLimitExceeded = "spend_limit_exceeded", PAYMENT_REQUIRED InsufficientCredits;
    MissingAbility = "missing_ability", FORBIDDEN PermissionError;
    SessionRequired = "session_required", FORBIDDEN PermissionError;
    AccountSuspended = "account_suspended", FORBIDDEN PermissionError;
    LoopbackOnly = "loopback_only", FORBIDDEN PermissionError;
    InvalidSignature = "invalid_signature", FORBIDDEN PermissionError;
    ExpiredSignature = "expired_signature", FORBIDDEN PermissionError;
    NotFound = "not_found", NOT_FOUND NotFound;
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED InvalidRequest;
    RequestTimeout = "request_timeout", REQUEST_TIMEOUT InvalidRequest;
    AlreadyFinished = "already_finished", CONFLICT Conflict;
    NotFinished = "not_finished", CONFLICT Conflict;
    Cancelled = "cancelled", CONFLICT Conflict;
    IdempotencyInProgress = "idempotency_in_progress", CONFLICT Conflict;
    ModelRetired = "model_retired", GONE NotFound;
    PayloadTooLarge = "payload_too_large", PAYLOAD_TOO_LARGE InvalidRequest;
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE InvalidRequest;
    RangeNotSatisfiable = "range_not_satisfiable", RANGE_NOT_SATISFIABLE InvalidRequest;
    ValidationFailed = "validation_failed", UNPROCESSABLE_ENTITY ValidationError;
    IdempotencyKeyReused = "idempotency_key_reused", UNPROCESSABLE_ENTITY ValidationError;
    ReferenceReused = "reference_reused", UNPROCESSABLE_ENTITY ValidationError;
    RateLimited = "rate_limited", TOO_MANY_REQUESTS RateLimited;
    CreditsOnHold = "credits_on_hold", TOO_MANY_REQUESTS RateLimited;
    TooManyLogins = "too_many_logins", TOO_MANY_REQUESTS RateLimited;
    TooManyJobs = "too_many_jobs", TOO_MANY_REQUESTS RateLimited;
    TooManyRequests = "too_many_requests", TOO_MANY_REQUESTS RateLimited;
    HeadersTooLarge = "headers_too_large", REQUEST_HEADER_FIELDS_TOO_LARGE InvalidRequest;
    InternalError = "internal_error", INTERNAL_SERVER_ERROR InternalError;
    ProviderError = "provider_error", BAD_GATEWAY ProviderError;
    ProviderRejected = "provider_rejected", BAD_GATEWAY ProviderError;
    ContentPolicy = "content_policy", BAD_GATEWAY ProviderError;
    Overloaded = "overloaded", SERVICE_UNAVAILABLE Unavailable;
    ProviderOverloaded = "provider_overloaded", SERVICE_UNAVAILABLE Unavailable;
    ShuttingDown = "shutting_down", SERVICE_UNAVAILABLE Unavailable;
    Paused = "paused", SERVICE_UNAVAILABLE Unavailable;
    DatabaseUnavailable = "database_unavailable", SERVICE_UNAVAILABLE Unavailable;
    StorageUnavailable = "storage_unavailable", SERVICE_UNAVAILABLE Unavailable;
    ProviderTimeout = "provider_timeout", GATEWAY_TIMEOUT ProviderError;
}
