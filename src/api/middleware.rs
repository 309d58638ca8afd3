//! Request ids, the request log, error bodies and rate limit headers of all requests.

use std::time::Instant;

use axum::{body::Body, extract::Request, middleware::Next, response::Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use tracing::Instrument as _;
use uuid::Uuid;

use super::{
    admission::MONITORING,
    context::{Authenticated, CallerSlot, Known, OwnBody, Page, RequestId, Sdk},
    error::{ApiError, Code},
};

static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_ID_CHARS: usize = 128;
/// Routes of files that belong to pages.
const ASSETS: [&str; 2] = ["/assets/{file}", "/docs/{file}"];

/// Sets the request id, and adds the headers and the log line of every response.
pub async fn request_context(mut request: Request, next: Next, route: &str) -> Response {
    // The request may be a part of a page, which has the id.
    let id = request.extensions().get::<RequestId>();
    let id = id.map_or_else(|| request_id(&request), |RequestId(id)| id.clone());
    let caller = CallerSlot::default();
    let is_part = request.extensions().get::<Page>().is_some();
    request.extensions_mut().insert(caller.clone());
    request.extensions_mut().insert(RequestId(id.clone()));
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let sdk = Sdk::of_path(&path);
    if let Some(sdk) = sdk {
        request.extensions_mut().insert(sdk);
    }
    let since = Instant::now();
    let span = tracing::info_span!("request", id = %id);
    let mut response = next.run(request).instrument(span.clone()).await;
    let code = envelope(&mut response, sdk, &id).map(Code::as_str);
    let status = response.status();
    let page = response.extensions_mut().remove::<Page>();
    let known = page.as_ref().map_or(&caller, |page| &page.caller).get();
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
    // Only the caller may see records, keys and tokens.
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

/// Returns the client's request id if it is well-formed, otherwise a new one.
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

/// Writes the body of an error, of this crate or of a library. Returns its code.
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

/// Returns the bytes of a response on a connection without a request: 503 if there are too many
/// connections, another status for an unreadable head. Its request id is not logged.
pub fn raw_error_response(status: StatusCode) -> Vec<u8> {
    let (error, retry) = if status == StatusCode::SERVICE_UNAVAILABLE {
        (ApiError::overloaded(), "retry-after: 1\r\n")
    } else {
        (ApiError::from_status(status), "")
    };
    let id = Uuid::now_v7();
    let body = error.body(&id.to_string());
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         x-request-id: {id}\r\nx-content-type-options: nosniff\r\n{retry}connection: close\r\n\r\n{body}",
        body.len(),
    )
    .into_bytes()
}
