//! Reads bodies: JSON objects, or none, within time and size limits.

use std::{cell::Cell, marker::PhantomData, mem, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{FromRequest, Request},
};
use futures_util::StreamExt as _;
use http::{HeaderMap, StatusCode, header, request::Parts};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tokio::{
    runtime::Handle,
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

use super::{
    ApiState,
    context::{CallerSlot, RETRY_COUNT, RequestPermit, Sdk},
    error::ApiError,
    extract::{BetaQuery, into_result, nul_errors, parse_query},
    multipart,
};
use crate::{
    domain::{
        ids::AccountId,
        json::{self, Members},
        limiter::Permit,
        party::Party,
        validate::{Body as RequestForm, FieldError, Input, read_fields},
    },
    memory::{self, Reservation},
    request::MAX_INPUT_BYTES,
};

/// Minimum speed of a sender, in bytes per second.
const SLOWEST: u32 = 64 << 10;
/// Maximum concurrent and maximum queued parses of bodies above [`LARGE_BYTES`]. While bodies
/// arrive, only their memory and time are limited.
pub const PARSING: (usize, usize) = (8, 256);
/// Parsing larger bodies may take milliseconds.
const LARGE_BYTES: usize = 64 << 10;
/// Maximum memory that is allocated for the announced length of a body before it arrives.
const MAX_ALLOCATED: usize = 256 << 10;

/// A JSON body: an object without duplicate members, within the time and size limits.
#[derive(Debug)]
pub struct JsonBody<T> {
    pub members: Map<String, Value>,
    /// Errors of the body or the query that were found before reading fields.
    errors: Vec<FieldError>,
    /// SHA-256 of the bytes, if [`RETRY_COUNT`] was sent: an SDK may repeat the request.
    pub digest: Option<[u8; 32]>,
    pub is_form: bool,
    /// The original body, on the routes of SDKs.
    original: Option<(Bytes, Members)>,
    /// A permit to parse it, held until the fields are read. `None` for small bodies.
    permit: Option<Permit<Party>>,
    reserved: Option<Arc<Reservation>>,
    body: PhantomData<T>,
}

impl<T: Send + 'static> JsonBody<T> {
    /// Runs `work` on the body, on a blocking thread if it is large.
    pub async fn off_thread<U: Send + 'static>(
        self,
        work: impl FnOnce(Self) -> Result<U, ApiError> + Send + 'static,
    ) -> Result<U, ApiError> {
        let is_large = self.permit.is_some();
        off_thread(is_large, move || work(self)).await
    }
}

impl<T> JsonBody<T> {
    /// Lets another body be parsed until [`Self::resume_parsing`].
    pub fn pause_parsing(&self) {
        if let Some(permit) = &self.permit {
            permit.release();
        }
    }

    pub async fn resume_parsing(
        &mut self,
        state: &ApiState,
        account: AccountId,
    ) -> Result<(), ApiError> {
        if self.permit.is_some() {
            let acquired = state.settings.parsing.acquire(account).await;
            self.permit = Some(acquired.ok_or_else(ApiError::overloaded)?);
        }
        Ok(())
    }
}

impl<T: RequestForm> JsonBody<T> {
    /// Reads the fields. Reports every failing one.
    pub fn read(self) -> Result<T, ApiError> {
        self.read_as(|_| Vec::new())
    }

    /// As [`Self::read`]. If something failed, the error also has what `violations` finds.
    pub fn read_as<U: From<T>>(
        self,
        violations: impl FnOnce(&U) -> Vec<FieldError>,
    ) -> Result<U, ApiError> {
        let (value, errors) = T::parse(&self.members);
        drop(self.members);
        if let (Some(reserved), Some((bytes, _))) = (&self.reserved, &self.original) {
            reserved.shrink_to(2 * bytes.len());
        }
        let value = value.map(U::from);
        let failed = !self.errors.is_empty() || !errors.is_empty();
        let more = value.as_ref().filter(|_| failed).map(violations);
        let mut all = self.errors;
        for errors in [errors, more.unwrap_or_default()] {
            let known: Vec<String> = all.iter().map(|e| e.param.clone()).collect();
            all.extend(errors.into_iter().filter(|e| !known.contains(&e.param)));
        }
        if self.is_form {
            for error in &mut all {
                error.param = multipart::field(&error.param);
            }
        }
        into_result(value, all)
    }

