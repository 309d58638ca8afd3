//! How many requests run at once, and how long one may take.
//!
//! Here: a permit for each request, refused at once when there is none. Not here: connections
//! (the accept loop's), and how much one caller may ask.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, SocketAddr},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use axum::{
    extract::{ConnectInfo, FromRequestParts, MatchedPath, Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use futures_util::FutureExt as _;
use http::request::Parts;

use super::{
    ApiState,
    client_address::{Network, client},
    error::ApiError,
    middleware::CallerSlot,
};
use crate::{
    domain::{
        limiter::{Limiter, Permit},
        party::Address,
    },
    memory::Memory,
    resource::Refusals,
};

/// Monitoring, which must be answered when the server is full.
pub const MONITORING: [&str; 3] = ["/health", "/health/live", "/metrics"];

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct Admission {
    requests: Limiter<Address>,
    trusted_proxies: Arc<[Network]>,
    refusals: Arc<Refusals>,
    timeout: Duration,
    unbounded: Arc<HashSet<String>>,
    memory: Memory,
}

impl Admission {
    /// `most` concurrent requests, half of them from one address, each within `timeout` except on
    /// the `unbounded` paths. The bytes that they keep are counted in `memory`.
    pub fn new(
        most: usize,
        timeout: Duration,
        unbounded: HashSet<String>,
        trusted_proxies: &[Network],
        memory: Memory,
    ) -> Self {
        Self {
            requests: Limiter::shared(most, 0),
            trusted_proxies: trusted_proxies.into(),
            refusals: Arc::new(Refusals::new("requests")),
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
pub struct RequestPermit(Arc<Permit<Address>>);

impl RequestPermit {
    /// The sender, which the request is counted for.
    pub fn address(&self) -> Address {
        self.0.key()
    }

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
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    // Calls within the process may have no peer; they share one address.
    let peer = peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.0.ip());
    let trusted = &admission.trusted_proxies;
    let address = Address::from(client(peer, request.headers(), trusted));
    let Some(permit) = admission.requests.try_acquire(address) else {
        admission.refusals.log(address.into());
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

/// Counts a request that was not counted when it is dropped.
struct CountIfDropped(Option<CallerSlot>);

impl Drop for CountIfDropped {
    fn drop(&mut self) {
        if let Some(caller) = &self.0 {
            caller.count_dropped();
        }
    }
}

/// The answer, also of a handler that panics.
async fn run(request: Request, next: Next) -> Response {
    let caller = CountIfDropped(request.extensions().get::<CallerSlot>().cloned());
    let answer = async {
        let response = next.run(request).await;
        match &caller.0 {
            Some(caller) => caller.settled(response).await,
            None => response,
        }
    };
    let answer = AssertUnwindSafe(answer).catch_unwind().await;
    // The panic hook has logged it.
    answer.unwrap_or_else(|_panic| ApiError::internal().into_response())
}
