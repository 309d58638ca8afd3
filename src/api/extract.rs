//! What handlers take: a caller with a permission, a checked body, a checked query, an id.

use std::marker::PhantomData;

use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Path, Request},
};
use http::{HeaderMap, StatusCode, header, request::Parts};
use serde_json::{Map, Value};
use tokio::sync::SemaphorePermit;

use super::{
    ApiState,
    admission::RequestPermit,
    error::ApiError,
    middleware::CallerSlot,
    surfaces::{Sdk, anthropic::BetaQuery},
};
use crate::{
    domain::{
        ability::Ability,
        ids::{ApiKeyId, GenerationId, TemplateId, WebhookDeliveryId, WebhookId},
        json,
        validate::{
            Body as Described, FieldCode, FieldError, Input, MAX_ERRORS, read_fields, read_query,
        },
    },
    service::{ServiceError, TokenRefusal, auth::Caller},
};

/// What a route needs of its caller. A type, so that a handler cannot forget it.
pub trait Permission: Send + Sync {
    /// Its name in the document: an ability, or what stands in for one.
    const NAME: &'static str;

    /// Refuses a caller who may not.
    fn check(caller: &Caller) -> Result<(), ServiceError>;
}

macro_rules! permissions {
    ($($(#[$doc:meta])* $name:ident: $text:expr => $check:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl Permission for $name {
            const NAME: &'static str = $text;

            fn check(caller: &Caller) -> Result<(), ServiceError> {
                let check: fn(&Caller) -> Result<(), ServiceError> = $check;
                check(caller)
            }
        }
    )+};
    ($($name:ident: $ability:ident;)+) => {
        permissions! {$(
            $name: Ability::$ability.as_str() => |caller| caller.require(Ability::$ability);
        )+}
    };
}

permissions! {
    GenerateText: GenerateText;
    GenerateImage: GenerateImage;
    GenerateVideo: GenerateVideo;
    GenerateAudio: GenerateAudio;
    ReadHistory: ReadHistory;
    ReadCredits: ReadCredits;
    Manage: All;
}

permissions! {
    AnyToken: "any" => Caller::require_active;
    /// The ability of the generation's type, which is looked at when it is known.
    OfTheType: "of the type" => Caller::require_active;
    SessionOnly: "session" => Caller::require_session;
}

/// A caller who is known, within the rate limit, and permitted: 401, 429, 403, in this order.
#[derive(Debug)]
pub struct Authorized<P> {
    pub caller: Caller,
    permission: PhantomData<P>,
}

impl<P: Permission> FromRequestParts<ApiState> for Authorized<P> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let token = token(parts).map_err(ApiError::token)?;
        let known = state.service.authenticate(token).await?;
        if let Some(slot) = parts.extensions.get::<CallerSlot>() {
            slot.set(&known, state.service.now());
        }
        if known.rate.retry_after_seconds.is_some() {
            return Err(ServiceError::RateLimited(known.rate).into());
        }
        P::check(&known.caller)?;
        Ok(Self {
            caller: known.caller,
            permission: PhantomData,
        })
    }
}

/// The token of a request: the bearer's, or the one that Anthropic's SDKs send as a key.
fn token(parts: &Parts) -> Result<&str, TokenRefusal> {
    let key = parts.headers.get("x-api-key");
    match key.filter(|_| Sdk::of(parts.uri.path()) == Some(Sdk::Anthropic)) {
        Some(key) if !parts.headers.contains_key(header::AUTHORIZATION) => {
            key.to_str().map_err(|_| TokenRefusal::Invalid)
        }
        _ => bearer(&parts.headers),
    }
}

/// The bearer token of a request.
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

/// The query of a route.
#[derive(Debug)]
pub struct Query<T> {
    members: Map<String, Value>,
    /// What is wrong with it before any parameter is looked at.
    errors: Vec<FieldError>,
    parameters: PhantomData<T>,
}

impl<T: Input> Query<T> {
    fn of(parts: &Parts) -> Self {
        let (mut members, mut errors) = (Map::new(), Vec::new());
        let text = parts.uri.query().unwrap_or_default();
        for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
            let value = Value::String(value.into_owned());
            if members.insert(name.to_string(), value).is_some() && errors.len() < MAX_ERRORS {
                let message = "is given more than once";
                errors.push(FieldError::new(name, FieldCode::InvalidFormat, message));
            }
        }
        let members = Value::Object(members);
        errors.extend(nul_errors(&members));
        Self {
            members: match members {
                Value::Object(members) => members,
                _ => Map::new(),
            },
            errors,
            parameters: PhantomData,
        }
    }

    /// Reads the parameters; every failing one is reported.
    pub fn read(self) -> Result<T, ApiError> {
        let (value, errors) = read_query(&self.members);
        into_result(value, [self.errors, errors].concat())
    }
}