    /// Returns the errors of the body without consuming it.
    pub fn errors(&self) -> Vec<FieldError> {
        let (_, errors) = T::parse(&self.members);
        [&self.errors[..], &errors].concat()
    }

    /// Removes and returns the original members and the body, on the routes of SDKs.
    pub fn take_original(&mut self) -> Option<(Bytes, Members)> {
        let (bytes, members) = self.original.as_mut()?;
        Some((bytes.clone(), mem::take(members)))
    }

    /// Replaces the original body with the changed members.
    pub fn keep_members(&mut self) {
        if self.original.is_some() {
            // Serializing JSON values cannot fail.
            let bytes = Bytes::from(serde_json::to_vec(&self.members).unwrap_or_default());
            if let Some(reserved) = &self.reserved {
                reserved.add(bytes.len());
            }
            let members = Members::parse(&bytes).unwrap_or_default();
            self.original = Some((bytes, members));
        }
    }

    /// Converts it to another type of body.
    pub fn of_another<U>(self) -> JsonBody<U> {
        JsonBody {
            members: self.members,
            errors: self.errors,
            digest: self.digest,
            is_form: self.is_form,
            original: self.original,
            permit: self.permit,
            reserved: self.reserved,
            body: PhantomData,
        }
    }
}

impl<T: RequestForm + Send + 'static> FromRequest<ApiState> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let form = form_type(&parts.headers).filter(|_| T::TAKES_FORMS);
        if form.is_none() {
            check_media_type(&parts.headers)?;
        }
        let settings = &state.settings;
        let limit = match parts.extensions.get::<Sdk>() {
            None if !T::HAS_PICTURES => settings.max_body_bytes,
            _ => settings.max_sdk_body_bytes,
        };
        let (bytes, permit) = read_body(&parts, body, state, limit, true).await?;
        let repeats = parts.headers.contains_key(RETRY_COUNT);
        let sdk = parts.extensions.get::<Sdk>();
        let keeps = sdk.is_some();
        if form.is_none() && (keeps || T::HAS_PICTURES) {
            // For the strings or files that are read from it.
            reserve(memory::current().as_deref(), bytes.len())?;
        }
        let is_large = permit.is_some() || form.is_some();
        let reserved = memory::current();
        let reading = move || match form {
            Some(form) => Self::from_form(bytes, &form, repeats, (permit, reserved)),
            None => Self::of(bytes, repeats, keeps, (permit, reserved)),
        };
        let mut body = off_thread(is_large, reading).await?;
        // No route accepts both a body and a query, except the parameter of Anthropic's SDKs.
        body.errors.extend(match sdk {
            Some(Sdk::Anthropic) => parse_query::<BetaQuery>(&parts).1,
            _ => parse_query::<()>(&parts).1,
        });
        Ok(body)
    }
}

/// Returns the type of a form, with its boundary.
fn form_type(headers: &HeaderMap) -> Option<String> {
    let is_form = media_type(headers)?.eq_ignore_ascii_case("multipart/form-data");
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    (is_form && is_plain(headers)).then(|| value.to_owned())
}

impl<T> JsonBody<T> {
    /// Reads a form. The digest excludes the boundary, which differs in a retry.
    fn from_form(
        bytes: Bytes,
        content_type: &str,
        repeats: bool,
        (permit, reserved): (Option<Permit<Party>>, Option<Arc<Reservation>>),
    ) -> Result<Self, ApiError> {
        // The files in base64, and the decoded copy.
        reserve(reserved.as_deref(), 3 * bytes.len())?;
        // The body is complete, so the future never waits.
        let members = Handle::current().block_on(multipart::members(bytes, content_type))?;
        let value = Value::Object(members);
        let errors = nul_errors(&value).collect();
        Ok(Self {
            digest: repeats.then(|| Sha256::digest(value.to_string()).into()),
            members: object(value)?,
            errors,
            is_form: true,
            original: None,
            permit,
            reserved,
            body: PhantomData,
        })
    }

