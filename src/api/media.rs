//! GET /v1/media/{uuid}/{file}: stored files, by signed, expiring links.

use std::ops::Range;

use axum::{
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    response::{IntoResponse as _, Redirect, Response},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::Value;

use super::{ApiState, error::ApiError, extract::Query};
use crate::{
    domain::validate::{Fields, Input},
    media::{MediaHead, MediaKey, MediaStoreError},
};

pub struct Signature {
    expires: i64,
    signature: String,
}

/// A missing or malformed parameter makes the signature invalid.
impl Input for Signature {
    fn read(fields: &Fields<'_>) -> Option<Self> {
        let text = |name| fields.value(name).and_then(Value::as_str);
        let expires = text("expires").and_then(|text| text.parse().ok());
        Some(Self {
            expires: expires.unwrap_or_default(),
            signature: text("signature").unwrap_or_default().to_owned(),
        })
    }
}

/// Fetch a stored file
///
/// The link in a record authorizes the request; no token is needed. Supports ranges and entity
/// tags.
#[utoipa::path(
    get, path = "/v1/media/{uuid}/{file}", tag = "generations",
    params(
        ("uuid" = String, Path, description = "The generation's uuid"),
        ("file" = String, Path, description = "The file's name"),
        ("expires" = i64, Query, description = "Unix seconds"),
        ("signature" = String, Query, description = "Of this server"),
        ("Range" = Option<String>, Header, description = "`bytes=first-last`"),
    ),
    responses(
        (status = 200, description = "The file", content_type = "application/octet-stream"),
        (status = 206, description = "A part of it", content_type = "application/octet-stream"),
        (status = 304, description = "It has not changed"),
        (status = 307, description = "It lies in a bucket: a link signed by that"),
    ),
)]
pub async fn file(
    State(state): State<ApiState>,
    path: Result<Path<(String, String)>, PathRejection>,
    query: Result<Query<Signature>, ApiError>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let missing = || ApiError::not_found("there is no such file");
    let Path((uuid, file)) = path.map_err(|_| missing())?;
    let key: MediaKey = format!("{uuid}/{file}").parse().map_err(|_| missing())?;
    let Query(Signature { expires, signature }) = query?;
    let checking = state.links().verify(&key, expires, &signature);
    let rest = checking.map_err(ApiError::link)?;
    let store = &state.settings.storage;
    // A bucket serves its files itself, by a link that it signs for the same time. Such links are
    // for GET only.
    if method == Method::GET
        && let Some(there) = store.link(&key, rest).await?
    {
        return Ok(Redirect::temporary(&there).into_response());
    }
    let head = store.head(&key).await?.ok_or_else(missing)?;
    let etag = head.e_tag.clone().unwrap_or_default();
    if matches_etag(&headers, &etag) {
        return Ok(headed(StatusCode::NOT_MODIFIED, &key, &head, Body::empty()));
    }
    // A range only applies to GET.
    let range = if method == Method::GET && same_version(&headers, &etag) {
        byte_range(&headers, &head)?
    } else {
        None
    };
    let body = if method == Method::HEAD {
        Body::empty()
    } else {
        let found = store.get(&key, range.clone()).await?.ok_or_else(missing)?;
        Body::from_stream(found.body)
    };
    let (status, length) = match &range {
        Some(range) => (StatusCode::PARTIAL_CONTENT, range.end - range.start),
        None => (StatusCode::OK, head.bytes),
    };
    let mut response = headed(status, &key, &head, body);
    let out = response.headers_mut();
    out.insert(header::CONTENT_LENGTH, length.into());
    let part = range.map(|r| format!("bytes {}-{}/{}", r.start, r.end - 1, head.bytes));
    if let Some(Ok(part)) = part.map(HeaderValue::try_from) {
        out.insert(header::CONTENT_RANGE, part);
    }
    Ok(response)
}

/// Adds the headers of every response with a file. Browsers show the file but run nothing in it.
fn headed(status: StatusCode, key: &MediaKey, head: &MediaHead, body: Body) -> Response {
    let policy = "default-src 'none'; media-src 'self'; sandbox";
    let fixed = [
        (header::CONTENT_TYPE, key.kind.content_type()),
        (header::ACCEPT_RANGES, "bytes"),
        (header::CACHE_CONTROL, "private, max-age=86400, immutable"),
        (header::CONTENT_SECURITY_POLICY, policy),
    ];
    let mut response = (status, fixed, body).into_response();
    let etag = head.e_tag.as_deref().map(quoted);
    if let Some(Ok(etag)) = etag.map(HeaderValue::try_from) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}

/// Returns an entity tag in quotes.
fn quoted(etag: &str) -> String {
    format!("\"{}\"", etag.trim_matches('"'))
}

fn matches_etag(headers: &HeaderMap, etag: &str) -> bool {
    let asked = headers
        .get(header::IF_NONE_MATCH)
        .and_then(|v| v.to_str().ok());
    asked.is_some_and(|asked| {
        asked
            .split(',')
            .map(|one| one.trim().trim_start_matches("W/"))
            .any(|one| one == "*" || (!etag.is_empty() && one == quoted(etag)))
    })
}

/// Whether a range may be returned: `If-Range` is absent or names this version.
fn same_version(headers: &HeaderMap, etag: &str) -> bool {
    match headers.get(header::IF_RANGE) {
        None => true,
        Some(version) => !etag.is_empty() && version.as_bytes() == quoted(etag).as_bytes(),
    }
}

/// Returns the requested range. Several ranges, or a malformed one, count as none.
fn byte_range(headers: &HeaderMap, head: &MediaHead) -> Result<Option<Range<u64>>, ApiError> {
    let text = headers.get(header::RANGE).and_then(|v| v.to_str().ok());
    let Some(spec) = text.and_then(|t| t.trim().strip_prefix("bytes=")) else {
        return Ok(None);
    };
    let Some((first, last)) = spec.split_once('-').filter(|_| !spec.contains(',')) else {
        return Ok(None);
    };
    let (first, last) = (first.trim(), last.trim());
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| !text.starts_with('+'));
    let range = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(head.bytes),
        (Some(first), None) if last.is_empty() => first..head.bytes,
        (None, Some(suffix)) if first.is_empty() => head.bytes.saturating_sub(suffix)..head.bytes,
        _ => return Ok(None),
    };
    if range.start >= range.end {
        return Err(ApiError::range(head.bytes));
    }
    Ok(Some(range))
}

impl From<MediaStoreError> for ApiError {
    fn from(error: MediaStoreError) -> Self {
        if let MediaStoreError::Range { bytes } = error {
            return Self::range(bytes);
        }
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "a stored file cannot be read"
        );
        Self::storage_unavailable()
    }
}
