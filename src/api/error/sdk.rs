//! Errors in the SDKs' formats, for all errors on their paths.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::{ApiError, BUSY_RETRY_SECONDS, Code, Content};
use crate::{api::context::Sdk, domain::validate::FieldCode, service::join_field_errors};

/// The SDKs' code for a refused parameter.
const UNSUPPORTED: &str = "unsupported_parameter";

/// Returns the status of a code. SDKs do not know 422 and retry every 5xx; the AI SDK also retries
/// every 409.
pub const fn sdk_status(code: Code) -> StatusCode {
    match (code, code.status()) {
        (Code::ProviderRejected | Code::ContentPolicy | Code::Cancelled, _)
        | (_, StatusCode::UNPROCESSABLE_ENTITY) => StatusCode::BAD_REQUEST,
        (_, status) => status,
    }
}

const fn is_unsupported(code: FieldCode) -> bool {
    matches!(
        code,
        FieldCode::NotSupported | FieldCode::UnknownField | FieldCode::NotAllowed
    )
}

impl Content {
    fn sdk_code(&self) -> Value {
        match self.errors.first().map(|error| error.code) {
            None => json!(self.code.as_str()),
            Some(FieldCode::UnknownModel) => json!("model_not_found"),
            Some(code) if is_unsupported(code) => json!(UNSUPPORTED),
            Some(code) => json!(code),
        }
    }

    fn anthropic_details(&self) -> Value {
        let unsupported = self.errors.iter();
        let unsupported = unsupported.filter(|error| is_unsupported(error.code));
        let unsupported: Vec<&str> = unsupported.map(|error| error.param.as_str()).collect();
        let mut details = json!({"error_code": self.sdk_code()});
        // The SDK's tool runner then continues without it.
        if unsupported.contains(&"thread") {
            details["error_code"] = json!("thread_unsupported_request");
        }
        if !unsupported.is_empty() {
            details["unsupported"] = json!(unsupported);
        }
        details
    }

    fn sdk_status(&self) -> StatusCode {
        match self.errors.first() {
            Some(error) if error.code == FieldCode::UnknownModel => StatusCode::NOT_FOUND,
            _ if self.status == self.code.status() => sdk_status(self.code),
            _ => self.status,
        }
    }

    /// Names every failing field, since SDKs show only the message.
    fn sdk_message(&self) -> String {
        match &self.errors[..] {
            [] => self.message.clone(),
            errors => join_field_errors(errors),
        }
    }
}

impl ApiError {
    /// Returns the status and the body in the SDK's format.
    pub fn for_sdk(&self, sdk: Sdk, request_id: &str) -> (StatusCode, String) {
        let content = &self.0;
        let (status, message) = (content.sdk_status(), content.sdk_message());
        let mut error = match sdk {
            Sdk::OpenAi => json!({
                "message": message,
                "type": openai_type(status),
                "param": content.errors.first().map(|error| &error.param),
                "code": content.sdk_code(),
            }),
            Sdk::Anthropic => json!({
                "type": anthropic_type(status),
                "message": message,
                "details": content.anthropic_details(),
            }),
        };
        // Such as `affordable` and `required` of a 402.
        for (name, value) in &content.details {
            error[name] = value.clone();
        }
        if let Some(generation) = self.generation() {
            error["generation"] = json!(generation);
        }
        let body = match sdk {
            Sdk::OpenAi => json!({ "error": error }),
            Sdk::Anthropic => json!({"type": "error", "error": error, "request_id": request_id}),
        };
        (status, body.to_string())
    }

    /// Adds the headers by which an SDK decides whether to retry.
    pub fn add_sdk_headers(&self, headers: &mut HeaderMap) {
        let retry = if self.0.retryable { "true" } else { "false" };
        headers.insert("x-should-retry", HeaderValue::from_static(retry));
        if !self.0.retryable {
            headers.remove(header::RETRY_AFTER);
            return;
        }
        let seconds = headers.get(header::RETRY_AFTER);
        let seconds = seconds.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let seconds = seconds.unwrap_or(BUSY_RETRY_SECONDS);
        headers.insert(header::RETRY_AFTER, seconds.into());
        headers.insert("retry-after-ms", seconds.saturating_mul(1000).into());
    }
}

/// The generation behind a response.
pub const GENERATION: HeaderName = HeaderName::from_static("x-gensvc-generation");

fn openai_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        402 => "insufficient_credits",
        403 => "permission_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    }
}

fn anthropic_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 | 410 => "not_found_error",
        429 => "rate_limit_error",
        408 | 504 => "timeout_error",
        503 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}
