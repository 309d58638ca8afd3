//! How many requests run at once, and how long one may take.
//!
//! Here: a permit for each request, refused at once when there is none. Not here: connections
//! (the accept loop's), and how much one caller may ask.

use std::{collections::HashSet, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    extract::{FromRequestParts, MatchedPath, Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use futures_util::FutureExt as _;
use http::request::Parts;

use super::{ApiState, error::ApiError, middleware::CallerSlot};
use crate::{
    domain::limiter::{Limiter, Permit},
    memory::Memory,
};

/// Monitoring, which must be answered when the server is full.
pub const MONITORING: [&str; 3] = ["/health", "/health/live", "/metrics"];

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct Admission {
    requests: Limiter,
    timeout: Duration,
    unbounded: Arc<HashSet<String>>,
    memory: Memory,
}

impl Admission {
    /// `most` requests at once, each within `timeout` but on the `unbounded` paths. What they keep
    /// is counted in `memory`.
    pub fn new(most: usize, timeout: Duration, unbounded: HashSet<String>, memory: Memory) -> Self {
        Self {
            requests: Limiter::of(most),
            timeout,
            unbounded: Arc::new(unbounded),
            memory,
        }
    }
}

/// A running request. Released while its body arrives and while it waits for a
/// generation to end: slow senders and waits need nothing of what is bounded, and must not keep
/// others out.
#[derive(Debug, Clone)]
pub struct RequestPermit(Arc<Permit>);

impl RequestPermit {
    pub fn release(&self) {
        self.0.release();
    }

    /// Takes it again, at once or not at all.
    pub fn reacquire(&self) -> Result<(), ApiError> {
        let admitted = self.0.reacquire();
        admitted.then_some(()).ok_or_else(ApiError::overloaded)
    }
}

impl FromRequestParts<ApiState> for RequestPermit {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &ApiState) -> Result<Self, ApiError> {
        let permit = parts.extensions.get::<Self>();
        permit.cloned().ok_or_else(ApiError::internal)
    }
}

/// Lets a request in while there is room, and bounds its time.
pub async fn admit(
    State(admission): State<Admission>,
    mut request: Request,
    next: Next,
) -> Response {
    if MONITORING.contains(&request.uri().path()) {
        return run(request, next).await;
    }
    let path = request.extensions().get::<MatchedPath>();
    let bounded = !path.is_some_and(|path| admission.unbounded.contains(path.as_str()));
    let Some(permit) = admission.requests.try_acquire(()) else {
        return ApiError::overloaded().into_response();
    };
    let permit = RequestPermit(Arc::new(permit));
    request.extensions_mut().insert(permit.clone());
    let answer = admission.memory.for_request(run(request, next));
    let response = if bounded {
        let answer = tokio::time::timeout(admission.timeout, answer).await;
        answer.unwrap_or_else(|_elapsed| {
            tracing::warn!("a request timed out");
            ApiError::overloaded().into_response()
        })
    } else {
        answer.await
    };
    // Sending the body is bounded by the connection.
    permit.release();
    response
}

/// The answer, also of a handler that panics.
async fn run(request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<CallerSlot>().cloned();
    let answer = async {
        let response = next.run(request).await;
        match caller {
            Some(caller) => caller.settled(response).await,
            None => response,
        }
    };
    let answer = AssertUnwindSafe(answer).catch_unwind().await;
    // The panic hook has logged it.
    answer.unwrap_or_else(|_panic| ApiError::internal().into_response())
}
