//! The one error envelope, and the exhaustive match from what went wrong to its code.
//!
//! An [`ApiError`] leaves a handler without a body; [`super::middleware`] writes the body,
//! because only it knows the request id.

mod code;
mod example;
mod from;
mod sdk;

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::{Map, Value, json};

pub use code::{Code, ErrorType};
pub use sdk::{GENERATION, sdk_status};

use super::{links::MediaLinks, record::GenerationRecord};
use crate::{
    domain::{
        generation::{ACCOUNT_REFUSED, Failure, FailureCode, Generation},
        ids::GenerationId,
        usage::TextUsage,
        validate::{FieldCode, FieldError},
    },
    media::LinkError,
    providers::{ProviderError, ProviderErrorKind},
    service::{CreditsShort, ShortOf, TokenRefusal},
};

/// Seconds after which a request that found the database unavailable may be retried.
const DATABASE_RETRY_SECONDS: u64 = 2;
/// Seconds after which a request may be retried that holds, jobs or load were in the way of, or that
/// an SDK may retry for any other reason.
const BUSY_RETRY_SECONDS: u64 = 1;
/// The longest wait that is passed on from a provider.
const MAX_RETRY_SECONDS: u64 = 600;

#[derive(Debug, Clone)]
pub struct ApiError(Box<Content>);

#[derive(Debug, Clone)]
struct Content {
    code: Code,
    /// The code's status, unless a library answered with another one.
    status: StatusCode,
    message: String,
    errors: Vec<FieldError>,
    retryable: bool,
    details: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
    generation: Option<Box<GenerationRecord>>,
}

