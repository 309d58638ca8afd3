//! Limits of concurrent requests and of their duration.
//!
//! A request without a permit is refused immediately. The accept loop limits connections, and the
//! service limits callers.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    panic::AssertUnwindSafe,
    sync::Arc,
};

use axum::{
    extract::{ConnectInfo, MatchedPath, Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use futures_util::FutureExt as _;
use http::HeaderMap;

use super::{
    Settings,
    context::{CallerSlot, RequestPermit},
    error::ApiError,
};
use crate::domain::party::{Address, Network};

/// Monitoring routes, which must respond even if the server is full.
pub const MONITORING: [&str; 3] = ["/health", "/health/live", "/metrics"];

/// Admits a request if there is a permit, and limits its time.
pub(super) async fn admit(
    State(settings): State<Arc<Settings>>,
    mut request: Request,
    next: Next,
) -> Response {
    if MONITORING.contains(&request.uri().path()) {
        return run(request, next).await;
    }
    let path = request.extensions().get::<MatchedPath>();
    let is_bounded = !path.is_some_and(|path| settings.unbounded.contains(path.as_str()));
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    // Calls within the process have no peer; they share one address.
    let peer = peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.0.ip());
    let trusted = &settings.trusted_proxies;
    let address = Address::from(client_address(peer, request.headers(), trusted));
    let Some(permit) = settings.requests.try_acquire(address) else {
        settings.refusals.log(address.into());
        return ApiError::overloaded().into_response();
    };
    let permit: RequestPermit = Arc::new(permit);
    request.extensions_mut().insert(permit.clone());
    let answer = settings.memory.for_request(run(request, next));
    let response = if is_bounded {
        let answer = tokio::time::timeout(settings.request_timeout, answer).await;
        answer.unwrap_or_else(|_elapsed| {
            tracing::warn!("a request timed out");
            ApiError::overloaded().into_response()
        })
    } else {
        answer.await
    };
    // The connection limits the time to send the body.
    permit.release();
    response
}

/// Runs the handler, catches its panic, and confirms a cached key before the response is sent.
async fn run(request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<CallerSlot>().cloned();
    let answer = async {
        let response = next.run(request).await;
        match caller.unwrap_or_default().confirm().await {
            Ok(()) => response,
            Err(refusal) => ApiError::from(refusal).into_response(),
        }
    };
    let answer = AssertUnwindSafe(answer).catch_unwind().await;
    // The panic hook has logged it.
    answer.unwrap_or_else(|_panic| ApiError::internal().into_response())
}

/// Returns the address of the client behind `peer`. Each proxy appends the peer that it saw, to the
/// last line of `X-Forwarded-For` or as a line of its own. The header is therefore read from the
/// right, as long as the addresses are trusted proxies.
fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[Network]) -> IpAddr {
    let mut address = peer.to_canonical();
    let lines = headers.get_all("x-forwarded-for").into_iter();
    let lines: Vec<&str> = lines.map(|line| line.to_str().unwrap_or("")).collect();
    for hop in lines.iter().rev().flat_map(|line| line.rsplit(',')) {
        if !is_trusted(address, trusted) {
            break;
        }
        let Some(hop) = parse(hop) else { break };
        address = hop.to_canonical();
    }
    address
}

pub fn is_trusted(address: IpAddr, trusted: &[Network]) -> bool {
    trusted
        .iter()
        .any(|net| net.contains(address.to_canonical()))
}

/// Parses an address of the header, with or without a port.
fn parse(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let plain = text.trim_start_matches('[').trim_end_matches(']');
    let with_port = || text.parse::<SocketAddr>().ok().map(|a| a.ip());
    plain.parse().ok().or_else(with_port)
}