impl<T: Input + Send> FromRequestParts<ApiState> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &ApiState) -> Result<Self, ApiError> {
        Ok(Self::of(parts))
    }
}

/// The query of a route that takes none.
#[derive(Debug)]
pub struct NoQuery;

impl FromRequestParts<ApiState> for NoQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &ApiState) -> Result<Self, ApiError> {
        Query::<()>::of(parts).read().map(|()| Self)
    }
}

fn nul_errors(value: &Value) -> impl Iterator<Item = FieldError> {
    let error = |path| FieldError::new(path, FieldCode::InvalidFormat, "must not contain U+0000");
    json::nul_paths(value).into_iter().map(error)
}

/// The value, if nothing is wrong with it.
fn into_result<T>(value: Option<T>, mut errors: Vec<FieldError>) -> Result<T, ApiError> {
    match value {
        Some(value) if errors.is_empty() => Ok(value),
        _ => {
            errors.truncate(MAX_ERRORS);
            Err(ApiError::invalid(errors))
        }
    }
}

/// A JSON body: an object without duplicates, in time and within the size limit.
#[derive(Debug)]
pub struct JsonBody<T> {
    members: Map<String, Value>,
    /// What is wrong with it, or with the query, before any field is looked at.
    errors: Vec<FieldError>,
    body: PhantomData<T>,
}

impl<T: Described> JsonBody<T> {
    /// Reads the fields; every failing one is reported.
    pub fn read(self) -> Result<T, ApiError> {
        self.read_as(|_| Vec::new())
    }

    /// As [`Self::read`]. Where something failed, the answer also names what `violations` finds
    /// in the rest.
    pub fn read_as<U: From<T>>(
        self,
        violations: impl FnOnce(&U) -> Vec<FieldError>,
    ) -> Result<U, ApiError> {
        let (value, errors) = T::parse(&self.members);
        let value = value.map(U::from);
        let failed = !self.errors.is_empty() || !errors.is_empty();
        let more = value.as_ref().filter(|_| failed).map(violations);
        let mut all = self.errors;
        for errors in [errors, more.unwrap_or_default()] {
            let known: Vec<String> = all.iter().map(|e| e.param.clone()).collect();
            all.extend(errors.into_iter().filter(|e| !known.contains(&e.param)));
        }
        into_result(value, all)
    }

    /// The members as they are.
    pub fn members(&self) -> &Map<String, Value> {
        &self.members
    }
}

impl<T> FromRequest<ApiState> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        check_media_type(&parts.headers)?;
        let (bytes, large) = read_body(&parts, body, state).await?;
        let value = if large.is_some() {
            // It would hold up what else runs on this thread.
            let parsing = tokio::task::spawn_blocking(move || parse(&bytes));
            parsing.await.map_err(|_panic| ApiError::internal())??
        } else {
            parse(&bytes)?
        };
        drop(large);
        let mut errors: Vec<FieldError> = nul_errors(&value).collect();
        // No route takes both a body and a query, but for what Anthropic's SDKs add.
        let query = Query::<()>::of(&parts);
        errors.extend(query.errors);
        errors.extend(match Sdk::of(parts.uri.path()) {
            Some(Sdk::Anthropic) => read_query::<BetaQuery>(&query.members).1,
            _ => read_query::<()>(&query.members).1,
        });
        let Value::Object(members) = value else {
            return Err(ApiError::malformed_json("the body must be a JSON object"));
        };
        Ok(Self {
            members,
            errors,
            body: PhantomData,
        })
    }
}

/// The body of a POST that takes none: nothing, or an empty object.
#[derive(Debug)]
pub struct NoBody;

impl FromRequest<ApiState> for NoBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let (bytes, _) = read_body(&parts, body, state).await?;
        if bytes.is_empty() {
            return Ok(Self);
        }
        check_media_type(&parts.headers)?;
        let Value::Object(members) = parse(&bytes)? else {
            return Err(ApiError::malformed_json("the body must be a JSON object"));
        };
        let (nothing, errors) = read_fields::<()>(&members);
        into_result(nothing.map(|()| Self), errors)
    }
}

fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    json::parse(bytes)
        .map_err(|error| ApiError::malformed_json(format!("the body is not valid JSON: {error}")))
}

fn check_media_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let text = |name| {
        headers
            .get(name)
            .and_then(|v: &http::HeaderValue| v.to_str().ok())
    };
    let essence = text(header::CONTENT_TYPE).and_then(|t| t.split(';').next());
    let json = essence.is_some_and(|e| e.trim().eq_ignore_ascii_case("application/json"));
    let plain = headers.get(header::CONTENT_ENCODING).is_none()
        || text(header::CONTENT_ENCODING).is_some_and(|e| e.eq_ignore_ascii_case("identity"));
    if json && plain {
        return Ok(());
    }
    Err(ApiError::from_status(StatusCode::UNSUPPORTED_MEDIA_TYPE))
}

/// How many large bodies are read and parsed at once: some hundred MiB, and some seconds of CPU.
pub const LARGE_BODIES: usize = 8;

/// Reads a body; all of it must arrive in time, however it drips. With a permit where it may be
/// larger than those of most routes.
async fn read_body<'a>(
    parts: &Parts,
    body: Body,
    state: &'a ApiState,
) -> Result<(axum::body::Bytes, Option<SemaphorePermit<'a>>), ApiError> {
    let limit = match Sdk::of(parts.uri.path()) {
        Some(_) => state.settings.max_sdk_body_bytes,
        None => state.settings.max_body_bytes,
    };
    let announced = parts
        .headers
        .get(header::CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(ApiError::from_status(StatusCode::PAYLOAD_TOO_LARGE));
    }
    let permit = parts.extensions.get::<RequestPermit>();
    if let Some(permit) = permit {
        permit.release();
    }
    let is_large = announced.unwrap_or(limit) > state.settings.max_body_bytes;
    let read = async {
        let mut permit = None;
        if is_large {
            permit = state.settings.large_bodies.acquire().await.ok();
        }
        Ok((axum::body::to_bytes(body, limit).await?, permit))
    };
    let read = tokio::time::timeout(state.settings.body_timeout, read).await;
    if let Some(permit) = permit {
        permit.reacquire()?;
    }
    match read {
        Err(_elapsed) => Err(ApiError::from_status(StatusCode::REQUEST_TIMEOUT)),
        Ok(Err(error)) if too_long(&error) => {
            Err(ApiError::from_status(StatusCode::PAYLOAD_TOO_LARGE))
        }
        Ok(Err(_cut)) => Err(ApiError::malformed_json("the body ended too early")),
        Ok(Ok(read)) => Ok(read),
    }
}

fn too_long(error: &axum::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if cause.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        source = cause.source();
    }
    false
}

/// The one parameter of a path; a malformed one is not found.
#[derive(Debug)]
pub struct PathId<T>(pub T);

/// Ids that a path can hold.
pub trait FromPath: Sized {
    fn from_path(text: &str) -> Option<Self>;
}

impl FromPath for GenerationId {
    fn from_path(text: &str) -> Option<Self> {
        Self::parse(text)
    }
}

impl FromPath for ApiKeyId {
    fn from_path(text: &str) -> Option<Self> {
        number(text).map(Self)
    }
}

impl FromPath for WebhookId {
    fn from_path(text: &str) -> Option<Self> {
        number(text).map(Self)
    }
}

impl FromPath for TemplateId {
    fn from_path(text: &str) -> Option<Self> {
        number(text).map(Self)
    }
}

impl FromPath for WebhookDeliveryId {
    fn from_path(text: &str) -> Option<Self> {
        number(text).map(Self)
    }
}

/// A numeric id, as it is written in a path.
fn number(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

impl<T: FromPath> FromRequestParts<ApiState> for PathId<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let missing = || ApiError::from(ServiceError::NotFound);
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|_| missing())?;
        T::from_path(&text).map(Self).ok_or_else(missing)
    }
}

/// The two parameters of a path; a malformed one is not found.
#[derive(Debug)]
pub struct PathIds<T, U>(pub T, pub U);

impl<T: FromPath, U: FromPath> FromRequestParts<ApiState> for PathIds<T, U> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let missing = || ApiError::from(ServiceError::NotFound);
        let Path((first, second)) = Path::<(String, String)>::from_request_parts(parts, state)
            .await
            .map_err(|_| missing())?;
        let ids = T::from_path(&first).zip(U::from_path(&second));
        ids.map(|(first, second)| Self(first, second))
            .ok_or_else(missing)
    }
}
