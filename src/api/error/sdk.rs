//! Errors as the SDKs know them: on their paths every error has their shape.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{ApiError, Code, Content};
use crate::{
    api::context::Sdk,
    domain::{ids::GenerationId, validate::FieldCode},
};

/// What an SDK calls a parameter that is refused.
const UNSUPPORTED: &str = "unsupported_parameter";

/// An error on the paths of OpenAI's SDKs.
#[derive(Serialize, ToSchema)]
pub struct OpenAiError<'a> {
    /// The error.
    error: OpenAiErrorBody<'a>,
}

/// What went wrong.
#[derive(Serialize, ToSchema)]
pub struct OpenAiErrorBody<'a> {
    /// For people.
    message: &'a str,
    /// Its class.
    r#type: &'static str,
    /// The first failing field.
    #[schema(required, nullable)]
    param: Option<&'a str>,
    /// For programs.
    code: String,
    /// Additional members, such as `affordable` and `required` of a 402.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    more: &'a Map<String, Value>,
    /// The uuid of the generation that failed or continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<GenerationId>,
}

/// An error on the paths of Anthropic's SDKs.
#[derive(Serialize, ToSchema)]
pub struct AnthropicError<'a> {
    /// `error`
    r#type: &'static str,
    /// The error.
    error: AnthropicErrorBody<'a>,
    /// The request's id.
    request_id: &'a str,
}

/// What went wrong.
#[derive(Serialize, ToSchema)]
pub struct AnthropicErrorBody<'a> {
    /// Its class.
    r#type: &'static str,
    /// For people.
    message: &'a str,
    /// For programs.
    details: AnthropicErrorDetails<'a>,
    /// Additional members, such as `affordable` and `required` of a 402.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    more: &'a Map<String, Value>,
    /// The uuid of the generation that failed or continues.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<GenerationId>,
}

/// What went wrong, for programs.
#[derive(Serialize, ToSchema)]
pub struct AnthropicErrorDetails<'a> {
    /// Its code.
    error_code: String,
    /// The parameters that are not supported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unsupported: Vec<&'a str>,
}

/// The status of a code: SDKs know no 422, and repeat every 5xx.
pub const fn sdk_status(code: Code) -> StatusCode {
    match (code, code.status()) {
        (Code::ProviderRejected | Code::ContentPolicy, _)
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
    fn sdk_code(&self) -> String {
        match self.errors.first().map(|error| error.code) {
            None => self.code.as_str().to_owned(),
            Some(FieldCode::UnknownModel) => "model_not_found".to_owned(),
            Some(code) if is_unsupported(code) => UNSUPPORTED.to_owned(),
            Some(code) => serde_json::to_value(code)
                .ok()
                .and_then(|code| code.as_str().map(str::to_owned))
                .unwrap_or_default(),
        }
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
        if self.errors.is_empty() {
            return self.message.clone();
        }
        let sentences = self.errors.iter();
        let sentences = sentences.map(|error| format!("{} {}", error.param, error.message));
        sentences.collect::<Vec<_>>().join("; ")
    }
}

impl ApiError {
    /// The status and the body, as an SDK has them.
    pub fn for_sdk(&self, sdk: Sdk, request_id: &str) -> (StatusCode, String) {
        let content = &self.0;
        let (status, message) = (content.sdk_status(), content.sdk_message());
        let body = match sdk {
            Sdk::OpenAi => serde_json::to_string(&OpenAiError {
                error: OpenAiErrorBody {
                    message: &message,
                    r#type: openai_type(status),
                    param: content.errors.first().map(|error| error.param.as_str()),
                    code: content.sdk_code(),
                    more: &content.details,
                    generation: self.generation(),
                },
            }),
            Sdk::Anthropic => serde_json::to_string(&AnthropicError {
                r#type: "error",
                error: AnthropicErrorBody {
                    r#type: anthropic_type(status),
                    message: &message,
                    details: self.anthropic_details(),
                    more: &content.details,
                    generation: self.generation(),
                },
                request_id,
            }),
        };
        // Strings and numbers only: this cannot fail.
        (status, body.unwrap_or_default())
    }

    fn anthropic_details(&self) -> AnthropicErrorDetails<'_> {
        let unsupported = self.0.errors.iter();
        let unsupported = unsupported.filter(|error| is_unsupported(error.code));
        let unsupported: Vec<&str> = unsupported.map(|error| error.param.as_str()).collect();
        // The SDK's tool runner then continues without it.
        let error_code = if unsupported.contains(&"thread") {
            "thread_unsupported_request".to_owned()
        } else {
            self.0.sdk_code()
        };
        AnthropicErrorDetails {
            error_code,
            unsupported,
        }
    }

    /// Adds the headers by which an SDK decides whether to retry.
    pub fn add_sdk_headers(&self, headers: &mut HeaderMap) {
        let retry = if self.0.retryable { "true" } else { "false" };
        headers.insert("x-should-retry", HeaderValue::from_static(retry));
        if !self.0.retryable {
            headers.remove(header::RETRY_AFTER);
        }
        let seconds = headers.get(header::RETRY_AFTER);
        let seconds = seconds.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if let Some(seconds) = seconds {
            headers.insert("retry-after-ms", seconds.saturating_mul(1000).into());
        }
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
