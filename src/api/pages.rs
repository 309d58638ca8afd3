//! The OpenAPI document and its pages.

use std::{
    borrow::Cow,
    collections::HashMap,
    io::{self, Read as _, Write as _},
    sync::{Arc, Mutex},
};

use axum::{
    Json,
    body::Bytes,
    extract::{Path, State, rejection::PathRejection},
    response::{Html, IntoResponse, Response},
};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use http::{HeaderMap, HeaderName, StatusCode, header};
use serde_json::json;

use super::{ApiState, accept::weight, error::ApiError, extract::NoQuery};
use crate::domain::lock::lock;

/// GET /docs. Its paths are absolute, so it needs no redirect to a trailing slash. It loads nothing
/// from other hosts.
const DOCS: &str = include_str!("pages/docs.html");

/// In its own file, so that the policy can refuse inline scripts.
const START: &str = include_str!("pages/start.js");

/// Additions to Swagger UI: table cells are stacked and examples scroll on a narrow screen; dark
/// colors, except for examples, which are always dark.
const STYLE: &str = include_str!("pages/docs.css");

/// Allows only this server's scripts and calls to it, so that nothing can send a key typed into the
/// page elsewhere, or show the page in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
    img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";

/// Headers of pages and their files.
const GUARDED: [(HeaderName, &str); 2] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::REFERRER_POLICY, "no-referrer"),
];

/// GET /: name, version and links. Browsers get the console instead.
pub async fn front(_query: NoQuery) -> Response {
    let body = json!({
        "name": "gensvc",
        "version": env!("CARGO_PKG_VERSION"),
        "docs": "/docs",
        "openapi": "/openapi.json",
        "health": "/health",
    });
    Json(body).into_response()
}

pub async fn docs(_query: NoQuery) -> impl IntoResponse {
    (GUARDED, Html(DOCS))
}

pub async fn openapi(
    State(state): State<ApiState>,
    headers: HeaderMap,
    _query: NoQuery,
) -> Result<Response, ApiError> {
    let json = [(header::CONTENT_TYPE, "application/json")];
    let document = state.settings.openapi.clone();
    let body = unpacked(&state, &headers, "/openapi.json", document)?;
    Ok((json, body).into_response())
}

/// GET /docs/{file}: the files of Swagger UI, which are part of the binary.
pub async fn asset(
    State(state): State<ApiState>,
    path: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let missing = || ApiError::from_status(StatusCode::NOT_FOUND);
    let Path(file) = path.map_err(|_| missing())?;
    let own = match file.as_str() {
        "start.js" => Some(("text/javascript", START)),
        "page.css" => Some(("text/css", STYLE)),
        _ => None,
    };
    if let Some((content_type, text)) = own {
        let content_type = [(header::CONTENT_TYPE, content_type)];
        return Ok((GUARDED, content_type, text).into_response());
    }
    let config = Arc::new(utoipa_swagger_ui::Config::from("/openapi.json"));
    match utoipa_swagger_ui::serve(&file, config) {
        Ok(Some(found)) => {
            let content_type = [(header::CONTENT_TYPE, found.content_type)];
            let bytes = match found.bytes {
                Cow::Borrowed(bytes) => Bytes::from_static(bytes),
                Cow::Owned(bytes) => Bytes::from(bytes),
            };
            let body = if found.gzpipped {
                unpacked(&state, &headers, &file, bytes)?
            } else {
                bytes.into_response()
            };
            Ok((GUARDED, content_type, body).into_response())
        }
        Ok(None) => Err(missing()),
        Err(error) => {
            tracing::error!(%error, file, "a file of the documentation cannot be served");
            Err(ApiError::internal())
        }
    }
}

/// Compresses a large file of the documentation, once.
pub fn gzip(text: &str) -> io::Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes())?;
    encoder.finish().map(Bytes::from)
}

/// Decompressed files by name, for clients that do not accept gzip. Each is decompressed once.
pub type Unpacked = Mutex<HashMap<String, Bytes>>;

/// The response with a compressed file, decompressed if the client does not accept gzip.
fn unpacked(
    state: &ApiState,
    headers: &HeaderMap,
    name: &str,
    gzip: Bytes,
) -> Result<Response, ApiError> {
    let vary = (header::VARY, "accept-encoding");
    if weight(headers, &header::ACCEPT_ENCODING, "gzip") > 0.0 {
        return Ok(([vary, (header::CONTENT_ENCODING, "gzip")], gzip).into_response());
    }
    let mut files = lock(&state.settings.unpacked);
    if let Some(file) = files.get(name) {
        return Ok(([vary], file.clone()).into_response());
    }
    let mut bytes = Vec::new();
    match GzDecoder::new(&gzip[..]).read_to_end(&mut bytes) {
        Ok(_) => {
            let file = Bytes::from(bytes);
            files.insert(name.to_owned(), file.clone());
            Ok(([vary], file).into_response())
        }
        Err(error) => {
            tracing::error!(%error, "a file of the documentation cannot be unpacked");
            Err(ApiError::internal())
        }
    }
}
