//! Streams that continue only when released.

use std::sync::Arc;

use axum::{
    body::Body,
    response::{IntoResponse as _, Response},
};
use futures_util::stream;
use tokio::sync::{Semaphore, watch};

use super::{PATIENCE, Shared, Upstream};

/// An event that cuts the connection.
pub const CUT: &str = "cut";

/// What was sent, and how many streams have ended.
pub struct Steps {
    let_go: Semaphore,
    /// Events that wait to be sent.
    waiting: watch::Sender<usize>,
    ended: watch::Sender<usize>,
}

impl Default for Steps {
    fn default() -> Self {
        Self {
            let_go: Semaphore::new(0),
            waiting: watch::Sender::new(0),
            ended: watch::Sender::new(0),
        }
    }
}

impl Upstream {
    /// Releases `n` events.
    pub fn send_events(&self, n: usize) {
        let steps = &self.shared.steps;
        steps.waiting.send_modify(|waiting| *waiting += n);
        steps.let_go.add_permits(n);
    }

    /// Revokes releases that no stream has used.
    pub fn take_events_back(&self) {
        let steps = &self.shared.steps;
        let taken = steps.let_go.forget_permits(Semaphore::MAX_PERMITS);
        steps.waiting.send_modify(|waiting| *waiting -= taken);
    }

    /// Waits until all released events have been sent.
    pub async fn all_sent(&self) {
        let mut waiting = self.shared.steps.waiting.subscribe();
        let sent = waiting.wait_for(|&waiting| waiting == 0);
        let sent = tokio::time::timeout(PATIENCE, sent).await;
        assert!(sent.is_ok(), "events are not taken");
    }

    /// Waits until `n` streams have ended in total: completely, or because the client disconnected.
    pub async fn ended(&self, n: usize) {
        let mut ended = self.shared.steps.ended.subscribe();
        let waiting = ended.wait_for(|&count| count >= n);
        let waited = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(waited.is_ok(), "fewer than {n} streams end");
    }
}

/// A running stream.
struct OnItsWay(Arc<Shared>);

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.0.steps.ended.send_modify(|ended| *ended += 1);
    }
}

pub(super) fn answer(shared: &Arc<Shared>, events: Vec<String>) -> Response {
    let state = (events.into_iter(), OnItsWay(Arc::clone(shared)));
    let events = stream::unfold(state, |(mut events, on_its_way)| async move {
        let event = events.next()?;
        let steps = &on_its_way.0.steps;
        steps.let_go.acquire().await.unwrap().forget();
        steps.waiting.send_modify(|waiting| *waiting -= 1);
        let event = if event == CUT {
            // What is there is sent before the connection is cut.
            tokio::task::yield_now().await;
            Err(std::io::Error::other("cut"))
        } else {
            Ok(event)
        };
        Some((event, (events, on_its_way)))
    });
    let head = [
        ("content-type", "text/event-stream"),
        ("x-request-id", "req_up"),
    ];
    (head, Body::from_stream(events)).into_response()
}
