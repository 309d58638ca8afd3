//! The accept loop: limits connections, times out slow peers, and ends connections at a stop.

mod guarded;
mod places;
mod unread;

use std::{
    convert::Infallible,
    io::{self, Write as _},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, extract::ConnectInfo};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt as _;

use crate::{
    api::{self, Authenticated},
    domain::{
        limiter::{Limiter, Permit},
        party::Network,
    },
};
use guarded::WriteTimeoutStream;
use places::{Place, Places};

/// Buffer of a connection in bytes, unless the maximum head is larger.
const BUFFER: usize = 64 << 10;
/// Maximum refused connections that are read to their end, so that the peer receives the response.
/// Others get the response and are closed immediately, and a peer that is still sending may miss
/// it.
const REFUSALS: usize = 256;
/// Maximum time of a refusal.
const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// Open files other than client connections: database, providers, stored files.
const OTHER_FILES: u64 = 1_000;
/// Pause after a failed accept, which means that the system has no files or memory left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Limits of connections.
#[derive(Debug, Clone)]
pub struct Limits {
    pub max_connections: usize,
    /// Peers that may take more than half of the connections.
    pub trusted_proxies: Vec<Network>,
    /// Maximum time from the connection to the end of its first request's head.
    pub header_timeout: Duration,
    /// Maximum time from a response to the end of the next request's head.
    pub keep_alive: Duration,
    /// Maximum time in which a peer reads nothing of a response.
    pub write_timeout: Duration,
    /// Maximum bytes of a request's head.
    pub max_header_bytes: usize,
}

/// Raises the process's limit of open files to the number that `connections` need. Logs a warning
/// if the system does not allow it.
pub fn allow_files(connections: usize) {
    let needed = u64::try_from(connections).map_or(u64::MAX, |n| n.saturating_add(OTHER_FILES));
    let (soft, hard) = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok(limits) => limits,
        Err(error) => return tracing::warn!(%error, "the limit of open files is not known"),
    };
    if soft >= needed {
        return;
    }
    let raised = needed.min(hard);
    let set = setrlimit(Resource::RLIMIT_NOFILE, raised, hard);
    if raised < needed || set.is_err() {
        tracing::warn!(
            soft,
            hard,
            needed,
            "fewer files may be open than server.max_connections needs: raise ulimit -n"
        );
    }
}

/// Serves until `close`. Then closes idle connections, and returns when all responses are sent.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    close: CancellationToken,
) {
    let places = Places::new(limits.max_connections, limits.trusted_proxies.clone());
    let shared = Arc::new((places, router, limits));
    let refusals = Limiter::of(REFUSALS);
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = close.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if !is_peers_fault(&error) {
                    tracing::error!(%error, "connections cannot be accepted");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
                continue;
            }
        };
        // Responses are small or live, so they must not wait for full packets.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY was refused");
        }
        match shared.0.take(peer.ip(), &close) {
            Some(place) => {
                let (shared, tasks) = (Arc::clone(&shared), connections.clone());
                connections.spawn(async move {
                    connection(stream, peer, &shared, &place, &tasks).await;
                    shared.0.leave(&place);
                });
            }
            None => match refusals.try_acquire(()) {
                Some(permit) => drop(connections.spawn(refuse(stream, permit))),
                None => refuse_at_once(stream),
            },
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    shared: &(Places, Router, Limits),
    place: &Arc<Place>,
    tasks: &TaskTracker,
) {
    let (places, router, limits) = shared;
    let asked = AtomicBool::new(false);
    let service = service_fn(|request: Request<Incoming>| {
        asked.store(true, Ordering::Release);
        let running = place.count_request();
        let (mut request, unread) = unread::track(request);
        request.extensions_mut().insert(ConnectInfo(peer));
        let answering = router.clone().oneshot(request);
        async move {
            let response = unread.settle(answering.await?, tasks);
            if response.extensions().get::<Authenticated>().is_some() {
                places.authenticated(place);
            }
            // An authenticated connection is not closed to make room; its requests need no count.
            if place.is_authenticated() {
                return Ok(response);
            }
            let follow = |body: Body| {
                Body::new(body.map_err(move |error| {
                    // Owned by the body, so that the request counts until its response is sent.
                    let _ = &running;
                    error
                }))
            };
            Ok::<_, Infallible>(response.map(follow))
        }
    });
    let io = TokioIo::new(WriteTimeoutStream::new(stream, limits.write_timeout));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.keep_alive)
        .max_header_size(limits.max_header_bytes)
        .max_buf_size(BUFFER.max(limits.max_header_bytes))
        .serve_connection(io, service);
    let mut connection = std::pin::pin!(connection);
    let mut first = std::pin::pin!(tokio::time::sleep(limits.header_timeout));
    let (mut waiting, mut closing) = (true, false);
    loop {
        tokio::select! {
            // A request that has arrived counts, even if this task runs late.
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, error = &error as &dyn std::error::Error, "a connection failed");
                }
                return;
            }
            () = first.as_mut(), if waiting => {
                if !asked.load(Ordering::Acquire) {
                    tracing::debug!(%peer, "a connection sent no request in time");
                    return;
                }
                waiting = false;
            }
            () = place.close.cancelled(), if !closing => {
                if !asked.load(Ordering::Acquire) {
                    return;
                }
                connection.as_mut().graceful_shutdown();
                closing = true;
            }
        }
    }
}

/// Sends 503 and closes the connection.
async fn refuse(stream: TcpStream, permit: Permit) {
    let answer = api::raw_error_response(StatusCode::SERVICE_UNAVAILABLE);
    let mut stream = WriteTimeoutStream::new(stream, REFUSAL_TIME);
    let refusing = async {
        stream.write_all(&answer).await?;
        // Also reads the data that the peer still sends.
        stream.shutdown().await
    };
    // A peer that does not read misses the response.
    let _ = tokio::time::timeout(REFUSAL_TIME, refusing).await;
    drop(permit);
}

/// Sends 503 if that does not block, and closes the connection.
fn refuse_at_once(stream: TcpStream) {
    if let Ok(mut stream) = stream.into_std() {
        // The stream is non-blocking.
        let _ = stream.write(&api::raw_error_response(StatusCode::SERVICE_UNAVAILABLE));
    }
}

/// Whether a failed accept affects only that connection.
fn is_peers_fault(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}
