//! Health checks: whether the process is alive, and whether it can serve.

use std::time::{Duration, Instant};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use serde::Serialize;
use tokio::sync::Mutex;
use utoipa::ToSchema;

use super::{ApiState, context::OwnBody, extract::NoQuery};

/// Maximum age of a result.
const FRESH: Duration = Duration::from_millis(500);
/// The results of the last checks, with their time.
pub type LastChecks = Mutex<Option<(Instant, HealthChecks)>>;

/// Maximum time of each check.
const CHECK_TIME: Duration = Duration::from_secs(2);

/// The state of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Everything works.
    Ok,
    /// Able to serve, but without file storage or with a wrong clock.
    Degraded,
    /// Unable to serve, or draining.
    Unavailable,
}

/// A problem of the machine's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClockHealth {
    /// More than 30 seconds off the database's clock, which is used.
    Skewed,
}

/// The results by check.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub struct HealthChecks {
    /// Whether Postgres answers.
    pub database: Health,
    /// Whether files can be stored.
    pub storage: Health,
    /// The problem of the machine's clock, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockHealth>,
}

/// The state of the server and its parts.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct HealthBody {
    /// The overall state.
    pub status: Health,
    /// The version of the program.
    pub version: String,
    /// Each part.
    pub checks: HealthChecks,
}

/// Check whether the server can serve
#[utoipa::path(
    get, path = "/health", tag = "health",
    responses(
        (status = 200, description = "It can; `degraded` without its file storage, which text does not need, or while the clock of the machine is off by more than 30 seconds", body = HealthBody),
        (status = 503, description = "It cannot, or is shutting down", body = HealthBody),
    ),
)]
pub async fn health(State(state): State<ApiState>, _query: NoQuery) -> Response {
    let checks = checks(&state).await;
    let (code, status) = if checks.database != Health::Ok || state.service.is_leaving() {
        (StatusCode::SERVICE_UNAVAILABLE, Health::Unavailable)
    } else if checks.storage != Health::Ok || checks.clock.is_some() {
        (StatusCode::OK, Health::Degraded)
    } else {
        (StatusCode::OK, Health::Ok)
    };
    let body = HealthBody {
        status,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        checks,
    };
    let mut response = (code, Json(body)).into_response();
    response.extensions_mut().insert(OwnBody);
    response
}

/// Returns results at most [`FRESH`] old: the route is public, and its callers must not overload
/// the database and the disk.
async fn checks(state: &ApiState) -> HealthChecks {
    let mut last = state.settings.last_checks.lock().await;
    if let Some((at, checks)) = *last
        && at.elapsed() < FRESH
    {
        return checks;
    }
    let (database, storage) = tokio::join!(
        check(state.service.store().ping()),
        check(state.settings.storage.probe()),
    );
    let skewed = state.service.has_skewed_clock();
    let checks = HealthChecks {
        database,
        storage,
        clock: skewed.then_some(ClockHealth::Skewed),
    };
    *last = Some((Instant::now(), checks));
    checks
}

async fn check<E: std::error::Error + 'static>(
    part: impl Future<Output = Result<(), E>>,
) -> Health {
    match tokio::time::timeout(CHECK_TIME, part).await {
        Ok(Ok(())) => Health::Ok,
        Ok(Err(error)) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a health check failed"
            );
            Health::Unavailable
        }
        Err(_elapsed) => {
            tracing::warn!("a health check took too long");
            Health::Unavailable
        }
    }
}

/// Confirms that the process is alive.
#[derive(Debug, Serialize, ToSchema)]
pub struct LiveBody {
    /// Always `ok`.
    pub status: Health,
}

/// Check whether the process is alive
#[utoipa::path(
    get, path = "/health/live", tag = "health",
    responses((status = 200, description = "It does", body = LiveBody)),
)]
pub async fn live(_query: NoQuery) -> Json<LiveBody> {
    Json(LiveBody { status: Health::Ok })
}
