//! Around every page: where changes may come from, what the browser may do, what is no page.

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

use super::{Console, client::Problem};
use crate::api::{OwnBody, Page, accepts_html};

/// Below these a program asks, whatever it accepts.
const API: [&str; 3] = ["/v1", "/openai", "/anthropic"];

/// What pages may load and call: this server alone. Files of generations have the origin that
/// clients reach the server at, which need not be the one that this browser took, and may be
/// redirected to a bucket's: `media` are these origins, with blanks between.
pub fn policy(media: &str) -> HeaderValue {
    let text = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; \
         img-src 'self' data: blob: {media}; media-src 'self' data: blob: {media}; \
         connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    );
    let strict = HeaderValue::from_static("default-src 'none'");
    HeaderValue::from_str(&text).unwrap_or(strict)
}

/// Whether a request was made by a page of this server. Every browser of today sends
/// `Sec-Fetch-Site`, on https and on this machine; others, and elsewhere, `Origin`.
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

/// Refuses a change that no page of this server asked for.
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

pub async fn guard(State(console): State<Console>, request: Request, next: Next) -> Response {
    dressed(next.run(request).await, &console)
}

/// A page's answer, also of one that panics: whatever its status, its body is its own.
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

/// The headers of pages, on what is one.
fn dressed(mut response: Response, console: &Console) -> Response {
    let headers = response.headers_mut();
    let is_html = |value: &HeaderValue| value.as_bytes().starts_with(b"text/html");
    let is_page = headers.get(header::CONTENT_TYPE).is_some_and(is_html);
    // The API's own pages have a policy of their own.
    if !is_page || headers.contains_key(header::CONTENT_SECURITY_POLICY) {
        return response;
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, console.0.policy.clone());
    for (name, value) in [
        // A browser that is told nothing of where a form comes from says so: `Origin: null`.
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn is_of_the_api(path: &str) -> bool {
    let below = |root: &&str| {
        path.strip_prefix(*root)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    API.iter().any(below)
}

/// What is no page is the API's; what is not found there either is a page for browsers.
pub async fn other(State(console): State<Console>, request: Request) -> Response {
    let wants_page = accepts_html(request.headers()) && !is_of_the_api(request.uri().path());
    let Ok(response) = console.0.api.clone().oneshot(request).await;
    if wants_page && response.status() == StatusCode::NOT_FOUND {
        return Problem::not_found().into_response();
    }
    response
}

/// The API's front, at the address of the console's.
pub async fn front(console: &Console, request: Request) -> Response {
    let Ok(response) = console.0.api.clone().oneshot(request).await;
    response
}
