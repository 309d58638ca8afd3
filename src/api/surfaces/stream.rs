//! A streamed answer. Its 200 goes out with the first text, or the first sign of life: an SDK
//! that has the headers of a stream does not try again.

use std::{convert::Infallible, pin::Pin, time::Duration};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderName, header};
use tokio::time::{Instant, Sleep, sleep};

use super::{RequestId, Sdk};
use crate::{
    api::error::ApiError,
    domain::{
        conversation::Delta,
        dialect::{Answer, Writer},
    },
    providers::Deltas,
};

/// Silence after which a sign of life is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// An answer, or the body of the error that it ended in.
type Ended = Result<Answer, String>;

/// The stream of a generation that runs; an error where it fails before the first piece. Whatever
/// `end` sends comes before its answer.
pub async fn live(
    sdk: Sdk,
    request: RequestId,
    end: impl Future<Output = Result<Answer, ApiError>> + Send + 'static,
    pieces: Deltas,
    writer: impl Writer,
) -> Result<Response, ApiError> {
    let events = begun(sdk, request, end, pieces, writer, KEEP_ALIVE).await?;
    Ok(response(Body::from_stream(events.map(Ok::<_, Infallible>))))
}

async fn begun<W: Writer>(
    sdk: Sdk,
    request: RequestId,
    end: impl Future<Output = Result<Answer, ApiError>> + Send + 'static,
    mut pieces: Deltas,
    writer: W,
    keep_alive: Duration,
) -> Result<impl Stream<Item = String> + Send + 'static, ApiError> {
    let mut end: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(end);
    let overloaded = ApiError::overloaded().for_sdk(sdk, &request.0).1;
    let (mut first, mut ended) = (None, None);
    tokio::select! {
        biased;
        Some(piece) = pieces.recv() => first = Some(piece),
        result = &mut end => ended = Some(result?),
        () = sleep(keep_alive) => {}
    }
    let end = async move {
        let result = match ended {
            Some(answer) => Ok(answer),
            None => end.await,
        };
        result.map_err(|error: ApiError| error.for_sdk(sdk, &request.0).1)
    };
    let end: Pin<Box<dyn Future<Output = Ended> + Send>> = Box::pin(end);
    Ok(events(writer, first, pieces, end, (keep_alive, overloaded)))
}

pub fn response(body: impl Into<Body>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        // Proxies that buffer would turn the stream into one late answer.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, body.into()).into_response()
}

enum State<W> {
    Running(
        W,
        Deltas,
        Pin<Box<dyn Future<Output = Ended> + Send>>,
        Pin<Box<Sleep>>,
        String,
    ),
    /// The last events are reserved until the client has read them.
    Ended { _reserved: Deltas },
}

/// The events of an answer: its pieces from `first` on, then its end.
fn events<W: Writer>(
    mut writer: W,
    first: Option<Delta>,
    pieces: Deltas,
    end: Pin<Box<dyn Future<Output = Ended> + Send>>,
    (keep_alive, overloaded): (Duration, String),
) -> impl Stream<Item = String> + Send {
    let begin = writer.begin() + &first.map_or_else(String::new, |piece| writer.piece(&piece));
    let silence = Box::pin(sleep(keep_alive));
    let rest = stream::unfold(
        State::Running(writer, pieces, end, silence, overloaded),
        move |state| async move {
            let State::Running(mut writer, mut pieces, mut end, mut silence, overloaded) = state
            else {
                return None;
            };
            let (events, is_due) = tokio::select! {
                biased;
                Some(piece) = pieces.recv() => (writer.piece(&piece), false),
                ended = &mut end => {
                    let mut events = String::new();
                    // What came between the two looks.
                    while let Some(piece) = pieces.try_recv() {
                        events += &writer.piece(&piece);
                    }
                    let last = match ended {
                        // The answer, its events and a summary may be in memory at once.
                        Ok(answer) if !pieces.reserve(3 * answer.bytes()) => {
                            writer.failed(&overloaded)
                        }
                        Ok(answer) => {
                            for piece in pieces.rest(&answer.parts) {
                                events += &writer.piece(&piece);
                            }
                            writer.end(&answer)
                        }
                        Err(error) => writer.failed(&error),
                    };
                    events += &last;
                    return Some((events, State::Ended { _reserved: pieces }));
                }
                () = &mut silence => (writer.keep_alive(), true),
            };
            // A piece that tells nothing yet is no sign of life.
            if is_due || !events.is_empty() {
                silence.as_mut().reset(Instant::now() + keep_alive);
            }
            let running = State::Running(writer, pieces, end, silence, overloaded);
            Some((events, running))
        },
    );
    stream::once(async { begin }).chain(rest)
}

#[cfg(test)]
mod tests;
