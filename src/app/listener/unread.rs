//! Request bodies that the router does not read to their end.
//!
//! The HTTP library closes the connection once such a body is dropped, without announcing it in the
//! response, so the client's next request on the connection would fail. A body with a small
//! announced length is therefore read after the response; otherwise the response says `Connection:
//! close`.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use tokio_util::task::TaskTracker;

use crate::domain::lock::lock;

/// Maximum rest of a body that is read after the response, in bytes.
const MAX_DRAINED: u64 = 256 << 10;
/// Maximum time of that.
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// The rest of a request's body after the router has dropped it.
pub(super) struct Unread {
    rest: Arc<Mutex<Option<Incoming>>>,
    /// The client may wait for a 100 before it sends the body, and need not send it after a
    /// refusal.
    expects_continue: bool,
}

/// Wraps a request for the router so that the rest of its body is kept.
pub(super) fn track(request: Request<Incoming>) -> (Request<Body>, Unread) {
    let rest = Arc::default();
    let unread = Unread {
        rest: Arc::clone(&rest),
        expects_continue: request.headers().contains_key(header::EXPECT),
    };
    let tracked = request.map(|body| {
        Body::new(Tracked {
            body: Some(body),
            rest,
        })
    });
    (tracked, unread)
}

impl Unread {
    /// Reads the rest of the body in `tasks`, or announces that the connection will be closed.
    pub(super) fn settle(self, mut response: Response, tasks: &TaskTracker) -> Response {
        let Some(mut body) = lock(&self.rest).take() else {
            return response;
        };
        let is_small = body.size_hint().exact().is_some_and(|n| n <= MAX_DRAINED);
        // Do not wait again for a body that was too slow.
        let is_slow = response.status() == StatusCode::REQUEST_TIMEOUT;
        if !is_small || is_slow || self.expects_continue {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
            return response;
        }
        let drain = async move { while let Some(Ok(_)) = body.frame().await {} };
        tasks.spawn(tokio::time::timeout(DRAIN_TIME, drain));
        response
    }
}

/// A body that is kept when it is dropped before its end.
struct Tracked {
    /// `None` once it has ended or failed.
    body: Option<Incoming>,
    rest: Arc<Mutex<Option<Incoming>>>,
}

impl hyper::body::Body for Tracked {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let ended = || SizeHint::with_exact(0);
        self.body.as_ref().map_or_else(ended, Incoming::size_hint)
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            *lock(&self.rest) = Some(body);
        }
    }
}
