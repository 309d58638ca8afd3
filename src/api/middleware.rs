//! Around every request: its id, its log line, the error envelope and the rate headers.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use axum::{
    body::Body,
    extract::Request,
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use chrono::{DateTime, Utc};
use http::{HeaderName, HeaderValue, StatusCode, header};
use tracing::Instrument as _;
use uuid::Uuid;

use super::{
    admission::MONITORING,
    error::{ApiError, Code},
    surfaces::{RequestId, Sdk},
};
use crate::{
    domain::{
        ids::{AccountId, AdminTokenId, ApiKeyId},
        rate::RateState,
    },
    service::{
        Service, ServiceError,
        admin_tokens::Presented,
        auth::{Authenticated as AuthenticatedCaller, Caller},
    },
    store::generations::Credential,
};

static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_ID_CHARS: usize = 128;
/// Routes of files that belong to pages.
const ASSETS: [&str; 2] = ["/assets/{file}", "/docs/{file}"];

/// Where authentication leaves, and when, what the response's headers and the log tell of the caller.
#[derive(Clone, Default)]
pub struct CallerSlot(Arc<OnceLock<(Known, DateTime<Utc>)>>);

impl CallerSlot {
    pub fn set(&self, known: impl Into<Known>, now: DateTime<Utc>) {
        let _ = self.0.set((known.into(), now));
    }

    /// The caller's account, once it is authenticated.
    pub fn account(&self) -> Option<AccountId> {
        self.0.get()?.0.account
    }

    /// Sets a caller who is only presumed to be who it was. `check`: what the route needs of it.
    pub fn presume(&self, caller: &Caller, service: &Service, check: Check) {
        let known = Known {
            presumption: Some(Presumption {
                caller: caller.clone(),
                service: service.clone(),
                check,
            }),
            ..Known::of(caller)
        };
        self.set(known, service.now());
    }

    /// The answer to a request: another one where its caller was only presumed to be who it was,
    /// no hold has told, and the key tells otherwise.
    pub async fn settled(&self, response: Response) -> Response {
        let error = response.extensions().get::<ApiError>().map(ApiError::code);
        match self.refusal(error).await {
            Some(refusal) => refusal.into_response(),
            None => response,
        }
    }

    /// Counts the request of a presumed caller that ended without an answer.
    pub fn count_dropped(&self) {
        let presumption = self
            .0
            .get()
            .and_then(|(known, _)| known.presumption.as_ref());
        if let Some(presumption) = presumption
            && let Some(presumed) = presumption.caller.presumed()
        {
            presumption.service.count_dropped(presumed);
        }
    }

    async fn refusal(&self, error: Option<Code>) -> Option<ApiError> {
        let (known, _) = self.0.get()?;
        let presumption = known.presumption.as_ref()?;
        let presumed = presumption.caller.presumed()?;
        if error == Some(Code::DatabaseUnavailable) {
            // Nothing was told, and nothing can be asked.
            presumed.settle(None);
        }
        if !presumed.is_open() {
            return None;
        }
        let known = presumption.service.settle_presumed(presumed).await;
        let checked = known.and_then(|known| (presumption.check)(&known.caller));
        checked.err().map(ApiError::from)
    }
}

/// What a route needs of its caller.
type Check = fn(&Caller) -> Result<(), ServiceError>;

struct Presumption {
    caller: Caller,
    service: Service,
    check: Check,
}

/// A page of the console. What it asks of the API, which carries this, is one request of its caller:
/// counted once, and logged as one.
#[derive(Clone, Default)]
pub struct Page(Arc<Asked>);

#[derive(Default)]
struct Asked {
    caller: CallerSlot,
    counted: AtomicBool,
}

impl Page {
    /// One that is never refused for having asked too much.
    pub fn uncounted() -> Self {
        let page = Self::default();
        page.counts();
        page
    }

    /// Whether the caller's limit is still to be asked: the first time only.
    pub fn counts(&self) -> bool {
        !self.0.counted.swap(true, Ordering::Relaxed)
    }

    pub fn set(&self, known: impl Into<Known>, now: DateTime<Utc>) {
        self.0.caller.set(known, now);
    }
}

/// A caller whose token, or password, is good.
pub struct Known {
    /// `None` for logins.
    rate: Option<RateState>,
    account: Option<AccountId>,
    /// `None` for sessions.
    key: Option<ApiKeyId>,
    admin_token: Option<AdminTokenId>,
    presumption: Option<Presumption>,
}

impl Known {
    fn of(caller: &Caller) -> Self {
        Self {
            rate: None,
            account: Some(caller.account_id),
            key: match caller.credential {
                Credential::ApiKey(id) => Some(id),
                Credential::Session(_) => None,
            },
            admin_token: None,
            presumption: None,
        }
    }

    fn rate(&self) -> Option<RateState> {
        let presumed = self.presumption.as_ref();
        let presumed = presumed.and_then(|presumption| presumption.caller.presumed());
        self.rate.or_else(|| presumed?.counted())
    }
}

