//! GET /metrics, and the metrics and trace of every request.
//!
//! With `metrics.token`, the metrics are at the API's address for callers with the token. Without
//! it, they have their own listener on 127.0.0.1: at the API's address, a program on this machine
//! cannot be distinguished from a proxy that forwards requests of strangers.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use axum::{
    extract::{FromRequestParts, MatchedPath, Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, HeaderName, Method, header, request::Parts, uri::Authority};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::sync::Mutex;
use tracing::{Instrument as _, field::Empty};

use super::{
    ApiState,
    accept::weight,
    error::ApiError,
    extract::{NoQuery, bearer},
    middleware::request_context,
};
use crate::{
    observe::{Gauges, MemoryUse, Metrics, TRACES, Unfinished},
    service::{Service, TokenRefusal},
};

/// Maximum age of the database's metrics, so that many scrapers do not overload it.
const FRESH: Duration = Duration::from_secs(5);
/// The route label of unknown paths.
const UNMATCHED: &str = "unmatched";
/// Headers of a request that a proxy forwards or that a browser makes for a web page, rather than a
/// program on this machine.
const NOT_LOCAL: [HeaderName; 5] = [
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-real-ip"),
    header::FORWARDED,
    header::VIA,
    header::ORIGIN,
];

/// The metrics, and who may read them.
pub struct MetricsEndpoint {
    pub(super) metrics: Metrics,
    /// Only the digest: compared in constant time for tokens of any length.
    token: Option<[u8; 32]>,
    last: Mutex<Option<(Instant, Option<Vec<Unfinished>>)>>,
}

impl MetricsEndpoint {
    /// Serves the metrics at the API's address to callers with `token`, or nothing without one.
    pub fn new(metrics: Metrics, token: Option<&SecretString>) -> Self {
        let digest = |token: &SecretString| Sha256::digest(token.expose_secret()).into();
        Self {
            metrics,
            token: token.map(digest),
            last: Mutex::default(),
        }
    }

    /// Returns the state of the database, at most [`FRESH`] old; `None` if it does not respond.
    async fn unfinished(&self, service: &Service) -> Option<Vec<Unfinished>> {
        let mut last = self.last.lock().await;
        if let Some((at, rows)) = &*last
            && at.elapsed() < FRESH
        {
            return rows.clone();
        }
        let rows = match service.store().unfinished_now(service.now()).await {
            Ok(rows) => Some(rows),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the metrics of the database cannot be read");
                None
            }
        };
        *last = Some((Instant::now(), rows.clone()));
        rows
    }
}

/// A caller who may read the metrics.
pub struct Scraper;

impl FromRequestParts<ApiState> for Scraper {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let expected = state.settings.metrics.token.as_ref();
        let expected = expected.ok_or_else(ApiError::loopback_only)?;
        let token = bearer(&parts.headers).map_err(ApiError::token)?;
        if bool::from(Sha256::digest(token).ct_eq(expected)) {
            Ok(Self)
        } else {
            Err(ApiError::token(TokenRefusal::Invalid))
        }
    }
}

/// Read the metrics
///
/// Returns the text format of Prometheus, or `OpenMetrics` if `Accept` asks for it. Needs the
/// setting `metrics.token` as bearer token. Without that setting the metrics are on their own port
/// of 127.0.0.1 (`metrics.port`), without a token, and this route returns 403 `loopback_only`.
#[utoipa::path(
    get, path = "/metrics", tag = "operations",
    responses(
        (status = 200, description = "All numbers of this server",
            content((String = "text/plain"), (String = "application/openmetrics-text"))),
    ),
)]
pub async fn metrics(
    State(state): State<ApiState>,
    _scraper: Scraper,
    headers: HeaderMap,
    _query: NoQuery,
) -> Result<Response, ApiError> {
    exposition(&state, &headers).await
}

/// GET /metrics without a token, for a listener that only this machine can reach.
pub async fn local_metrics(
    State(state): State<ApiState>,
    headers: HeaderMap,
    _query: NoQuery,
) -> Result<Response, ApiError> {
    let forwarded = NOT_LOCAL.iter().any(|name| headers.contains_key(name));
    if forwarded || !names_this_machine(&headers) {
        return Err(ApiError::loopback_only());
    }
    exposition(&state, &headers).await
}

/// Whether `Host` is this machine. Any name can lead a browser here, but it sends that name.
fn names_this_machine(headers: &HeaderMap) -> bool {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let authority = host.and_then(|host| host.parse::<Authority>().ok());
    authority.is_some_and(|authority| {
        let name = authority.host();
        let address = name.trim_start_matches('[').trim_end_matches(']').parse();
        name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|ip: IpAddr| ip.is_loopback())
    })
}

async fn exposition(state: &ApiState, headers: &HeaderMap) -> Result<Response, ApiError> {
    let endpoint = &state.settings.metrics;
    let store = state.service.store();
    let unfinished = endpoint.unfinished(&state.service).await;
    let memory = &state.settings.memory;
    let (used, budget) = memory.usage();
    let gauges = Gauges {
        unfinished: unfinished.as_deref(),
        pools: &store.pools(),
        waiting: state.service.waiting(),
        memory: MemoryUse {
            used,
            budget,
            refused: memory.refused(),
        },
    };
    let metrics = &endpoint.metrics;
    let circuits = state.service.open_circuits();
    metrics.open_circuits(circuits.iter().map(|open| (&*open.provider, &*open.model)));
    let (content_type, text) = if asks_for_open_metrics(headers) {
        let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        (content_type, metrics.open_metrics(gauges))
    } else {
        let content_type = "text/plain; version=0.0.4; charset=utf-8";
        (content_type, metrics.text(gauges))
    };
    let text = text.map_err(|error| {
        tracing::error!(%error, "the metrics cannot be written");
        ApiError::internal()
    })?;
    Ok(([(header::CONTENT_TYPE, content_type)], text).into_response())
}

/// Whether `Accept` lists `OpenMetrics`, with at least the weight of plain text.
fn asks_for_open_metrics(headers: &HeaderMap) -> bool {
    let wish = |name| weight(headers, &header::ACCEPT, name);
    let open = wish("application/openmetrics-text");
    open > 0.0 && open >= wish("text/plain")
}

/// Counts, times and traces every request.
pub async fn measure(State(metrics): State<Metrics>, request: Request, next: Next) -> Response {
    let method = label(request.method());
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or(UNMATCHED, MatchedPath::as_str);
    let watch = metrics.request(method, route);
    let span = tracing::info_span!(
        target: TRACES,
        "http request",
        otel.name = %format_args!("{method} {route}"),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = route,
        http.response.status_code = Empty,
    );
    let response = request_context(request, next, route)
        .instrument(span.clone())
        .await;
    let status = response.status();
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    watch.answered(status.as_u16());
    response
}

/// Returns a method as a label. Clients can send any word as a method.
fn label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "_OTHER",
    }
}
