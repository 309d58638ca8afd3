//! Routes: requests with several candidates, of which one is used.
//!
//! A route is a list of models under one name, requested as `route/NAME`. A request may also list
//! its own fallbacks. A generation falls back to its next candidate only if the provider is known
//! not to have started.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{clock::rfc3339, named::named_enum};

/// The provider of a route in lists of models.
pub const PROVIDER: &str = "route";
/// Maximum fallbacks of one request.
pub const MAX_FALLBACKS: usize = 3;
/// Maximum models of one route.
pub const MAX_MODELS: usize = 8;

named_enum!(
    /// The order in which the candidates of a route are tried.
    Order {
        /// As listed.
        Given = "given",
        /// By the maximum cost of the request, the lowest first.
        Cheapest = "cheapest",
        /// By the measured time to the first token, the shortest first.
        Fastest = "fastest",
    }
);

named_enum!(
    /// When a text falls back.
    FallbackOn {
        /// The provider is known not to have started.
        NotStarted = "not_started",
        /// It may have started and its answer is lost. The operator pays what it bills.
        Unknown = "unknown",
    }
);

named_enum!(
    /// Why a generation fell back to its next candidate.
    MoveReason {
        /// The connection was not established.
        Unreachable = "unreachable",
        /// The provider has no capacity (429, 503, 529).
        Overloaded = "overloaded",
        /// The provider refuses the server's account.
        AccountRefused = "account_refused",
        /// The provider does not have the model.
        ModelNotFound = "model_not_found",
        /// The provider is at its concurrency limit on this server.
        Busy = "provider_busy",
        /// It failed several times within seconds, and is skipped for a while.
        CircuitOpen = "circuit_open",
        /// The provider may have started; the request has `fallback_on`.
        Unknown = "unknown",
    }
);

/// Returns the route's name in a model's name.
pub fn route_name(model: &str) -> Option<&str> {
    model.strip_prefix(PROVIDER)?.strip_prefix('/')
}

/// A candidate that was ruled out before the hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Dropped {
    /// Its provider.
    pub provider: String,
    /// Its model.
    pub model: String,
    /// Why: the code of the error that a request for it alone would get.
    pub code: String,
    /// The error's message, for people.
    pub message: String,
}

/// A candidate that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// Counts from 1.
    pub number: i32,
    /// Its provider.
    pub provider: String,
    /// Its model.
    pub model: String,
    /// When the attempt started.
    #[serde(serialize_with = "rfc3339")]
    pub started_at: DateTime<Utc>,
    /// When it ended; null while it is unfinished.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub ended_at: Option<DateTime<Utc>>,
    /// Whether the provider was called. False if its concurrency limit or its circuit prevented it;
    /// null while unknown.
    #[schema(required, nullable)]
    pub called: Option<bool>,
    /// Why the generation fell back; for the last attempt, the status of the generation or the code
    /// of its error.
    pub outcome: String,
    /// The HTTP status of the response because of which the generation fell back.
    #[schema(required, nullable)]
    pub status: Option<i32>,
    /// The provider's request id, for its support.
    #[schema(required, nullable)]
    pub provider_request_id: Option<String>,
}

/// The route of a generation with several candidates; `dropped` is deleted with the generation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Routed {
    /// The route; `None` for fallbacks of the request.
    pub name: Option<String>,
    /// The candidates that were ruled out before the hold.
    pub dropped: Vec<Dropped>,
    /// The attempts before the last one.
    pub left: Vec<Attempt>,
}
