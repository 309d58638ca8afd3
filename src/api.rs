//! The HTTP API: one table of routes, each declared with its document and its permission.
//!
//! Here: bodies, queries, headers and status codes. Not here: rules, arithmetic, writes.

mod account;
mod admin;
mod admission;
mod api_keys;
mod auth;
mod catalogue;
mod client_address;
mod credits;
mod error;
mod estimate;
mod extract;
mod generate;
mod generations;
mod health;
mod media;
mod metrics;
mod middleware;
mod openapi;
mod prefer;
mod raw_error;
mod record;
mod schema;
mod stream;
mod templates;
mod usage;
mod webhooks;

use std::{sync::Arc, time::Duration};

use axum::{Router, body::Bytes, routing::get};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use tower_http::{
    catch_panic::CatchPanicLayer,
    cors::{AllowOrigin, CorsLayer},
};
use utoipa::OpenApi as _;
use utoipa_axum::{router::OpenApiRouter, routes};

pub use admin::{AdminAccountBody, AdminTokenBody, NewAdminTokenBody};
pub use api_keys::{KeyBody, NewKeyBody};
pub use client_address::Network;
pub use credits::LedgerEntryBody;
pub use error::ApiError;
pub use media::MediaLinks;
pub use metrics::MetricsEndpoint;
pub use raw_error::raw_error_response;
pub use usage::UsageBody;
pub use webhooks::renderer;

use crate::{media::MediaStore, service::Service};

/// The settings of the HTTP side.
#[derive(Clone)]
pub struct ApiSettings {
    /// The largest body, in bytes.
    pub max_body_bytes: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// Requests at work at once.
    pub max_requests: usize,
    /// How long a request that makes nothing may take.
    pub request_timeout: Duration,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<Network>,
    /// Origins of browsers that may call; none: no CORS.
    pub cors_origins: Vec<String>,
    pub storage: MediaStore,
    /// How they are linked to.
    pub links: MediaLinks,
    /// What is counted, and who may read it.
    pub metrics: MetricsEndpoint,
}

#[derive(Clone)]
pub struct ApiState {
    service: Service,
    settings: Arc<Settings>,
}

struct Settings {
    max_body_bytes: usize,
    body_timeout: Duration,
    trusted_proxies: Vec<Network>,
    storage: MediaStore,
    links: MediaLinks,
    metrics: MetricsEndpoint,
    last_checks: health::LastChecks,
    openapi: Bytes,
}

impl ApiState {
    /// How stored files are linked to.
    fn links(&self) -> &MediaLinks {
        &self.settings.links
    }
}

/// The route table. The document is made of the same declarations.
fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::with_openapi(openapi::Document::openapi())
        .routes(routes!(generate::text))
        .routes(routes!(generate::image))
        .routes(routes!(generate::video))
        .routes(routes!(generate::audio))
        .routes(routes!(media::file))
        .routes(routes!(generations::history))
        .routes(routes!(generations::lookup, generations::delete))
        .routes(routes!(generations::cancel))
        .routes(routes!(credits::balance))
        .routes(routes!(credits::ledger))
        .routes(routes!(usage::usage))
        .routes(routes!(estimate::estimate))
        .routes(routes!(templates::create, templates::list))
        .routes(routes!(
            templates::get,
            templates::replace,
            templates::delete
        ))
        .routes(routes!(account::get, account::change))
        .routes(routes!(api_keys::create, api_keys::list))
        .routes(routes!(api_keys::get, api_keys::revoke))
        .routes(routes!(webhooks::create, webhooks::list))
        .routes(routes!(webhooks::get, webhooks::delete))
        .routes(routes!(webhooks::deliveries))
        .routes(routes!(webhooks::redeliver))
        .routes(routes!(auth::login))
        .routes(routes!(auth::logout))
        .routes(routes!(auth::me))
        .routes(routes!(admin::list, admin::create))
        .routes(routes!(admin::get))
        .routes(routes!(admin::move_credits))
        .routes(routes!(admin::suspend))
        .routes(routes!(admin::resume))
        .routes(routes!(catalogue::models))
        .routes(routes!(catalogue::model))
        .routes(routes!(catalogue::providers))
        .routes(routes!(health::health))
        .routes(routes!(health::live))
        .routes(routes!(metrics::metrics))
}

/// The OpenAPI document, as GET /openapi.json serves it.
pub fn openapi() -> Result<serde_json::Value, serde_json::Error> {
    openapi::complete(&mut routes().into_openapi())
}

/// The whole HTTP side.
pub fn router(service: Service, settings: ApiSettings) -> Result<Router, serde_json::Error> {
    let (router, _) = routes().split_for_parts();
    let metrics = settings.metrics.metrics().clone();
    let state = ApiState {
        service,
        settings: Arc::new(Settings {
            max_body_bytes: settings.max_body_bytes,
            body_timeout: settings.body_timeout,
            trusted_proxies: settings.trusted_proxies,
            storage: settings.storage,
            links: settings.links,
            metrics: settings.metrics,
            last_checks: health::LastChecks::default(),
            openapi: openapi()?.to_string().into(),
        }),
    };
    let router = router
        .route("/openapi.json", get(openapi::openapi))
        .route("/docs", get(openapi::page))
        .route("/docs/{file}", get(openapi::asset))
        .with_state(state)
        .fallback(|| async { ApiError::from_status(StatusCode::NOT_FOUND) })
        .layer(axum::middleware::from_fn_with_state(
            admission::Admission::new(settings.max_requests, settings.request_timeout),
            admission::admit,
        ))
        .layer(CatchPanicLayer::custom(
            |_: Box<dyn std::any::Any + Send>| {
                // The panic hook has logged it.
                axum::response::IntoResponse::into_response(ApiError::internal())
            },
        ));
    let router = match cors(&settings.cors_origins) {
        Some(cors) => router.layer(cors),
        None => router,
    };
    let router = router.layer(axum::middleware::from_fn(middleware::request_context));
    let measure = axum::middleware::from_fn_with_state(metrics, metrics::measure);
    Ok(router.layer(measure))
}

fn cors(origins: &[String]) -> Option<CorsLayer> {
    if origins.is_empty() {
        return None;
    }
    let origins: AllowOrigin = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        AllowOrigin::list(origins.iter().filter_map(|o| HeaderValue::from_str(o).ok()))
    };
    let headers = [
        "authorization",
        "content-type",
        "idempotency-key",
        "prefer",
        "x-request-id",
    ];
    let exposed = [
        "x-request-id",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "retry-after",
        "location",
        "link",
        "idempotent-replayed",
        "preference-applied",
    ];
    Some(
        CorsLayer::new()
            .allow_origin(origins)
            .allow_methods([
                Method::GET,
                Method::POST,
                Method::PUT,
                Method::PATCH,
                Method::DELETE,
            ])
            .allow_headers(headers.map(HeaderName::from_static))
            .expose_headers(exposed.map(HeaderName::from_static)),
    )
}
