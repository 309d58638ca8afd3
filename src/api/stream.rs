//! Responses as server-sent events, in any format.

use std::{io, pin::Pin, time::Duration};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderName, header};
use tokio::time::{Instant, Sleep, sleep};

use crate::{domain::conversation::Delta, providers::Deltas};

pub trait Events: Send + 'static {
    type End: Send + 'static;

    fn begin(&mut self) -> String;
    /// Returns the event of a piece, or an empty text if the format does not show it.
    fn piece(&mut self, piece: &Delta) -> String;
    fn keep_alive(&mut self) -> String;
    /// Returns the last events, with unread pieces. They are sent before `pieces` is dropped, which
    /// releases their memory. An error breaks the connection.
    fn end(&mut self, end: Self::End, pieces: &Deltas) -> io::Result<String>;
}

struct Running<E, F> {
    events: E,
    pieces: Deltas,
    end: Pin<Box<F>>,
    silence: Pin<Box<Sleep>>,
    keep_alive: Duration,
}

enum Progress<E, F> {
    Running(Running<E, F>),
    /// The last events are reserved until the client has read them.
    Ended {
        _reserved: Deltas,
    },
}

/// Streams an answer: its pieces from `first` on, then its end. `keep_alive`: silence after which a
/// keep-alive is sent.
pub fn events<E: Events, F: Future<Output = E::End> + Send + 'static>(
    mut events: E,
    first: Option<Delta>,
    pieces: Deltas,
    end: F,
    keep_alive: Duration,
) -> impl Stream<Item = io::Result<String>> + Send + 'static {
    let begin = events.begin() + &first.map_or_else(String::new, |piece| events.piece(&piece));
    let running = Progress::Running(Running {
        events,
        pieces,
        end: Box::pin(end),
        silence: Box::pin(sleep(keep_alive)),
        keep_alive,
    });
    stream::once(async { Ok(begin) }).chain(stream::unfold(running, next))
}

async fn next<E: Events, F: Future<Output = E::End>>(
    progress: Progress<E, F>,
) -> Option<(io::Result<String>, Progress<E, F>)> {
    let Progress::Running(mut running) = progress else {
        return None;
    };
    let (written, is_due) = tokio::select! {
        biased;
        Some(piece) = running.pieces.recv() => (running.events.piece(&piece), false),
        end = &mut running.end => {
            let mut written = String::new();
            // Pieces may have arrived between the two branches.
            while let Some(piece) = running.pieces.try_recv() {
                written += &running.events.piece(&piece);
            }
            let last = running.events.end(end, &running.pieces).map(|last| written + &last);
            return Some((last, Progress::Ended { _reserved: running.pieces }));
        }
        () = &mut running.silence => (running.events.keep_alive(), true),
    };
    // A hidden piece does not end the silence.
    if is_due || !written.is_empty() {
        let silence = running.silence.as_mut();
        silence.reset(Instant::now() + running.keep_alive);
    }
    Some((Ok(written), Progress::Running(running)))
}

pub fn response(events: impl Stream<Item = io::Result<String>> + Send + 'static) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        // Buffering proxies would delay the stream until its end.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, Body::from_stream(events)).into_response()
}
