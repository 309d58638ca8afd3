//! The request context that all routes share. Imports no other file of `api`.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use http::{HeaderMap, HeaderName, HeaderValue, request::Parts};

use crate::{
    domain::{
        ids::{AccountId, AdminTokenId, ApiKeyId},
        limiter::Permit,
        party::Address,
        rate::RateState,
    },
    service::{ServiceError, auth::Caller},
    store::generations::Credential,
};

pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Number of earlier attempts of an SDK at the request.
pub const RETRY_COUNT: HeaderName = HeaderName::from_static("x-stainless-retry-count");

#[derive(Debug, Clone)]
pub struct RequestId(pub String);

/// The permit of a running request, by its sender. Released while its body arrives and while it
/// waits for a generation, so that slow senders and waiting requests do not block others.
pub type RequestPermit = Arc<Permit<Address>>;

/// Headers of the rate limit: the limit, the remaining requests, and the time until the reset.
const OPENAI_LIMITS: [&str; 3] = [
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
];
const ANTHROPIC_LIMITS: [&str; 3] = [
    "anthropic-ratelimit-requests-limit",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset",
];

/// The vendor whose SDK sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sdk {
    OpenAi,
    Anthropic,
}

impl Sdk {
    /// Returns the SDK of a path, even if no route has the path.
    pub fn of_path(path: &str) -> Option<Self> {
        match path.split('/').nth(1) {
            Some("openai") => Some(Self::OpenAi),
            Some("anthropic") => Some(Self::Anthropic),
            _ => None,
        }
    }

    /// Adds the headers of every response: the SDK's name of the request id, and the rate limit.
    pub fn add_headers(
        self,
        headers: &mut HeaderMap,
        id: &HeaderValue,
        rate: Option<(RateState, DateTime<Utc>)>,
    ) {
        headers.insert("request-id", id.clone());
        let Some((rate, now)) = rate else { return };
        let (names, reset) = match self {
            Self::OpenAi => (OPENAI_LIMITS, format!("{}s", rate.reset_seconds)),
            Self::Anthropic => {
                let wait = TimeDelta::try_seconds(rate.reset_seconds.cast_signed());
                let at = now + wait.unwrap_or_default();
                let at = at.to_rfc3339_opts(SecondsFormat::Secs, true);
                (ANTHROPIC_LIMITS, at)
            }
        };
        let [limit, remaining, reset_at] = names;
        headers.insert(limit, rate.limit.into());
        headers.insert(remaining, rate.remaining.into());
        if let Ok(value) = HeaderValue::try_from(reset) {
            headers.insert(reset_at, value);
        }
    }
}

/// The authenticated caller, for response headers and the request log.
#[derive(Clone, Default)]
pub struct CallerSlot(Arc<OnceLock<(Known, DateTime<Utc>)>>);

impl CallerSlot {
    pub fn set(&self, known: Known, now: DateTime<Utc>) {
        let _ = self.0.set((known, now));
    }

    /// Returns the caller's account, once it is authenticated.
    pub fn account(&self) -> Option<AccountId> {
        self.0.get()?.0.account
    }

    /// Returns the caller, and when it was authenticated.
    pub fn get(&self) -> Option<&(Known, DateTime<Utc>)> {
        self.0.get()
    }

    /// Refuses a caller whose key was cached, was not read since, and is no longer valid.
    pub async fn confirm(&self) -> Result<(), ServiceError> {
        if let Some(caller) = self.0.get().and_then(|(known, _)| known.cached.as_ref()) {
            caller.confirm().await?;
        }
        Ok(())
    }
}

/// Whether the request counts against its caller's limit. Of a page, only the first request does.
pub fn is_counted(parts: &Parts) -> bool {
    parts.extensions.get().is_none_or(Page::counts)
}

/// Records the caller of a request, and of the page if the request is the counted one.
pub fn record_caller(parts: &Parts, is_counted: bool, caller: Known, now: DateTime<Utc>) {
    if let Some(page) = parts.extensions.get::<Page>().filter(|_| is_counted) {
        page.caller.set(caller.clone(), now);
    }
    if let Some(slot) = parts.extensions.get::<CallerSlot>() {
        slot.set(caller, now);
    }
}

/// An authenticated caller.
#[derive(Clone, Default)]
pub struct Known {
    /// `None` for logins.
    pub rate: Option<RateState>,
    pub account: Option<AccountId>,
    /// `None` for sessions.
    pub key: Option<ApiKeyId>,
    pub admin_token: Option<AdminTokenId>,
    /// A caller whose key is still to be checked.
    pub cached: Option<Caller>,
}

impl Known {
    pub fn rate(&self) -> Option<RateState> {
        self.rate.or_else(|| self.cached.as_ref()?.rate())
    }
}

impl From<&Caller> for Known {
    fn from(caller: &Caller) -> Self {
        Self {
            rate: caller.rate(),
            account: Some(caller.account_id),
            key: match caller.credential {
                Credential::ApiKey(id) => Some(id),
                Credential::Session(_) => None,
            },
            admin_token: None,
            cached: caller.is_unconfirmed().then(|| caller.clone()),
        }
    }
}

/// A page of the console. Its requests to the API, which have this extension, count as one request
/// of the caller and are logged once.
#[derive(Clone, Default)]
pub struct Page {
    pub caller: CallerSlot,
    is_counted: Arc<AtomicBool>,
}

impl Page {
    /// Creates a page that does not count against the caller's rate limit.
    pub fn uncounted() -> Self {
        let page = Self::default();
        page.counts();
        page
    }

    /// Whether a request is counted: only the first one is.
    pub fn counts(&self) -> bool {
        !self.is_counted.swap(true, Ordering::Relaxed)
    }
}

/// Marks a response to an authenticated caller.
#[derive(Debug, Clone, Copy)]
pub struct Authenticated;

/// Marks an error response that has its own body (a failing health check, a page).
#[derive(Debug, Clone, Copy)]
pub struct OwnBody;
