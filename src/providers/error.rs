//! Upstream failures, in a closed set of kinds.
//!
//! The message for clients ([`ProviderError::message`]) and the detail for the log
//! ([`ProviderError::detail`]) are separate: an upstream body may repeat a prompt, which must not
//! be logged, or part of a key, which must not be shown.

use std::{fmt, time::Duration};

use crate::domain::{context::ContextOverflow, generation::ACCOUNT_REFUSED, named::named_enum};

named_enum!(
    /// The effect of an upstream failure on a generation. Metrics and traces use these names.
    ProviderErrorKind {
        /// The provider refused this request (400, 404, 413, 422): repeating it cannot help.
        Rejected = "rejected",
        /// The request does not fit the model's context.
        ContextLength = "context_length",
        /// A content policy refusal, in any form.
        ContentPolicy = "content_policy",
        /// 408, 504, or our own timeout.
        Timeout = "timeout",
        /// 429 (rate), 503, 529.
        Overloaded = "overloaded",
        /// Our account with the provider: an invalid key, no funds, no permission.
        Account = "account",
        /// Any other 5xx, a cut connection, an unreadable, empty or wrong-typed answer.
        Failed = "failed",
    }
);

#[derive(Debug, Clone)]
pub struct ProviderError {
    pub kind: ProviderErrorKind,
    /// Whether the provider is known not to have started the work: connection refused, 429 (rate),
    /// 503, 529. Only then may the call be repeated.
    pub not_started: bool,
    /// Whether the provider refused the call before any work, for a reason that only another
    /// provider or model avoids: our account (401 to 403, billing), or an unknown model (404).
    pub is_refused: bool,
    /// Whether one of our own limits ended the answer: its size, or the duration of its stream.
    pub is_over_limit: bool,
    /// HTTP status of the response, if there was one.
    pub status: Option<u16>,
    /// The retry delay that the provider requests.
    pub retry_after: Option<Duration>,
    /// The provider's request id, for its support.
    pub request_id: Option<String>,
    /// The provider's message about the caller's input, without the operator's keys, hosts and ids.
    pub vendor_message: Option<String>,
    /// The token counts of [`ProviderErrorKind::ContextLength`].
    pub overflow: Option<Box<ContextOverflow>>,
    /// For the log: a short code, or the transport's error. Never contains a body or a key.
    pub detail: String,
}

impl ProviderError {
    pub fn new(kind: ProviderErrorKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            not_started: false,
            is_refused: false,
            is_over_limit: false,
            status: None,
            retry_after: None,
            request_id: None,
            vendor_message: None,
            overflow: None,
            detail: detail.into(),
        }
    }

    /// Returns the message for clients: our own, followed by the provider's message about their
    /// input.
    pub fn message(&self) -> String {
        let own = match self.kind {
            ProviderErrorKind::Rejected => "the provider rejected the request",
            ProviderErrorKind::ContentPolicy => "the provider refused the content by its policy",
            ProviderErrorKind::Timeout => "the provider did not answer in time",
            ProviderErrorKind::Overloaded => "the provider is overloaded",
            // Returned alone: the stored message says that the failure is final.
            ProviderErrorKind::Account => return ACCOUNT_REFUSED.to_owned(),
            ProviderErrorKind::Failed => "the provider failed",
            ProviderErrorKind::ContextLength => {
                let overflow = self.overflow.as_deref().copied();
                let own = overflow.unwrap_or_default().to_string();
                return match &self.vendor_message {
                    Some(message) if !message.contains(&own) => format!("{own} ({message})"),
                    Some(message) => message.clone(),
                    None => own,
                };
            }
        };
        match &self.vendor_message {
            Some(message) => format!("{own}: {message}"),
            None => own.to_owned(),
        }
    }

    /// Creates the error of a failed call, or of an unusable answer.
    pub fn failed(detail: &str) -> Self {
        Self::new(ProviderErrorKind::Failed, detail)
    }

    /// Creates the error of an answer that exceeds one of our own limits.
    pub fn over_limit(detail: &str) -> Self {
        Self {
            is_over_limit: true,
            ..Self::failed(detail)
        }
    }

    /// Creates the error of a call that is refused before sending, as the provider would.
    pub fn rejected(detail: &str) -> Self {
        Self::new(ProviderErrorKind::Rejected, detail)
    }

    /// Marks work that is known not to have started upstream.
    #[must_use]
    pub fn not_started(mut self) -> Self {
        self.not_started = true;
        self
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.detail)?;
        if let Some(status) = self.status {
            write!(f, " (status {status})")?;
        }
        Ok(())
    }
}

impl std::error::Error for ProviderError {}