    /// `repeats`: an SDK may repeat the request. `keeps`: keep the original object.
    fn of(
        bytes: Bytes,
        repeats: bool,
        keeps: bool,
        (permit, reserved): (Option<Permit<Party>>, Option<Arc<Reservation>>),
    ) -> Result<Self, ApiError> {
        let (value, members, errors) = parse(&bytes, reserved.as_deref())?;
        let digest = repeats.then(|| Sha256::digest(&bytes).into());
        Ok(Self {
            members: object(value)?,
            errors,
            digest,
            is_form: false,
            original: keeps.then_some((bytes, members)),
            permit,
            reserved,
            body: PhantomData,
        })
    }
}

/// Runs `work`, on a blocking thread if the body is large.
async fn off_thread<T: Send + 'static>(
    is_large: bool,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    if !is_large {
        return work();
    }
    let working = spawn_blocking(work);
    working.await.map_err(|_panic| ApiError::internal())?
}

/// The body of a POST that may be absent: no body is an empty object.
#[derive(Debug)]
pub struct OptionalBody<T>(pub T);

/// The body of a POST without fields: none, or an empty object.
pub type EmptyBody = OptionalBody<()>;

impl<T: Input> FromRequest<ApiState> for OptionalBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let limit = state.settings.max_body_bytes;
        let (bytes, permit) = read_body(&parts, body, state, limit, true).await?;
        let (mut members, mut errors) = (Map::new(), Vec::new());
        // No body takes no memory, so a cancel works even if no memory is left.
        if !bytes.is_empty() {
            check_media_type(&parts.headers)?;
            let (is_large, reserved) = (permit.is_some(), memory::current());
            let reading = move || JsonBody::<()>::of(bytes, false, false, (permit, reserved));
            let body = off_thread(is_large, reading).await?;
            (members, errors) = (body.members, body.errors);
        }
        errors.extend(parse_query::<()>(&parts).1);
        let (value, failing) = read_fields(&members);
        into_result(value, [errors, failing].concat()).map(Self)
    }
}

/// A body that is a picture, or claims to be one.
#[derive(Debug)]
pub struct RawBody {
    /// Media type in lower case without parameters; empty if the body is compressed.
    pub media_type: String,
    pub bytes: Bytes,
}

impl FromRequest<ApiState> for RawBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let media_type = media_type(&parts.headers).filter(|_| is_plain(&parts.headers));
        let media_type = media_type.unwrap_or_default().to_ascii_lowercase();
        let (bytes, _) = read_body(&parts, body, state, MAX_INPUT_BYTES, false).await?;
        Ok(Self { media_type, bytes })
    }
}

/// Parses a body. Returns its value, its original members, and where it contains U+0000.
fn parse(
    bytes: &Bytes,
    reserved: Option<&Reservation>,
) -> Result<(Value, Members, Vec<FieldError>), ApiError> {
    let is_full = Cell::new(false);
    let reserve = |bytes| {
        let has_room = reserved.is_none_or(|reserved| reserved.try_add(bytes));
        is_full.set(!has_room);
        has_room
    };
    let parsed = json::parse_object(bytes, &reserve).map_err(|error| {
        if is_full.get() {
            return ApiError::overloaded();
        }
        ApiError::malformed_json(format!("the body is not valid JSON: {error}"))
    });
    let (value, members) = parsed?;
    let errors = if json::may_have_nul(bytes) {
        nul_errors(&value).collect()
    } else {
        Vec::new()
    };
    Ok((value, members, errors))
}

fn object(value: Value) -> Result<Map<String, Value>, ApiError> {
    match value {
        Value::Object(members) => Ok(members),
        _ => Err(ApiError::malformed_json("the body must be a JSON object")),
    }
}