impl From<&AuthenticatedCaller> for Known {
    fn from(known: &AuthenticatedCaller) -> Self {
        Self {
            rate: Some(known.rate),
            ..Self::of(&known.caller)
        }
    }
}

impl From<AccountId> for Known {
    fn from(account: AccountId) -> Self {
        Self {
            rate: None,
            account: Some(account),
            key: None,
            admin_token: None,
            presumption: None,
        }
    }
}

impl From<&Presented> for Known {
    fn from(presented: &Presented) -> Self {
        match presented {
            Presented::Customer(known) => known.into(),
            &Presented::Operator(token, rate) => Self {
                rate: Some(rate),
                account: None,
                key: None,
                admin_token: Some(token),
                presumption: None,
            },
        }
    }
}

/// Gives the request its id, and its response everything that every response carries.
pub async fn request_context(mut request: Request, next: Next, route: &str) -> Response {
    // Around the API there may be a page, whose request this is a part of.
    let id = request.extensions().get::<RequestId>();
    let id = id.map_or_else(|| request_id(&request), |RequestId(id)| id.clone());
    let caller = CallerSlot::default();
    let is_part = request.extensions().get::<Page>().is_some();
    request.extensions_mut().insert(caller.clone());
    request.extensions_mut().insert(RequestId(id.clone()));
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let since = Instant::now();
    let span = tracing::info_span!("request", id = %id);
    let mut response = next.run(request).instrument(span.clone()).await;
    let sdk = Sdk::of(&path);
    let code = envelope(&mut response, sdk, &id).map(Code::as_str);
    let status = response.status();
    let page = response.extensions_mut().remove::<Page>();
    let asked = page.as_ref().map_or(&caller, |page| &page.0.caller);
    let known = asked.0.get();
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id) {
        if let Some(sdk) = sdk {
            let rate = known.and_then(|(caller, now)| Some((caller.rate()?, *now)));
            sdk.add_headers(headers, &value, rate);
        }
        headers.insert(&REQUEST_ID, value);
    }
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    // Records, keys and tokens are for the caller alone.
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    let caller = known.map(|(caller, _)| caller);
    if caller.is_some() && status != StatusCode::UNAUTHORIZED {
        response.extensions_mut().insert(Authenticated);
    }
    let headers = response.headers_mut();
    if let Some(rate) = caller.and_then(Known::rate) {
        headers.insert("x-ratelimit-limit", rate.limit.into());
        headers.insert("x-ratelimit-remaining", rate.remaining.into());
        headers.insert("x-ratelimit-reset", rate.reset_seconds.into());
    }
    let elapsed_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
    let account = caller.and_then(|known| known.account).map(|id| id.0);
    let key = caller.and_then(|known| known.key).map(|id| id.0);
    let admin_token = caller.and_then(|known| known.admin_token).map(|id| id.0);
    macro_rules! answered {
        ($level:ident) => {
            tracing::$level!(%method, path, route, status = status.as_u16(), code, account, key,
                admin_token, elapsed_ms, "answered")
        };
    }
    let is_expected = MONITORING.contains(&route) || ASSETS.contains(&route);
    let is_routine = is_part || is_expected && status.is_success();
    span.in_scope(|| {
        if is_routine {
            answered!(debug);
        } else {
            answered!(info);
        }
    });
    response
}

/// An inbound id is kept when it is harmless.
fn request_id(request: &Request) -> String {
    let harmless = |id: &&str| {
        (1..=REQUEST_ID_CHARS).contains(&id.len())
            && id
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    request
        .headers()
        .get(&REQUEST_ID)
        .and_then(|value| value.to_str().ok())
        .filter(harmless)
        .map_or_else(|| Uuid::now_v7().to_string(), str::to_owned)
}

/// Writes the body of every error, our own and those that a library answered with; returns its
/// code.
fn envelope(response: &mut Response, sdk: Option<Sdk>, id: &str) -> Option<Code> {
    let status = response.status();
    let error = match response.extensions_mut().remove::<ApiError>() {
        Some(error) => error,
        None if status.is_client_error() || status.is_server_error() => {
            if response.extensions().get::<OwnBody>().is_some() {
                return None;
            }
            ApiError::from_status(status)
        }
        None => return None,
    };
    let body = match sdk {
        None => error.body(id),
        Some(sdk) => {
            let (status, body) = error.for_sdk(sdk, id);
            *response.status_mut() = status;
            error.add_sdk_headers(response.headers_mut());
            body
        }
    };
    *response.body_mut() = Body::from(body);
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    Some(error.code())
}

/// Marks a response to an authenticated caller.
#[derive(Debug, Clone, Copy)]
pub struct Authenticated;

/// Marks an error response that has a body of its own (a failing health check, a page).
#[derive(Debug, Clone, Copy)]
pub struct OwnBody;
