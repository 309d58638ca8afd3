//! What handlers take: a caller with a permission, a checked body, a checked query, an id.

use std::marker::PhantomData;

use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Path, Request},
};
use http::{HeaderMap, StatusCode, header, request::Parts};
use serde_json::{Map, Value};

use super::{ApiState, admission::RequestPermit, error::ApiError, middleware::RateSlot};
use crate::{
    domain::{
        ability::Ability,
        ids::{ApiKeyId, GenerationId, TemplateId, WebhookDeliveryId, WebhookId},
        json,
        validate::{Errors, FieldCode, FieldError, Fields},
    },
    service::{ServiceError, TokenRefusal, auth::Caller},
};

/// What a route needs of its caller. A type, so that a handler cannot forget it.
pub trait Permission: Send + Sync {
    /// Refuses a caller who may not.
    fn check(caller: &Caller) -> Result<(), ServiceError>;
}

macro_rules! permissions {
    ($($(#[$doc:meta])* $name:ident => $check:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name;

        impl Permission for $name {
            fn check(caller: &Caller) -> Result<(), ServiceError> {
                let check: fn(&Caller) -> Result<(), ServiceError> = $check;
                check(caller)
            }
        }
    )+};
}

permissions! {
    /// `generate:text`
    GenerateText => |c| c.require(Ability::GenerateText);
    /// `generate:image`
    GenerateImage => |c| c.require(Ability::GenerateImage);
    /// `generate:video`
    GenerateVideo => |c| c.require(Ability::GenerateVideo);
    /// `generate:audio`
    GenerateAudio => |c| c.require(Ability::GenerateAudio);
    /// `read:history`
    ReadHistory => |c| c.require(Ability::ReadHistory);
    /// `read:credits`
    ReadCredits => |c| c.require(Ability::ReadCredits);
    /// A session, or a key with `*`
    Manage => |c| c.require(Ability::All);
    AnyToken => Caller::require_active;
    SessionOnly => Caller::require_session;
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
        let token = bearer(&parts.headers).map_err(ApiError::token)?;
        let known = state.service.authenticate(token).await?;
        if let Some(slot) = parts.extensions.get::<RateSlot>() {
            slot.set(known.rate);
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

/// The query of a route, read field by field.
#[derive(Debug, Clone, Default)]
pub struct Query {
    members: Map<String, Value>,
    repeated: Vec<String>,
}

impl Query {
    fn of(parts: &Parts) -> Self {
        let mut query = Self::default();
        let text = parts.uri.query().unwrap_or_default();
        for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
            let value = Value::String(value.into_owned());
            if query.members.insert(name.to_string(), value).is_some() {
                query.repeated.push(name.into_owned());
            }
        }
        query
    }

    /// Reads the parameters; every failing one is reported.
    pub fn read<T>(&self, read: impl FnOnce(&Fields<'_>) -> T) -> Result<T, ApiError> {
        let (value, errors) = self.check(read);
        if errors.is_empty() {
            Ok(value)
        } else {
            Err(ApiError::invalid(errors))
        }
    }

    /// What is wrong where no parameter is taken.
    fn errors(&self) -> Vec<FieldError> {
        self.check(|_| ()).1
    }

    fn check<T>(&self, read: impl FnOnce(&Fields<'_>) -> T) -> (T, Vec<FieldError>) {
        let errors = Errors::default();
        let fields = Fields::query(&self.members, &errors);
        for name in &self.repeated {
            errors.add(name, FieldCode::InvalidFormat, "is given more than once");
        }
        for path in json::nul_paths(&Value::Object(self.members.clone())) {
            errors.add(path, FieldCode::InvalidFormat, "must not contain U+0000");
        }
        let value = read(&fields);
        fields.finish();
        (value, errors.take())
    }

    pub fn none(&self) -> Result<(), ApiError> {
        self.read(|_| ())
    }
}

impl FromRequestParts<ApiState> for Query {
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
        Query::of(parts).none().map(|()| Self)
    }
}

/// A JSON body: an object without duplicates, in time and within the size limit.
#[derive(Debug)]
pub struct JsonBody {
    members: Map<String, Value>,
    /// What is wrong with it, or with the query, before any field is looked at.
    errors: Vec<FieldError>,
}

impl JsonBody {
    /// Reads the members. What `read` refuses and what was wrong before are one answer.
    pub fn read<T>(
        &self,
        read: impl FnOnce(&Map<String, Value>) -> Result<T, ServiceError>,
    ) -> Result<T, ApiError> {
        let mut errors = self.errors.clone();
        match read(&self.members) {
            Ok(value) if errors.is_empty() => Ok(value),
            Ok(_) => Err(ApiError::invalid(errors)),
            Err(ServiceError::Invalid(more)) => {
                let known: Vec<String> = errors.iter().map(|e| e.param.clone()).collect();
                errors.extend(more.into_iter().filter(|e| !known.contains(&e.param)));
                Err(ApiError::invalid(errors))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The members as they are.
    pub fn members(&self) -> &Map<String, Value> {
        &self.members
    }
}

impl FromRequest<ApiState> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        check_media_type(&parts.headers)?;
        let bytes = read_body(&parts, body, state).await?;
        let value = parse(&bytes)?;
        let nul = |path| FieldError::new(path, FieldCode::InvalidFormat, "must not contain U+0000");
        let mut errors: Vec<FieldError> = json::nul_paths(&value).into_iter().map(nul).collect();
        // No route takes both a body and a query; a parameter there is a mistake.
        errors.extend(Query::of(&parts).errors());
        let Value::Object(members) = value else {
            return Err(ApiError::malformed_json("the body must be a JSON object"));
        };
        Ok(Self { members, errors })
    }
}

/// The body of a POST that takes none: nothing, or an empty object.
#[derive(Debug)]
pub struct NoBody;

impl FromRequest<ApiState> for NoBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = read_body(&parts, body, state).await?;
        if bytes.is_empty() {
            return Ok(Self);
        }
        check_media_type(&parts.headers)?;
        let Value::Object(members) = parse(&bytes)? else {
            return Err(ApiError::malformed_json("the body must be a JSON object"));
        };
        let errors = Errors::default();
        Fields::new(&members, &errors).finish();
        match errors.take() {
            none if none.is_empty() => Ok(Self),
            errors => Err(ApiError::invalid(errors)),
        }
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

/// Reads a body; all of it must arrive in time, however it drips.
async fn read_body(
    parts: &Parts,
    body: Body,
    state: &ApiState,
) -> Result<axum::body::Bytes, ApiError> {
    let limit = state.settings.max_body_bytes;
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
    let read = axum::body::to_bytes(body, limit);
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
        Ok(Ok(bytes)) => Ok(bytes),
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