fn check_media_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let json = media_type(headers).is_some_and(|t| t.eq_ignore_ascii_case("application/json"));
    if json && is_plain(headers) {
        return Ok(());
    }
    Err(ApiError::from_status(StatusCode::UNSUPPORTED_MEDIA_TYPE))
}

/// Returns the type of a body, without parameters.
fn media_type(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    value.split(';').next().map(str::trim)
}

/// Whether a body is not compressed.
fn is_plain(headers: &HeaderMap) -> bool {
    let encoding = headers.get(header::CONTENT_ENCODING);
    encoding.is_none_or(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Reads a body; the request's own permit is released meanwhile. If the body `is_parsed` and large,
/// also gets a permit to parse it.
async fn read_body(
    parts: &Parts,
    body: Body,
    state: &ApiState,
    limit: usize,
    is_parsed: bool,
) -> Result<(Bytes, Option<Permit<Party>>), ApiError> {
    let settings = &state.settings;
    let announced = parts
        .headers
        .get(header::CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        return Err(ApiError::from_status(StatusCode::PAYLOAD_TOO_LARGE));
    }
    let seat = parts.extensions.get::<RequestPermit>();
    if let Some(seat) = seat {
        seat.release();
    }
    let account = parts.extensions.get().and_then(CallerSlot::account);
    if limit > settings.max_body_bytes && account.is_none() {
        // Routes with larger bodies authenticate their caller first.
        return Err(ApiError::internal());
    }
    let bytes = collect(body, announced, limit, settings.body_timeout).await?;
    let mut permit = None;
    if is_parsed && bytes.len() > LARGE_BYTES {
        let address = || seat.map(|seat| Party::from(seat.key()));
        let sender = account.map(Party::from).or_else(address);
        let sender = sender.ok_or_else(ApiError::internal)?;
        let acquired = settings.parsing.acquire(sender).await;
        permit = Some(acquired.ok_or_else(ApiError::overloaded)?);
    }
    if let Some(seat) = seat {
        let admitted = seat.reacquire();
        admitted.then_some(()).ok_or_else(ApiError::overloaded)?;
    }
    Ok((bytes, permit))
}

fn reserve(reserved: Option<&Reservation>, bytes: usize) -> Result<(), ApiError> {
    let has_room = reserved.is_none_or(|reserved| reserved.try_add(bytes));
    has_room.then_some(()).ok_or_else(ApiError::overloaded)
}

/// Reads a whole body, which must arrive within `patience` plus the time that it takes at
/// [`SLOWEST`], so that a slow sender cannot keep the request open.
async fn collect(
    body: Body,
    announced: Option<usize>,
    limit: usize,
    patience: Duration,
) -> Result<Bytes, ApiError> {
    let begun = Instant::now();
    let reserved = memory::current();
    let mut pieces = body.into_data_stream();
    let mut bytes = Vec::new();
    loop {
        let received = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let until = begun + patience + Duration::from_secs(1) * received / SLOWEST;
        match timeout_at(until, pieces.next()).await {
            Err(_elapsed) => return Err(ApiError::from_status(StatusCode::REQUEST_TIMEOUT)),
            Ok(None) => return Ok(bytes.into()),
            Ok(Some(Err(_cut))) => {
                return Err(ApiError::malformed_json("the body ended too early"));
            }
            Ok(Some(Ok(piece))) if bytes.len() + piece.len() > limit => {
                return Err(ApiError::from_status(StatusCode::PAYLOAD_TOO_LARGE));
            }
            Ok(Some(Ok(piece))) => {
                let capacity = bytes.capacity();
                if capacity - bytes.len() < piece.len() {
                    let doubled = (2 * capacity).min(announced.unwrap_or(limit));
                    let first = announced.unwrap_or_default().min(MAX_ALLOCATED);
                    let wanted = doubled.max(first).max(bytes.len() + piece.len());
                    reserve(reserved.as_deref(), wanted - capacity)?;
                    bytes.reserve_exact(wanted - bytes.len());
                }
                bytes.extend_from_slice(&piece);
            }
        }
    }
}
