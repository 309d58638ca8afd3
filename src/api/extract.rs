//! Arguments of handlers: callers with a permission, checked queries, ids. Bodies are in `body`.

use std::{marker::PhantomData, ops::Deref};

use axum::extract::{FromRequestParts, Path};
use chrono::{DateTime, Utc};
use http::{HeaderMap, HeaderName, Method, Uri, header, request::Parts};
use serde_json::{Map, Value, json};

use super::{
    ApiState,
    context::{
        IDEMPOTENCY_KEY, Known, RETRY_COUNT, RequestId, RequestPermit, Sdk, is_counted,
        record_caller,
    },
    error::ApiError,
};
use crate::{
    domain::{
        ability::Ability,
        form_token::FormToken,
        ids::{
            AccountId, ApiKeyId, GenerationId, TemplateId, UploadId, WebhookDeliveryId, WebhookId,
        },
        json,
        validate::{FieldCode, FieldError, Fields, Input, MAX_ERRORS, read_query, text},
    },
    memory,
    service::{ServiceError, TokenRefusal, auth::Caller},
};

/// Names the account that an operator's GET request reads.
pub const VIEWED_ACCOUNT: HeaderName = HeaderName::from_static("x-gensvc-account");

/// The permission that a route requires. It is a type, so that a handler cannot omit it.
pub trait Permission: Send + Sync {
    /// Its name in the OpenAPI document: an ability, or a description of several.
    const NAME: &'static str;
    /// Whether such a request usually places a hold, which can check the key.
    const HOLDS: bool;

    fn check(caller: &Caller) -> Result<(), ServiceError>;
}

macro_rules! permissions {
    ($($(#[$doc:meta])* $name:ident: $text:expr, $holds:expr => $check:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl Permission for $name {
            const NAME: &'static str = $text;
            const HOLDS: bool = $holds;

            fn check(caller: &Caller) -> Result<(), ServiceError> {
                let check: fn(&Caller) -> Result<(), ServiceError> = $check;
                check(caller)
            }
        }
    )+};
    ($($name:ident: $ability:ident, $holds:expr;)+) => {
        permissions! {$(
            $name: Ability::$ability.as_str(), $holds => |caller| caller.require(Ability::$ability);
        )+}
    };
}

permissions! {
    GenerateText: GenerateText, true;
    GenerateImage: GenerateImage, true;
    GenerateVideo: GenerateVideo, true;
    GenerateAudio: GenerateAudio, true;
    CountTokens: GenerateText, false;
    ReadHistory: ReadHistory, false;
    ReadCredits: ReadCredits, false;
    Manage: All, false;
}

permissions! {
    AnyToken: "any", false => Caller::require_active;
    /// Any ability to generate, because uploads serve all types.
    UsePictures: "generate:*", false => Caller::require_any_generation;
    /// The ability of the generation's type. The service checks it once it knows the type.
    OfTheType: "of the type", false => Caller::require_active;
    SessionOnly: "session", false => Caller::require_session;
}

/// An authenticated and permitted caller within its rate limit. Others get 401, 429 or 403, checked
/// in this order.
pub struct Authorized<P> {
    pub state: ApiState,
    pub caller: Caller,
    /// The time before the first statement of the request.
    pub arrived: DateTime<Utc>,
    pub uri: Uri,
    pub headers: HeaderMap,
    /// The token of the console form that the request submits. Only the console can set it.
    pub form: Option<FormToken>,
    pub permit: RequestPermit,
    pub request_id: RequestId,
    permission: PhantomData<P>,
}

impl<P> Deref for Authorized<P> {
    type Target = ApiState;

    fn deref(&self) -> &ApiState {
        &self.state
    }
}

impl<P: Permission> FromRequestParts<ApiState> for Authorized<P> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let token = token(parts).map_err(ApiError::token)?;
        let arrived = state.service.now();
        let counts = is_counted(parts);
        let may_defer = P::HOLDS && is_new(&parts.headers);
        let authenticating = state.service.authenticate(token, counts, may_defer);
        let caller = authenticating.await?;
        record_caller(parts, counts, Known::from(&caller), state.service.now());
        caller.check_rate()?;
        memory::charge_to(caller.account_id);
        let caller = match viewed_account(parts)? {
            Some(account) => {
                let viewer = state.service.view_as(&caller, account).await?;
                let (user, path) = (viewer.user_id.map(|id| id.0), parts.uri.path());
                tracing::info!(user, account = account.0, path, "operator read an account");
                viewer
            }
            None => caller,
        };
        let caller = match P::check(&caller) {
            Ok(()) => caller,
            Err(refusal) => {
                // The key may have been given the ability since it was cached.
                let read = caller.confirm().await?.ok_or(refusal)?;
                P::check(&read)?;
                read
            }
        };
        let permit = parts.extensions.get().cloned();
        let request_id = parts.extensions.get().cloned();
        Ok(Self {
            state: state.clone(),
            caller,
            arrived,
            uri: parts.uri.clone(),
            headers: parts.headers.clone(),
            form: parts.extensions.get().cloned(),
            permit: permit.ok_or_else(ApiError::internal)?,
            request_id: request_id.ok_or_else(ApiError::internal)?,
            permission: PhantomData,
        })
    }
}

/// Reads [`VIEWED_ACCOUNT`], which only a GET or HEAD request may have.
fn viewed_account(parts: &Parts) -> Result<Option<AccountId>, ApiError> {
    let mut values = parts.headers.get_all(&VIEWED_ACCOUNT).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Err(ApiError::invalid_header(
            "X-Gensvc-Account is for GET requests only; change accounts with routes of /v1/admin",
        ));
    }
    let id = value.to_str().ok().and_then(number).map(AccountId);
    match id.filter(|_| values.next().is_none()) {
        Some(id) => Ok(Some(id)),
        None => Err(ApiError::invalid_header(
            "X-Gensvc-Account must be given once, as the id of an account",
        )),
    }
}

