//! The one error envelope, and the exhaustive match from what went wrong to status and code.
//!
//! An [`ApiError`] leaves a handler without a body; [`super::middleware`] writes the body,
//! because only it knows the request id.

mod from;

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::{media::MediaLinks, record::GenerationRecord};
use crate::{
    domain::{
        generation::{FailureCode, Generation},
        validate::FieldError,
    },
    media::LinkError,
    service::{CreditsShort, ShortOf, TokenRefusal},
};

/// Seconds after which a request that found the database away may try again.
const DATABASE_RETRY_SECONDS: u64 = 2;
/// Seconds after which a request that holds or jobs were in the way of may try again.
const BUSY_RETRY_SECONDS: u64 = 1;

/// Classes of errors; `type` on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorType {
    /// The request itself is wrong.
    InvalidRequest,
    /// Who calls is not known.
    AuthenticationError,
    /// More credits are needed.
    InsufficientCredits,
    /// The caller may not do this.
    PermissionError,
    /// There is no such thing.
    NotFound,
    /// It does not fit the present state.
    Conflict,
    /// Fields failed their checks.
    ValidationError,
    /// Too much for now.
    RateLimited,
    /// The provider failed.
    ProviderError,
    /// Not now.
    Unavailable,
    /// Our fault.
    InternalError,
}

/// An error on its way to the client.
#[derive(Debug, Clone)]
pub struct ApiError(Box<Content>);

#[derive(Debug, Clone)]
struct Content {
    status: StatusCode,
    kind: ErrorType,
    code: &'static str,
    message: String,
    errors: Vec<FieldError>,
    retryable: bool,
    details: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
    generation: Option<Box<GenerationRecord>>,
}

impl ApiError {
    fn new(
        status: StatusCode,
        kind: ErrorType,
        code: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self(Box::new(Content {
            status,
            kind,
            code,
            message: message.into(),
            errors: Vec::new(),
            retryable: false,
            details: Map::new(),
            headers: Vec::new(),
            generation: None,
        }))
    }

    fn retryable(mut self) -> Self {
        self.0.retryable = true;
        self
    }

    fn header(mut self, name: HeaderName, value: impl Into<HeaderValue>) -> Self {
        self.0.headers.push((name, value.into()));
        self
    }

    fn retry_after(self, seconds: u64) -> Self {
        self.retryable().header(header::RETRY_AFTER, seconds)
    }

    fn detail(mut self, name: &str, value: impl Serialize) -> Self {
        self.0.details.insert(name.to_owned(), json!(value));
        self
    }

