//! Checks and headers of every page: the origin of changes, the content security policy, and the
//! API as the fallback.

use std::panic::AssertUnwindSafe;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tower::ServiceExt as _;
use url::Url;

use super::{Console, problem::Problem};
use crate::api::{OwnBody, Page, accepts_html};

/// First segments of the API's paths: errors there are JSON, whatever the client accepts.
const API: [&str; 3] = ["v1", "openai", "anthropic"];

/// Returns the content security policy: pages load from and call only this server. `media`:
/// space-separated origins of generated files, which are the public URL and a bucket's.
pub fn policy(media: &str) -> HeaderValue {
    let text = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; \
         img-src 'self' data: blob: {media}; media-src 'self' data: blob: {media}; \
         connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    );
    let strict = HeaderValue::from_static("default-src 'none'");
    HeaderValue::from_str(&text).unwrap_or(strict)
}

/// Whether a page of this server sent a request. Browsers send `Sec-Fetch-Site` over https and on
/// localhost, and `Origin` everywhere.
fn is_same_origin(headers: &HeaderMap, public_url: &str) -> bool {
    let text = |name| {
        headers
            .get(name)
            .and_then(|v: &HeaderValue| v.to_str().ok())
    };
    if text(header::HeaderName::from_static("sec-fetch-site")).is_some_and(|s| s != "same-origin") {
        return false;
    }
    let Some(origin) = text(header::ORIGIN).and_then(|origin| Url::parse(origin).ok()) else {
        return false;
    };
    let of = |url: &str| Url::parse(url).ok().map(|url| url.origin());
    let host = text(header::HOST).and_then(|host| of(&format!("{}://{host}", origin.scheme())));
    [host, of(public_url)].contains(&Some(origin.origin()))
}

/// Refuses a change that was not submitted by a page of this server.
pub fn check_origin(
    method: &Method,
    headers: &HeaderMap,
    console: &Console,
) -> Result<(), Problem> {
    let is_safe = matches!(*method, Method::GET | Method::HEAD);
    if is_safe || is_same_origin(headers, &console.0.public_url) {
        return Ok(());
    }
    let message = "this form was not sent by a page of this server; open the console and try again";
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "foreign_origin",
        message,
    ))
}

/// Adds security headers to HTML responses.
pub async fn guard(State(console): State<Console>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let is_html = |value: &HeaderValue| value.as_bytes().starts_with(b"text/html");
    let is_page = headers.get(header::CONTENT_TYPE).is_some_and(is_html);
    // The API's own pages have their own policy.
    if !is_page || headers.contains_key(header::CONTENT_SECURITY_POLICY) {
        return response;
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, console.0.policy.clone());
    for (name, value) in [
        // With `no-referrer`, browsers send `Origin: null` with forms.
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Turns a panic into an error page, and keeps the bodies of other errors.
pub async fn answered(mut request: Request, next: Next) -> Response {
    let page = Page::default();
    request.extensions_mut().insert(page.clone());
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    // The panic hook has logged it.
    let mut response = answer.unwrap_or_else(|_panic| Problem::internal().into_response());
    response.extensions_mut().insert(OwnBody);
    response.extensions_mut().insert(page);
    response
}

fn is_of_the_api(path: &str) -> bool {
    let root = path.split('/').nth(1);
    root.is_some_and(|root| API.contains(&root))
}

/// Passes other paths to the API. Browsers get its 404 as a page.
pub async fn other(State(console): State<Console>, request: Request) -> Response {
    let wants_page = accepts_html(request.headers()) && !is_of_the_api(request.uri().path());
    let response = front(&console, request).await;
    if wants_page && response.status() == StatusCode::NOT_FOUND {
        return Problem::not_found().into_response();
    }
    response
}

/// Returns the API's response for `/`.
pub async fn front(console: &Console, request: Request) -> Response {
    let Ok(response) = console.0.api.clone().oneshot(request).await;
    response
}