/// Whether a request cannot be a replay or a retry, so that it may start before its key is checked.
/// Its body counts against the memory of the key's account.
fn is_new(headers: &HeaderMap) -> bool {
    !headers.contains_key(IDEMPOTENCY_KEY)
        && headers.get(RETRY_COUNT).is_none_or(|count| count == "0")
}

/// Returns the token of a request: the bearer token, or the key header of Anthropic's SDKs.
fn token(parts: &Parts) -> Result<&str, TokenRefusal> {
    let key = parts.headers.get("x-api-key");
    match key.filter(|_| parts.extensions.get() == Some(&Sdk::Anthropic)) {
        Some(key) if !parts.headers.contains_key(header::AUTHORIZATION) => {
            key.to_str().map_err(|_| TokenRefusal::Invalid)
        }
        _ => bearer(&parts.headers),
    }
}

pub(super) fn bearer(headers: &HeaderMap) -> Result<&str, TokenRefusal> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().ok_or(TokenRefusal::Missing)?;
    if values.next().is_some() {
        return Err(TokenRefusal::Invalid);
    }
    let text = value.to_str().map_err(|_| TokenRefusal::Invalid)?;
    let (scheme, token) = text.split_once(' ').ok_or(TokenRefusal::Missing)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(TokenRefusal::Missing);
    }
    match token.trim() {
        "" => Err(TokenRefusal::Missing),
        token => Ok(token),
    }
}

/// The query of a route. Every failing parameter is reported.
#[derive(Debug)]
pub struct Query<T>(pub T);

/// The query of a route without parameters.
pub type NoQuery = Query<()>;

impl<T: Input + Send> FromRequestParts<ApiState> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &ApiState) -> Result<Self, ApiError> {
        let (value, errors) = parse_query(parts);
        into_result(value, errors).map(Self)
    }
}

/// Parses the parameters of a query. Returns every failing one.
pub fn parse_query<T: Input>(parts: &Parts) -> (Option<T>, Vec<FieldError>) {
    let (mut members, mut errors) = (Map::new(), Vec::new());
    let text = parts.uri.query().unwrap_or_default();
    for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
        let value = Value::String(value.into_owned());
        if members.insert(name.to_string(), value).is_some() && errors.len() < MAX_ERRORS {
            let message = "is given more than once";
            errors.push(FieldError::new(name, FieldCode::InvalidFormat, message));
        }
    }
    let query = Value::Object(members);
    errors.extend(nul_errors(&query));
    let (value, refused) = read_query(query.as_object().unwrap_or(&Map::new()));
    (value, [errors, refused].concat())
}

/// The query that Anthropic's SDKs add to their paths.
pub struct BetaQuery;

impl Input for BetaQuery {
    fn read(fields: &Fields<'_>) -> Option<Self> {
        let about = "Accepted and ignored.";
        fields.optional("beta", about, text(usize::MAX));
        Some(Self)
    }
}

pub fn nul_errors(value: &Value) -> impl Iterator<Item = FieldError> {
    let error = |path| FieldError::new(path, FieldCode::InvalidFormat, "must not contain U+0000");
    json::nul_paths(value).into_iter().map(error)
}

pub fn into_result<T>(value: Option<T>, mut errors: Vec<FieldError>) -> Result<T, ApiError> {
    match value {
        Some(value) if errors.is_empty() => Ok(value),
        _ => {
            errors.truncate(MAX_ERRORS);
            Err(ApiError::invalid(errors))
        }
    }
}

/// The only parameter of a path. A malformed one is not found.
#[derive(Debug)]
pub struct PathId<T>(pub T);

pub trait FromPath: Sized {
    /// A description of the id for the OpenAPI document.
    const ABOUT: &'static str;

    fn schema() -> Value {
        json!({"type": "string"})
    }

    fn from_path(text: &str) -> Option<Self>;
}

impl FromPath for GenerationId {
    const ABOUT: &'static str = "The generation's uuid";

    fn from_path(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

impl FromPath for UploadId {
    const ABOUT: &'static str = "The upload's id";

    fn from_path(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

macro_rules! numeric_ids {
    ($($id:ident = $about:literal,)+) => {$(
        impl FromPath for $id {
            const ABOUT: &'static str = $about;

            fn schema() -> Value {
                json!({"type": "integer", "format": "int64"})
            }

            fn from_path(text: &str) -> Option<Self> {
                number(text).map(Self)
            }
        }
    )+};
}

numeric_ids!(
    AccountId = "The account's id",
    ApiKeyId = "The key's id",
    WebhookId = "The webhook's id",
    TemplateId = "The template's id",
    WebhookDeliveryId = "The delivery's id",
);

/// Parses a numeric id in a path.
fn number(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

impl<T: FromPath> FromRequestParts<ApiState> for PathId<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let id = path.ok().and_then(|Path(text)| T::from_path(&text));
        id.map(Self).ok_or_else(|| ServiceError::NotFound.into())
    }
}

/// The two parameters of a path. A malformed one is not found.
#[derive(Debug)]
pub struct PathIds<T, U>(pub T, pub U);

impl<T: FromPath, U: FromPath> FromRequestParts<ApiState> for PathIds<T, U> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let path = Path::<(String, String)>::from_request_parts(parts, state).await;
        let ids = path.ok().and_then(|Path((first, second))| {
            Some(Self(T::from_path(&first)?, U::from_path(&second)?))
        });
        ids.ok_or_else(|| ServiceError::NotFound.into())
    }
}
