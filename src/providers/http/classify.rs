//! Maps HTTP statuses and transport errors to [`ProviderErrorKind`].
//!
//! These rules apply to every vendor. An adapter adds the contents of the error body as an
//! [`ErrorInfo`]: one machine code, and the message if it is about the caller's input.

use std::{error::Error, fmt::Write as _, time::Duration};

use reqwest::header::HeaderMap;
use serde_json::Value;

use super::{
    super::{ProviderError, ProviderErrorKind},
    retry_after,
    vendor_message::VendorMessage,
};

/// Maximum length of a machine code.
const CODE_CAP: usize = 64;
/// Maximum bytes of a transport error in a log line.
const CHAIN_CAP: usize = 300;

/// Status and the relevant headers.
#[derive(Debug, Clone, Default)]
pub struct Head {
    pub status: u16,
    /// `x-request-id` or `request-id`.
    pub request_id: Option<String>,
    /// `retry-after-ms` or `retry-after`.
    pub retry_after: Option<Duration>,
    /// Time until the limit of a 429 is reset.
    pub resets_after: Option<Duration>,
    /// `x-should-retry: false`, which takes precedence over the status in OpenAI's SDKs.
    pub must_not_repeat: bool,
}

/// The contents of an error body, as read by an adapter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorInfo {
    /// The most specific machine code.
    pub code: Option<String>,
    /// The kind, for codes that take precedence over the status: content policy and billing.
    pub kind: Option<ProviderErrorKind>,
    /// The kind of an error inside a 200. With an error status, the status takes precedence.
    pub hint: Option<ProviderErrorKind>,
    pub retry_after: Option<Duration>,
    pub vendor_message: VendorMessage,
}

impl Head {
    pub fn read(status: u16, headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        Self {
            status,
            request_id: ["x-request-id", "request-id"]
                .into_iter()
                .find_map(|name| text(name).and_then(clean_id)),
            retry_after: retry_after::from_headers(headers),
            resets_after: retry_after::from_limits(headers).filter(|_| status == 429),
            must_not_repeat: text("x-should-retry").is_some_and(|v| v.trim() == "false"),
        }
    }

    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Adds status and request id to an error.
    #[must_use]
    pub fn with_context(&self, mut error: ProviderError) -> ProviderError {
        error.status = error.status.or(Some(self.status));
        error.request_id = error.request_id.or_else(|| self.request_id.clone());
        error
    }

    /// Creates the error of an unusable response with a success status.
    pub fn failed(&self, detail: &str) -> ProviderError {
        self.with_context(ProviderError::failed(detail))
    }

    /// Creates the error of a content policy refusal with a success status.
    pub fn refused(&self, code: Option<&str>) -> ProviderError {
        let detail = detail(self.status, code.and_then(machine_code).or(Some("refusal")));
        self.with_context(ProviderError::new(ProviderErrorKind::ContentPolicy, detail))
    }
}

/// Returns the kind by status, and whether the work is known not to have started.
pub fn by_status(status: u16) -> (ProviderErrorKind, bool) {
    match status {
        400 | 404 | 405 | 413 | 415 | 422 => (ProviderErrorKind::Rejected, false),
        401..=403 => (ProviderErrorKind::Account, false),
        408 | 504 => (ProviderErrorKind::Timeout, false),
        429 | 503 | 529 => (ProviderErrorKind::Overloaded, true),
        _ => (ProviderErrorKind::Failed, false),
    }
}

/// Creates the error of a response: by its status, refined by its body. Inside a 200 only the body
/// decides; work had started then, so it is never `not_started`, even on overload.
pub fn error(provider: &str, head: &Head, error_info: &ErrorInfo) -> ProviderError {
    let (by_status, is_idle) = by_status(head.status);
    let by_body = error_info.hint.filter(|_| head.is_success());
    let kind = error_info.kind.or(by_body).unwrap_or(by_status);
    let not_started = is_idle && kind == ProviderErrorKind::Overloaded && !head.must_not_repeat;
    let given = error_info.code.as_deref().unwrap_or_default();
    let is_refused = match kind {
        ProviderErrorKind::Account => (400..500).contains(&head.status),
        // The caller, not the operator, chose the voice.
        ProviderErrorKind::Rejected => head.status == 404 && !given.contains("voice"),
        _ => false,
    };
    let code = machine_code(given);
    if kind == ProviderErrorKind::Account {
        // Only the operator can fix this.
        tracing::error!(
            provider,
            status = head.status,
            code = code.unwrap_or("none"),
            "the provider refuses our account: check its key, permissions and funds"
        );
    }
    let message = &error_info.vendor_message;
    let overflow = message.overflow.filter(|_| {
        let may_be = matches!(
            kind,
            ProviderErrorKind::Rejected | ProviderErrorKind::Failed
        );
        may_be && head.status != 404
    });
    let kind = overflow.map_or(kind, |_| ProviderErrorKind::ContextLength);
    let mut error = head.with_context(ProviderError::new(kind, detail(head.status, code)));
    error.not_started = not_started;
    error.is_refused = is_refused;
    error.overflow = overflow.map(Box::new);
    // Other refusals are about the operator's account or configuration.
    let is_about_input = head.is_success() || matches!(head.status, 400 | 413 | 422);
    if overflow.is_some() || is_about_input && kind == ProviderErrorKind::Rejected {
        error.vendor_message.clone_from(&message.text);
    }
    let waits = [
        head.retry_after,
        error_info.retry_after,
        message.retry_after,
    ];
    error.retry_after = waits.into_iter().flatten().max().or(head.resets_after);
    error
}

/// Creates the error of a call that failed before its response was complete. Failures while
/// connecting (DNS, refused, TLS), including timeouts, are known not to have reached the provider.
pub fn transport(error: &reqwest::Error) -> ProviderError {
    let kind = if error.is_timeout() {
        ProviderErrorKind::Timeout
    } else {
        ProviderErrorKind::Failed
    };
    let stage = if error.is_connect() {
        "connect"
    } else {
        "transport"
    };
    let mut made = ProviderError::new(kind, chain(stage, error));
    made.not_started = error.is_connect();
    made
}

/// Returns the sources of a transport error, without its own text, which contains the URL.
fn chain(stage: &str, error: &reqwest::Error) -> String {
    let mut text = stage.to_owned();
    let mut next = error.source();
    while let Some(source) = next {
        // Writing to a String cannot fail.
        let _infallible = write!(text, ": {source}");
        next = source.source();
    }
    text.truncate(text.floor_char_boundary(CHAIN_CAP));
    text
}

/// Returns `text` if it is a short machine code (`[A-Za-z0-9_.-]{1,64}`). Sentences are refused.
pub fn machine_code(text: &str) -> Option<&str> {
    let ok = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    ((1..=CODE_CAP).contains(&text.len()) && text.chars().all(ok)).then_some(text)
}

/// Returns the value if it is a machine code.
pub fn code(value: Option<&Value>) -> Option<&str> {
    value.and_then(Value::as_str).and_then(machine_code)
}

/// Returns `text` if it is plausible as a provider's id: 1 to 128 visible ASCII characters.
pub fn clean_id(text: &str) -> Option<String> {
    let ok = (1..=2 * CODE_CAP).contains(&text.len()) && text.chars().all(|c| c.is_ascii_graphic());
    ok.then(|| text.to_owned())
}

fn detail(status: u16, code: Option<&str>) -> String {
    match code {
        Some(code) => format!("status {status}, code {code}"),
        None => format!("status {status}"),
    }
}
