//! The HTTP API: one table of routes, each declared with its document and its permission.
//!
//! Handlers read bodies, queries and headers, and choose status codes. Rules, arithmetic and writes
//! are in `service`.

mod accept;
mod account;
mod admin;
mod admission;
mod api_keys;
mod auth;
mod body;
mod catalogue;
mod context;
mod credits;
mod error;
mod extract;
mod generate;
mod generations;
mod health;
mod lifecycle;
mod links;
mod media;
mod metrics;
mod middleware;
mod multipart;
mod openapi;
mod pages;
mod prefer;
mod record;
mod route;
mod stream;
mod surfaces;
mod templates;
mod uploads;
mod webhooks;

use std::{
    collections::{BTreeMap, HashSet},
    ops::Deref,
    sync::Arc,
    time::Duration,
};

use axum::{
    Extension, Router, body::Bytes, extract::MatchedPath, middleware::from_fn_with_state,
    routing::get,
};
use http::{HeaderName, HeaderValue, Method, Uri};
use tower::util::option_layer;
use tower_http::cors::{AllowOrigin, CorsLayer};
use utoipa_axum::router::OpenApiRouter;

pub use accept::accepts_html;
pub use admission::is_trusted;
pub use api_keys::NewKeyBody;
pub use context::{Authenticated, OwnBody, Page, RequestId};
pub use error::{ApiError, Code};
pub use extract::VIEWED_ACCOUNT;
pub use links::MediaLinks;
pub use metrics::MetricsEndpoint;
pub use middleware::raw_error_response;
pub use record::{GenerationRecord, RecordError};
pub use webhooks::renderer;

use context::Sdk;
use route::{Route, route};

use crate::{
    domain::{
        limiter::Limiter,
        party::{Address, Network},
    },
    media::MediaStore,
    memory::Memory,
    observe::Metrics,
    resource::{Refusals, Resource},
    service::Service,
};

/// Maximum characters of an unknown path in its error.
const MAX_NAMED_PATH: usize = 200;

/// The settings of the HTTP side.
pub struct ApiSettings {
    /// Maximum bytes of a body.
    pub max_body_bytes: usize,
    /// Maximum bytes of a body on the routes of SDKs.
    pub max_sdk_body_bytes: usize,
    /// Maximum time for a body to arrive.
    pub body_timeout: Duration,
    /// Maximum concurrent requests.
    pub max_requests: usize,
    /// Maximum time of a request that generates nothing.
    pub request_timeout: Duration,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<Network>,
    /// Origins that browsers may call from; empty: no CORS.
    pub cors_origins: Vec<String>,
    pub storage: MediaStore,
    /// Creates links to stored files.
    pub links: MediaLinks,
    /// The metrics, and who may read them.
    pub metrics: MetricsEndpoint,
    /// The memory budget of requests.
    pub memory: Memory,
}

pub struct ApiState {
    service: Service,
    settings: Arc<Settings>,
}

/// Each request clones the state, with the current catalogue.
impl Clone for ApiState {
    fn clone(&self) -> Self {
        Self {
            service: self.service.current(),
            settings: Arc::clone(&self.settings),
        }
    }
}

/// The settings, and values derived from them.
struct Settings {
    own: ApiSettings,
    /// Permits of running requests; at most half of them for one address.
    requests: Limiter<Address>,
    refusals: Refusals,
    /// Paths without the limit `request_timeout`.
    unbounded: HashSet<String>,
    /// Permits to parse large bodies.
    parsing: Resource,
    last_checks: health::LastChecks,
    /// The OpenAPI document, compressed.
    openapi: Bytes,
    unpacked: pages::Unpacked,
}

impl Deref for Settings {
    type Target = ApiSettings;

    fn deref(&self) -> &ApiSettings {
        &self.own
    }
}

impl ApiState {
    fn links(&self) -> &MediaLinks {
        &self.settings.links
    }
}