impl ApiError {
    fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(Content {
            code,
            status: code.status(),
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

    pub fn malformed_json(message: impl Into<String>) -> Self {
        Self::new(Code::MalformedJson, message)
    }

    pub fn invalid_header(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidHeader, message)
    }

    pub fn token(refusal: TokenRefusal) -> Self {
        let (code, message) = match refusal {
            TokenRefusal::Missing => (
                Code::MissingToken,
                "send a token: Authorization: Bearer <API key or session token>",
            ),
            TokenRefusal::Invalid => (Code::InvalidToken, "the token is not valid"),
            TokenRefusal::Revoked => (Code::RevokedKey, "the key or token has been revoked"),
            TokenRefusal::Expired => (Code::ExpiredKey, "the API key has expired"),
        };
        Self::new(code, message).unauthenticated()
    }

    fn unauthenticated(self) -> Self {
        self.header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
    }

    pub fn link(error: LinkError) -> Self {
        match error {
            LinkError::InvalidSignature => Self::new(
                Code::InvalidSignature,
                "the link was not signed by this server",
            ),
            LinkError::Expired => Self::new(
                Code::ExpiredSignature,
                "the link has expired; get a new one from the generation's record",
            ),
        }
    }

    /// 403 of the metrics where they have no token.
    pub fn loopback_only() -> Self {
        Self::new(
            Code::LoopbackOnly,
            "while metrics.token is not set, the metrics are served only on this machine, at 127.0.0.1 and metrics.port",
        )
    }

    /// 416, with the file's length.
    pub fn range(bytes: u64) -> Self {
        let error = Self::new(
            Code::RangeNotSatisfiable,
            format!("the range is not within the file's {bytes} bytes"),
        );
        match HeaderValue::from_str(&format!("bytes */{bytes}")) {
            Ok(value) => error.header(header::CONTENT_RANGE, value),
            Err(_) => error,
        }
    }

    /// `allowed`: the methods of the path.
    pub fn method_not_allowed(allowed: &str) -> Self {
        let message = format!("this path does not take this method; it takes {allowed}");
        Self::new(Code::MethodNotAllowed, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// 422 with every failing field; 410 if one names a retired model.
    pub fn invalid(mut errors: Vec<FieldError>) -> Self {
        let is_retired = |error: &FieldError| error.code == FieldCode::ModelRetired;
        if let Some(retired) = errors.iter().position(is_retired) {
            let retired = errors.swap_remove(retired);
            let message = format!("{} {}", retired.param, retired.message);
            let mut error =
                Self::new(Code::ModelRetired, message).detail("replacement", &retired.replacement);
            error.0.errors = vec![retired];
            return error;
        }
        let mut sentences = errors.iter().map(|e| format!("{} {}", e.param, e.message));
        let first = sentences.next().unwrap_or_default();
        let message = match sentences.count() {
            0 => first,
            more => format!("{first} (and {more} more)"),
        };
        let mut error = Self::new(Code::ValidationFailed, message);
        error.0.errors = errors;
        error
    }

    /// 500. Only the log has the cause.
    pub fn internal() -> Self {
        Self::new(Code::InternalError, "something went wrong on our side").retryable()
    }

    /// The envelope for a bare status that a library answered with.
    pub fn from_status(status: StatusCode) -> Self {
        let mut error = match status {
            StatusCode::NOT_FOUND => Self::new(Code::NotFound, "not found"),
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => Self::new(
                Code::HeadersTooLarge,
                "the request's first line or headers are too large",
            ),
            StatusCode::REQUEST_TIMEOUT => {
                Self::new(Code::RequestTimeout, "the request did not arrive in time").retryable()
            }
            StatusCode::PAYLOAD_TOO_LARGE => {
                Self::new(Code::PayloadTooLarge, "the body is too large")
            }
            StatusCode::UNSUPPORTED_MEDIA_TYPE => return Self::media_type("application/json"),
            other if other.is_client_error() => {
                Self::new(Code::InvalidHeader, "the request could not be read")
            }
            _ => return Self::internal(),
        };
        error.0.status = status;
        error
    }

    /// The answer for a failed synchronous generation: the envelope with its record.
    pub fn failed_generation(generation: Generation, links: &MediaLinks) -> Self {
        let Some(failure) = &generation.failure else {
            tracing::error!(generation = %generation.id, "a failed generation without a reason");
            return Self::internal();
        };
        let mut error = Self::failed(failure.code, failure.message.clone(), failure.retry_after);
        error.0.generation = Some(Box::new(GenerationRecord::of(generation, links)));
        error
    }

    /// Returns the error for a request whose input the provider did not count.
    fn not_counted(error: &ProviderError) -> Self {
        let code = match error.kind {
            // The operator's configuration is wrong, not the request.
            ProviderErrorKind::Rejected if error.status == Some(404) => {
                return Self::failed(FailureCode::ProviderError, ACCOUNT_REFUSED, None);
            }
            ProviderErrorKind::Account => FailureCode::ProviderError,
            ProviderErrorKind::Rejected => FailureCode::ProviderRejected,
            ProviderErrorKind::ContextLength => FailureCode::ContextLengthExceeded,
            ProviderErrorKind::ContentPolicy => FailureCode::ContentPolicy,
            _ => {
                let message = "the provider did not count the tokens of the documents; no credits \
                               were held";
                let code = FailureCode::ProviderOverloaded;
                return Self::failed(code, message, error.retry_after);
            }
        };
        Self::failed(code, error.message(), None)
    }

    /// `retry_after`: how long the provider asks to wait.
    fn failed(
        code: FailureCode,
        message: impl Into<String>,
        retry_after: Option<Duration>,
    ) -> Self {
        let failure = Failure::new(code, message);
        let retryable = failure.is_retryable();
        let code = match code {
            FailureCode::ProviderError => Code::ProviderError,
            FailureCode::ProviderRejected => Code::ProviderRejected,
            FailureCode::ContextLengthExceeded => Code::ContextLengthExceeded,
            FailureCode::ContentPolicy => Code::ContentPolicy,
            FailureCode::ProviderOverloaded => Code::ProviderOverloaded,
            FailureCode::StorageUnavailable => Code::StorageUnavailable,
            FailureCode::ProviderTimeout | FailureCode::Expired => Code::ProviderTimeout,
            FailureCode::Interrupted => Code::ShuttingDown,
            FailureCode::Cancelled => Code::Cancelled,
        };
        let mut error = Self::new(code, failure.message);
        error.0.retryable = retryable;
        let asked = retry_after.filter(|_| retryable).map(|wait| {
            let seconds = wait.as_millis().div_ceil(1_000);
            let seconds = u64::try_from(seconds).unwrap_or(MAX_RETRY_SECONDS);
            seconds.clamp(BUSY_RETRY_SECONDS, MAX_RETRY_SECONDS)
        });
        let is_busy = code.status() == StatusCode::SERVICE_UNAVAILABLE;
        match asked.or(is_busy.then_some(BUSY_RETRY_SECONDS)) {
            Some(seconds) => error.header(header::RETRY_AFTER, seconds),
            None => error,
        }
    }

    /// Adds a generation, which the response names, without links to its files.
    #[must_use]
    pub fn naming(mut self, generation: Generation) -> Self {
        let record = GenerationRecord::of(generation, None::<&MediaLinks>);
        self.0.generation = Some(Box::new(record));
        self
    }

    /// 409: the owner cancelled the generation.
    pub fn cancelled() -> Self {
        Self::new(Code::Cancelled, "the generation was cancelled")
    }

    fn short(short: &CreditsShort) -> Self {
        let required = short.required;
        let (code, message) = match short.of {
            ShortOf::MaxCost => (
                Code::MaxCostExceeded,
                format!("this request may cost {required} credits, which is above its max_cost"),
            ),
            ShortOf::SpendLimit(cap) => (
                Code::SpendLimitExceeded,
                format!(
                    "this request may cost {required} credits; the key's spend_limit is {}, of which {} are spent or on hold",
                    cap.limit, cap.spent
                ),
            ),
            ShortOf::HoldsOfKey(cap) => (
                Code::CreditsOnHold,
                format!(
                    "this request may cost {required} credits; the key's spend_limit is {}, of which running work holds {}",
                    cap.limit, cap.held
                ),
            ),
            ShortOf::Balance => (
                Code::InsufficientCredits,
                format!(
                    "this request may cost {required} credits; the balance is {}",
                    short.balance.balance
                ),
            ),
            ShortOf::Holds => (
                Code::CreditsOnHold,
                format!(
                    "this request may cost {required} credits; {} are available while running work holds {}",
                    short.balance.available(),
                    short.balance.held
                ),
            ),
        };
        let affordable = short.affordable.map(|(name, most)| json!({ name: most }));
        let error = Self::new(code, message)
            .detail("required", required)
            .detail("balance", short.balance.balance)
            .detail("held", short.balance.held)
            .detail("available", short.balance.available())
            .detail("shortfall", short.shortfall)
            .detail("affordable", affordable);
        match short.of {
            ShortOf::Holds => error.retry_after(BUSY_RETRY_SECONDS),
            ShortOf::HoldsOfKey(cap) => error
                .detail("limit", cap.limit)
                .detail("spent", cap.spent)
                .retry_after(BUSY_RETRY_SECONDS),
            ShortOf::SpendLimit(cap) => error.detail("limit", cap.limit).detail("spent", cap.spent),
            ShortOf::MaxCost | ShortOf::Balance => error,
        }
    }

    /// 415, with the types that the route takes.
    pub fn media_type(types: &str) -> Self {
        let message = format!("send the body as Content-Type: {types}, without a Content-Encoding");
        Self::new(Code::UnsupportedMediaType, message)
    }

    fn busy(code: Code, message: impl Into<String>) -> Self {
        Self::new(code, message).retry_after(BUSY_RETRY_SECONDS)
    }

    pub fn overloaded() -> Self {
        Self::busy(Code::Overloaded, "the server is overloaded")
    }

    /// 503: files can be neither stored nor read.
    pub fn storage_unavailable() -> Self {
        Self::busy(
            Code::StorageUnavailable,
            "the file storage cannot be reached at the moment",
        )
    }

    /// 503: the database is unavailable, or was set back.
    pub fn database_unavailable() -> Self {
        let message = "the database cannot be reached at the moment";
        Self::new(Code::DatabaseUnavailable, message).retry_after(DATABASE_RETRY_SECONDS)
    }

    /// 503: the database did not say whether the generation was created.
    fn unconfirmed(generation: Generation) -> Self {
        let message = "the database did not confirm the request; look up the generation before you \
                       repeat the request";
        Self::new(Code::DatabaseUnavailable, message)
            .retry_after(DATABASE_RETRY_SECONDS)
            .naming(generation)
    }

    pub fn code(&self) -> Code {
        self.0.code
    }

    fn generation(&self) -> Option<GenerationId> {
        self.0.generation.as_ref().map(|record| record.summary.uuid)
    }

    /// The token counts of the generation that the error names, if they are known.
    pub fn usage(&self) -> Option<TextUsage> {
        let usage = self.0.generation.as_ref()?.summary.usage.clone()?;
        serde_json::from_value(usage).ok()
    }

    /// Writes the envelope, with its members in their documented order.
    pub fn body(&self, request_id: &str) -> String {
        let content = &self.0;
        let mut error = json!({
            "type": content.code.kind(),
            "code": content.code.as_str(),
            "message": content.message,
        });
        if let Some(first) = content.errors.first() {
            error["param"] = json!(first.param);
            error["errors"] = json!(content.errors);
        }
        for (name, value) in &content.details {
            error[name] = value.clone();
        }
        error["retryable"] = json!(content.retryable);
        error["request_id"] = json!(request_id);
        let mut body = json!({ "error": error });
        if let Some(generation) = &content.generation {
            body["generation"] = json!(generation);
        }
        body.to_string()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.0.status.into_response();
        for (name, value) in &self.0.headers {
            response.headers_mut().insert(name, value.clone());
        }
        if let Some(Ok(id)) = self.generation().map(|id| id.to_string().try_into()) {
            let id: HeaderValue = id;
            response.headers_mut().insert(GENERATION, id);
        }
        response.extensions_mut().insert(self);
        response
    }
}
