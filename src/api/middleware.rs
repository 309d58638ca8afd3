//! Around every request: its id, its log line, the error envelope and the rate headers.

use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

use axum::{body::Body, extract::Request, middleware::Next, response::Response};
use http::{HeaderName, HeaderValue, header};
use tracing::Instrument as _;
use uuid::Uuid;

use super::error::ApiError;
use crate::domain::rate::RateState;

static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_ID_CHARS: usize = 128;

/// Where authentication leaves the state of the limit for the response's headers.
#[derive(Debug, Clone, Default)]
pub struct RateSlot(Arc<OnceLock<RateState>>);

impl RateSlot {
    pub fn set(&self, rate: RateState) {
        let _ = self.0.set(rate);
    }
}

/// Gives the request its id, and its response everything that every response carries.
pub async fn request_context(mut request: Request, next: Next) -> Response {
    let id = request_id(&request);
    let rate = RateSlot::default();
    request.extensions_mut().insert(rate.clone());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let since = Instant::now();
    let span = tracing::info_span!("request", id = %id);
    let mut response = next.run(request).instrument(span.clone()).await;
    envelope(&mut response, &id);
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert(&REQUEST_ID, value);
    }
    // Records, keys and tokens are for the caller alone.
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    if let Some(rate) = rate.0.get() {
        headers.insert("x-ratelimit-limit", rate.limit.into());
        headers.insert("x-ratelimit-remaining", rate.remaining.into());
        headers.insert("x-ratelimit-reset", rate.reset_seconds.into());
    }
    let elapsed_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
    span.in_scope(|| {
        tracing::info!(%method, path, status = response.status().as_u16(), elapsed_ms, "answered");
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

/// Writes the body of every error, our own and those that a library answered with.
fn envelope(response: &mut Response, id: &str) {
    let status = response.status();
    let error = match response.extensions_mut().remove::<ApiError>() {
        Some(error) => error,
        None if status.is_client_error() || status.is_server_error() => {
            if response.extensions().get::<OwnBody>().is_some() {
                return;
            }
            ApiError::from_status(status)
        }
        None => return,
    };
    *response.body_mut() = Body::from(error.body(id));
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
}

/// Marks an error response that has a body of its own (a failing health check).
#[derive(Debug, Clone, Copy)]
pub struct OwnBody;