/// Returns the route table. The OpenAPI document is built from the same declarations.
#[expect(clippy::too_many_lines, reason = "one table")]
fn routes() -> Vec<Route> {
    use Code::{
        AlreadyFinished, Cancelled, ContentPolicy, ContextLengthExceeded, CreditsOnHold,
        ExpiredSignature, IdempotencyInProgress, IdempotencyKeyReused, InsufficientCredits,
        InvalidCredentials, InvalidSignature, InvalidToken, LoopbackOnly, MaxCostExceeded,
        MissingToken, ModelRetired, NotFinished, NotFound, Paused, ProviderError,
        ProviderOverloaded, ProviderRejected, ProviderTimeout, RangeNotSatisfiable,
        ReferenceReused, SpendLimitExceeded, StorageUnavailable, TooManyJobs, TooManyLogins,
        TooManyRequests,
    };
    /// Errors of a refused generation.
    const REFUSED: [Code; 10] = [
        InsufficientCredits,
        MaxCostExceeded,
        SpendLimitExceeded,
        NotFound,
        ModelRetired,
        IdempotencyInProgress,
        IdempotencyKeyReused,
        CreditsOnHold,
        TooManyJobs,
        Paused,
    ];
    /// Errors of counting a dialogue's input, which the provider counts if there are PDFs.
    const COUNTED: [Code; 9] = [
        NotFound,
        ModelRetired,
        InsufficientCredits,
        SpendLimitExceeded,
        ContextLengthExceeded,
        ContentPolicy,
        ProviderError,
        ProviderRejected,
        ProviderOverloaded,
    ];
    /// Errors of a generation that failed while its caller waited; with the generation.
    const FAILED: [Code; 7] = [
        Cancelled,
        ProviderError,
        ProviderRejected,
        ContentPolicy,
        ProviderOverloaded,
        StorageUnavailable,
        ProviderTimeout,
    ];
    let waited_for = |route: Route| {
        let route = route.unbounded().errors(&REFUSED).errors(&FAILED);
        route.errors(&[TooManyRequests])
    };
    vec![
        waited_for(route!(generate::text)).errors(&[ContextLengthExceeded]),
        waited_for(route!(generate::image)),
        route!(generate::video)
            .unbounded()
            .errors(&REFUSED)
            .errors(&[StorageUnavailable, TooManyRequests]),
        route!(generate::audio).unbounded().errors(&REFUSED),
        route!(media::file)
            .unbounded()
            .errors(&[InvalidSignature, ExpiredSignature, RangeNotSatisfiable])
            .errors(&[StorageUnavailable]),
        route!(generations::history),
        route!(generations::lookup).unbounded(),
        route!(generations::delete)
            .unbounded()
            .errors(&[NotFinished, Paused]),
        route!(generations::cancel)
            .unbounded()
            .errors(&[AlreadyFinished, Paused]),
        route!(credits::balance),
        route!(credits::ledger),
        route!(credits::usage),
        route!(credits::estimate).errors(&[ContextLengthExceeded, ModelRetired]),
        route!(uploads::create)
            .unbounded()
            .errors(&[Paused, StorageUnavailable, TooManyRequests]),
        route!(uploads::list),
        route!(uploads::get),
        route!(uploads::delete).errors(&[Paused]),
        route!(templates::create),
        route!(templates::preview),
        route!(templates::list),
        route!(templates::get),
        route!(templates::replace),
        route!(templates::delete),
        route!(account::get),
        route!(account::change).errors(&[ModelRetired]),
        route!(api_keys::create),
        route!(api_keys::list),
        route!(api_keys::get),
        route!(api_keys::revoke),
        route!(webhooks::create),
        route!(webhooks::list),
        route!(webhooks::get),
        route!(webhooks::delete),
        route!(webhooks::deliveries),
        route!(webhooks::redeliver).errors(&[Paused]),
        route!(auth::login)
            .errors(&[InvalidCredentials, TooManyLogins])
            .errors(&openapi::BUSY),
        route!(auth::logout),
        route!(auth::change_password).errors(&[TooManyLogins]),
        route!(auth::me),
        route!(admin::list),
        route!(admin::create).errors(&[Paused]),
        route!(admin::get),
        route!(admin::change),
        route!(admin::delete).errors(&[Paused]),
        route!(admin::replace_key),
        route!(admin::revoke_key),
        route!(admin::redeliver).errors(&[Paused]),
        route!(admin::move_credits).errors(&[ReferenceReused, Paused]),
        route!(admin::reports::providers),
        route!(admin::reports::jobs),
        route!(admin::reports::usage),
        route!(admin::reports::audit),
        route!(admin::suspend),
        route!(admin::resume),
        waited_for(route!(surfaces::openai::chat)).errors(&[ContextLengthExceeded]),
        waited_for(route!(surfaces::responses::respond)).errors(&[ContextLengthExceeded]),
        route!(surfaces::responses::input_tokens).errors(&COUNTED),
        waited_for(route!(surfaces::images::images)),
        waited_for(route!(surfaces::images::edits)),
        waited_for(route!(surfaces::speech::speech)),
        route!(surfaces::openai::list),
        route!(surfaces::openai::get).errors(&[ModelRetired]),
        waited_for(route!(surfaces::anthropic::create)).errors(&[ContextLengthExceeded]),
        route!(surfaces::anthropic::count_tokens).errors(&COUNTED),
        route!(surfaces::anthropic::list),
        route!(surfaces::anthropic::get).errors(&[ModelRetired]),
        route!(catalogue::models),
        route!(catalogue::stats),
        route!(catalogue::model),
        route!(catalogue::providers),
        route!(health::health),
        route!(health::live),
        route!(metrics::metrics).errors(&[MissingToken, InvalidToken, LoopbackOnly]),
    ]
}

/// Builds the OpenAPI document, as served by GET /openapi.json.
pub fn openapi() -> Result<serde_json::Value, serde_json::Error> {
    openapi::document(routes())
}

/// The routers of a server's listeners.
pub struct Routers {
    pub api: Router,
    /// The layers of the API's routes, for other pages.
    pub observer: Observer,
    /// The metrics without a token, for a listener that only this machine can reach.
    pub metrics: Router,
}