    /// 400.
    pub fn malformed_json(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            ErrorType::InvalidRequest,
            "malformed_json",
            message,
        )
    }

    /// 400.
    pub fn invalid_header(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            ErrorType::InvalidRequest,
            "invalid_header",
            message,
        )
    }

    /// 401.
    pub fn token(refusal: TokenRefusal) -> Self {
        let (code, message) = match refusal {
            TokenRefusal::Missing => (
                "missing_token",
                "send a token: Authorization: Bearer <API key or session token>",
            ),
            TokenRefusal::Invalid => ("invalid_token", "the token is not valid"),
            TokenRefusal::Revoked => ("revoked_key", "the key or token has been revoked"),
            TokenRefusal::Expired => ("expired_key", "the API key has expired"),
        };
        Self::new(
            StatusCode::UNAUTHORIZED,
            ErrorType::AuthenticationError,
            code,
            message,
        )
        .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
    }

    /// 403 of a media link.
    pub fn link(error: LinkError) -> Self {
        let (code, message) = match error {
            LinkError::InvalidSignature => {
                ("invalid_signature", "the link was not made by this server")
            }
            LinkError::Expired => (
                "expired_signature",
                "the link has expired; look the generation up again",
            ),
        };
        Self::new(
            StatusCode::FORBIDDEN,
            ErrorType::PermissionError,
            code,
            message,
        )
    }

    /// 403 of the metrics without a token of their own.
    pub fn loopback_only() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            ErrorType::PermissionError,
            "loopback_only",
            "only this machine may read the metrics, unless metrics.token is set",
        )
    }

    /// 416, with the length that there is.
    pub fn range(bytes: u64) -> Self {
        let error = Self::new(
            StatusCode::RANGE_NOT_SATISFIABLE,
            ErrorType::InvalidRequest,
            "range_not_satisfiable",
            format!("the range does not lie within the file's {bytes} bytes"),
        );
        match HeaderValue::from_str(&format!("bytes */{bytes}")) {
            Ok(value) => error.header(header::CONTENT_RANGE, value),
            Err(_) => error,
        }
    }

    /// 404.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            ErrorType::NotFound,
            "not_found",
            message,
        )
    }

    /// 422 with every failing field.
    pub fn invalid(errors: Vec<FieldError>) -> Self {
        let mut error = Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            ErrorType::ValidationError,
            "validation_failed",
            "",
        );
        let mut sentences = errors.iter().map(|e| format!("{} {}", e.param, e.message));
        let first = sentences.next().unwrap_or_default();
        error.0.message = match sentences.count() {
            0 => first,
            more => format!("{first} (and {more} more)"),
        };
        error.0.errors = errors;
        error
    }

    /// 500. What happened goes to the log only.
    pub fn internal() -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            ErrorType::InternalError,
            "internal_error",
            "something went wrong on our side",
        )
        .retryable()
    }

    /// The envelope for a bare status that a library answered with.
    pub fn from_status(status: StatusCode) -> Self {
        let (kind, code, message) = match status {
            StatusCode::NOT_FOUND => (ErrorType::NotFound, "not_found", "there is nothing here"),
            StatusCode::METHOD_NOT_ALLOWED => (
                ErrorType::InvalidRequest,
                "method_not_allowed",
                "this path does not take this method",
            ),
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE | StatusCode::URI_TOO_LONG => (
                ErrorType::InvalidRequest,
                "invalid_header",
                "the request's first line or headers are too large",
            ),
            StatusCode::REQUEST_TIMEOUT => (
                ErrorType::InvalidRequest,
                "request_timeout",
                "the request did not arrive in time",
            ),
            StatusCode::PAYLOAD_TOO_LARGE => (
                ErrorType::InvalidRequest,
                "payload_too_large",
                "the body is too large",
            ),
            StatusCode::UNSUPPORTED_MEDIA_TYPE => (
                ErrorType::InvalidRequest,
                "unsupported_media_type",
                "send the body as Content-Type: application/json, without a Content-Encoding",
            ),
            other if other.is_client_error() => (
                ErrorType::InvalidRequest,
                "invalid_header",
                "the request could not be read",
            ),
            _ => return Self::internal(),
        };
        let error = Self::new(status, kind, code, message);
        if status == StatusCode::REQUEST_TIMEOUT {
            error.retryable()
        } else {
            error
        }
    }

    /// The answer for a synchronous generation that failed: the envelope, and the record
    /// beside it.
    pub fn failed_generation(generation: &Generation, links: &MediaLinks) -> Self {
        use ErrorType::{Conflict, ProviderError, Unavailable};
        let record = Box::new(GenerationRecord::of(generation, links));
        let Some(failure) = &generation.failure else {
            tracing::error!(generation = %generation.id, "a failed generation without a reason");
            return Self::internal();
        };
        let (status, kind, code) = match failure.code {
            FailureCode::ProviderError => {
                (StatusCode::BAD_GATEWAY, ProviderError, "provider_error")
            }
            FailureCode::ProviderRejected => {
                (StatusCode::BAD_GATEWAY, ProviderError, "provider_rejected")
            }
            FailureCode::ContentPolicy => {
                (StatusCode::BAD_GATEWAY, ProviderError, "content_policy")
            }
            FailureCode::ProviderOverloaded => (
                StatusCode::SERVICE_UNAVAILABLE,
                Unavailable,
                "provider_overloaded",
            ),
            FailureCode::StorageUnavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                Unavailable,
                "storage_unavailable",
            ),
            FailureCode::ProviderTimeout | FailureCode::Expired => (
                StatusCode::GATEWAY_TIMEOUT,
                ProviderError,
                "provider_timeout",
            ),
            FailureCode::Interrupted => (
                StatusCode::SERVICE_UNAVAILABLE,
                Unavailable,
                "shutting_down",
            ),
            FailureCode::Cancelled => (StatusCode::CONFLICT, Conflict, "cancelled"),
        };
        let mut error = Self::new(status, kind, code, failure.message.clone());
        error.0.retryable = failure.code.retryable();
        error.0.generation = Some(record);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            error = error.header(header::RETRY_AFTER, BUSY_RETRY_SECONDS);
        }
        error
    }

    fn short(short: &CreditsShort) -> Self {
        let required = short.required;
        let (status, kind, code, message) = match short.of {
            ShortOf::MaxCost => (
                StatusCode::PAYMENT_REQUIRED,
                ErrorType::InsufficientCredits,
                "max_cost_exceeded",
                format!("this request may cost {required} credits, which is above its max_cost"),
            ),
            ShortOf::SpendLimit(cap) => (
                StatusCode::PAYMENT_REQUIRED,
                ErrorType::InsufficientCredits,
                "spend_limit_exceeded",
                format!(
                    "this request may cost {required} credits; the key's spend_limit is {}, of which {} are spent or on hold",
                    cap.limit, cap.spent
                ),
            ),
            ShortOf::Balance => (
                StatusCode::PAYMENT_REQUIRED,
                ErrorType::InsufficientCredits,
                "insufficient_credits",
                format!(
                    "this request may cost {required} credits; the balance is {}",
                    short.balance.balance
                ),
            ),
            ShortOf::Holds => (
                StatusCode::TOO_MANY_REQUESTS,
                ErrorType::RateLimited,
                "credits_on_hold",
                format!(
                    "this request may cost {required} credits; {} are available while running work holds {}",
                    short.balance.available(),
                    short.balance.held
                ),
            ),
        };
        let affordable = short.affordable.map(|(name, most)| json!({ name: most }));
        let error = Self::new(status, kind, code, message)
            .detail("required", required)
            .detail("balance", short.balance.balance)
            .detail("held", short.balance.held)
            .detail("available", short.balance.available())
            .detail("shortfall", short.shortfall)
            .detail("affordable", affordable);
        match short.of {
            ShortOf::Holds => error.retry_after(BUSY_RETRY_SECONDS),
            ShortOf::SpendLimit(cap) => error.detail("limit", cap.limit).detail("spent", cap.spent),
            ShortOf::MaxCost | ShortOf::Balance => error,
        }
    }

    /// 503: this process has as much to do as it may.
    pub fn overloaded() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            ErrorType::Unavailable,
            "overloaded",
            "the server has too much to do just now",
        )
        .retry_after(BUSY_RETRY_SECONDS)
    }

    /// 503: files can be neither stored nor read.
    pub fn storage_unavailable() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            ErrorType::Unavailable,
            "storage_unavailable",
            "the file storage cannot be reached at the moment",
        )
        .retry_after(BUSY_RETRY_SECONDS)
    }

    /// 503: the database is away, or was set back.
    pub fn database_unavailable() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            ErrorType::Unavailable,
            "database_unavailable",
            "the database cannot be reached at the moment",
        )
        .retry_after(DATABASE_RETRY_SECONDS)
    }

    /// The body, with the request's id.
    pub fn body(&self, request_id: &str) -> String {
        let Content {
            kind,
            code,
            message,
            errors,
            retryable,
            details,
            generation,
            ..
        } = &*self.0;
        let error = ErrorBody {
            r#type: *kind,
            code,
            message,
            param: errors.first().map(|error| error.param.as_str()),
            errors,
            retryable: *retryable,
            request_id,
            details,
        };
        let generation = generation.as_deref();
        serde_json::to_string(&Envelope { error, generation }).unwrap_or_default()
    }
}

/// The members, in the order in which they are written.
#[derive(Serialize)]
struct Envelope<'a> {
    error: ErrorBody<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<&'a GenerationRecord>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    r#type: ErrorType,
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    param: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [FieldError],
    retryable: bool,
    request_id: &'a str,
    #[serde(flatten)]
    details: &'a Map<String, Value>,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.0.status.into_response();
        for (name, value) in &self.0.headers {
            response.headers_mut().insert(name, value.clone());
        }
        response.extensions_mut().insert(self);
        response
    }
}