/// Builds all routers.
pub fn routers(service: Service, settings: ApiSettings) -> Result<Routers, serde_json::Error> {
    let table = routes();
    let unbounded = table.iter().filter(|route| !route.bounded);
    let unbounded = unbounded.flat_map(Route::paths).cloned().collect();
    let of_sdks = table.iter().filter(|route| route.sdk.is_some());
    let sdk_paths: Arc<[String]> = of_sdks.flat_map(Route::paths).cloned().collect();
    let unknown = move |sdk: Option<Extension<Sdk>>, uri: Uri| async move {
        not_found(&uri, sdk.is_some(), &sdk_paths)
    };
    let methods = Arc::new(methods(&table)?);
    let wrong_method = move |path: MatchedPath| async move {
        // Only routes of the table take other methods.
        let allowed = methods.get(path.as_str());
        ApiError::method_not_allowed(&allowed.map_or(GET.to_owned(), |all| all.join(", ")))
    };
    let router = table
        .into_iter()
        .fold(OpenApiRouter::new(), |router, route| {
            router.routes(route.routes)
        });
    let (router, _) = router.split_for_parts();
    let cors = cors(&settings.cors_origins);
    let metrics = settings.metrics.metrics.clone();
    let observer = Observer(metrics.clone());
    let state = ApiState {
        service,
        settings: Arc::new(Settings {
            requests: Limiter::shared(settings.max_requests, 0),
            refusals: Refusals::new("requests"),
            unbounded,
            parsing: Resource::new(
                "parsing of request bodies",
                body::PARSING.0,
                body::PARSING.1,
                settings.body_timeout,
            ),
            last_checks: health::LastChecks::default(),
            openapi: pages::gzip(&openapi()?.to_string()).map_err(serde_json::Error::io)?,
            unpacked: pages::Unpacked::default(),
            own: settings,
        }),
    };
    let shared = Arc::clone(&state.settings);
    let local_metrics = Router::new()
        .route("/metrics", get(metrics::local_metrics))
        .with_state(state.clone())
        .fallback(unknown.clone())
        .method_not_allowed_fallback(wrong_method.clone())
        .layer(from_fn_with_state(metrics.clone(), metrics::measure));
    let router = router
        .route("/", get(pages::front))
        .route("/openapi.json", get(pages::openapi))
        .route("/anthropic", get(surfaces::anthropic::hello))
        .route("/anthropic/", get(surfaces::anthropic::hello))
        .route("/anthropic/api/hello", get(surfaces::anthropic::hello))
        .route("/docs", get(pages::docs))
        .route("/docs/{file}", get(pages::asset))
        .with_state(state)
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        // In one call, the outermost first: each call boxes every route, and each box is cloned
        // for every request.
        .layer((
            from_fn_with_state(metrics, metrics::measure),
            option_layer(cors),
            from_fn_with_state(shared, admission::admit),
        ));
    Ok(Routers {
        api: router,
        observer,
        metrics: local_metrics,
    })
}

/// Counts, traces and logs requests.
#[derive(Clone)]
pub struct Observer(Metrics);

impl Observer {
    /// Adds the layers to the routes of a router, so that their requests are counted, traced and
    /// logged like the API's.
    pub fn around<S: Clone + Send + Sync + 'static>(self, router: Router<S>) -> Router<S> {
        router.route_layer(from_fn_with_state(self.0, metrics::measure))
    }
}

/// The methods of a GET route.
const GET: &str = "GET, HEAD";

/// The methods of each path.
fn methods(table: &[Route]) -> Result<BTreeMap<String, Vec<String>>, serde_json::Error> {
    let mut methods: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for route in table {
        let (path, method) = route.operation()?;
        let method = match method.as_str() {
            "get" => GET.to_owned(),
            _ => method.to_ascii_uppercase(),
        };
        methods.entry(path).or_default().push(method);
    }
    Ok(methods)
}

/// The answer for a path that no route has. Below the root of an SDK it names what that has.
fn not_found(uri: &Uri, is_of_sdk: bool, sdk_paths: &[String]) -> ApiError {
    let path: String = uri.path().chars().take(MAX_NAMED_PATH).collect();
    let root = path.split('/').nth(1).unwrap_or_default();
    ApiError::not_found(if is_of_sdk {
        let here = sdk_paths.iter().filter(|here| here[1..].starts_with(root));
        let here: Vec<&str> = here.map(String::as_str).collect();
        format!("this server has no {path}; it has {}", here.join(", "))
    } else {
        format!("this server has no {path}; its paths are described at /docs")
    })
}

/// Headers that scripts of other origins may send; most are the SDKs'.
const REQUEST_HEADERS: &str = include_str!("api/cors/request_headers.txt");
/// Headers that these scripts may read.
const EXPOSED_HEADERS: &str = include_str!("api/cors/exposed_headers.txt");

fn header_names(names: &'static str) -> Vec<HeaderName> {
    names
        .split_ascii_whitespace()
        .map(HeaderName::from_static)
        .collect()
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
            .allow_headers(header_names(REQUEST_HEADERS))
            .expose_headers(header_names(EXPOSED_HEADERS)),
    )
}
