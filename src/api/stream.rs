//! Text as server-sent events: `generation`, `delta`..., then `completed` or `failed`.

use std::{io, sync::Arc, time::Duration};

use axum::response::{
    IntoResponse, Response,
    sse::{Event, KeepAlive, Sse},
};
use futures_util::{Stream, StreamExt as _, future, stream};
use http::HeaderValue;
use serde_json::json;
use utoipa::ToSchema;

use super::{ApiState, media::MediaLinks, record::GenerationRecord};
use crate::{
    domain::{
        conversation::Delta,
        generation::{Generation, Status},
        ids::GenerationId,
    },
    jobs::Handle,
    providers::Deltas,
    service::{ServiceError, auth::Caller},
};

/// Silence after which a comment is sent; the contract allows 15 s.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Between two looks while the database is away.
const AGAIN: Duration = Duration::from_secs(1);
/// One look at a generation whose task is not here.
const LOOK: Duration = Duration::from_secs(30);

/// One event of the stream, as the document shows it.
#[derive(ToSchema)]
#[schema(example = json!({"event": "delta", "data": "{\"text\":\"Exact\"}"}))]
#[expect(dead_code, reason = "it is a document, not a writer")]
pub struct StreamEvent {
    /// First `generation`, then `delta` as text arrives, last `completed` or `failed`.
    #[schema(pattern = "^(generation|delta|completed|failed)$")]
    event: String,
    /// JSON: `{"text": "..."}` of a `delta`, else the generation's record.
    data: String,
}

/// The stream of a generation that has just begun.
pub fn live(
    state: ApiState,
    caller: Caller,
    record: Generation,
    handle: Handle,
    deltas: Deltas,
) -> Response {
    let id = record.id;
    let first = event("generation", &GenerationRecord::of(record, state.links()));
    let running = Progress::Running(deltas, state, caller, handle);
    let events = stream::unfold(running, move |progress| next(progress, id));
    let events = events.flat_map(stream::iter);
    respond(stream::once(async { Ok(first) }).chain(events))
}

#[expect(
    clippy::large_enum_variant,
    reason = "one per stream, which is running until its last event"
)]
enum Progress {
    Running(Deltas, ApiState, Caller, Handle),
    /// The last events are reserved until the client has read them.
    Ended {
        _reserved: Deltas,
    },
}

/// The next events of a running stream.
async fn next(progress: Progress, id: GenerationId) -> Option<(Vec<io::Result<Event>>, Progress)> {
    let Progress::Running(mut deltas, state, caller, handle) = progress else {
        return None;
    };
    let delta = |text: &str| event("delta", &json!({ "text": text }));
    while let Some(piece) = deltas.recv().await {
        // A prompt of a text has no answer but text, and what is thought is not shown.
        if let Delta::Text(text) = piece {
            let events = vec![Ok(delta(&text))];
            return Some((events, Progress::Running(deltas, state, caller, handle)));
        }
    }
    let record = last(&state, &caller, id, handle).await.ok()?;
    let text = record.result.as_deref().unwrap_or_default();
    // The record, its events and a copy may be in memory at once.
    let events = if deltas.reserve(3 * text.len()) {
        let rest = deltas.rest_of_text(text).map(delta);
        let last = last_event(record, state.links());
        rest.into_iter().chain([last]).map(Ok).collect()
    } else {
        vec![Err(io::Error::other(
            "no memory is left for the end of a stream",
        ))]
    };
    Some((events, Progress::Ended { _reserved: deltas }))
}

/// The stream of a generation that was made before: its record, then its end.
pub fn replayed(state: ApiState, caller: Caller, record: Generation) -> Response {
    let links = state.links().clone();
    let id = record.id;
    let first = event("generation", &GenerationRecord::of(record, &links));
    let last = stream::once(async move {
        let ended = ended(&state, &caller, id).await;
        ended.ok().map(|record| Ok(last_event(record, &links)))
    });
    let last = last.filter_map(future::ready);
    respond(stream::once(async { Ok(first) }).chain(last))
}

/// Waits for the end of a generation that runs in this process, see [`ended`].
pub async fn last(
    state: &ApiState,
    caller: &Caller,
    id: GenerationId,
    handle: Handle,
) -> Result<Generation, ServiceError> {
    match handle.finished().await {
        Some(settled) => Ok(Arc::unwrap_or_clone(settled)),
        None => ended(state, caller, id).await,
    }
}

/// Waits for the end, also while the database is away. Fails if the generation was completed and
/// deleted meanwhile, or if the server stops and another one runs it.
async fn ended(
    state: &ApiState,
    caller: &Caller,
    id: GenerationId,
) -> Result<Generation, ServiceError> {
    loop {
        // Before the look, so that an end between the two is not missed.
        let handle = state.service.running(id);
        let found = state.service.generation_within(caller, id, LOOK, || ());
        match found.await {
            Ok(found) if found.generation.status.is_finished() => return Ok(found.generation),
            Err(ServiceError::NotFound) => {
                let remains = state.service.generation_or_remains(caller, id).await?;
                return match remains.status {
                    Status::Failed => Ok(remains),
                    _ => Err(ServiceError::NotFound),
                };
            }
            // What runs here ends within the grace period.
            found if state.service.is_draining() => {
                let ended = match handle {
                    Some(handle) => handle.finished().await,
                    None => None,
                };
                return match (ended, found) {
                    (Some(ended), _) => Ok(Arc::unwrap_or_clone(ended)),
                    (None, Ok(found)) => {
                        Err(ServiceError::StoppedWaiting(Box::new(found.generation)))
                    }
                    (None, Err(error)) => Err(error),
                };
            }
            Ok(found) if found.waited => {}
            // Too many wait already, or the database is away.
            Ok(_) | Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

fn last_event(record: Generation, links: &MediaLinks) -> Event {
    let name = match record.status {
        Status::Completed => "completed",
        Status::Failed => "failed",
        // Only ended records come here.
        Status::Pending | Status::Processing => "generation",
    };
    event(name, &GenerationRecord::of(record, links))
}

fn event(name: &str, data: &impl serde::Serialize) -> Event {
    let data = serde_json::to_string(data).unwrap_or_default();
    Event::default().event(name).data(data)
}

fn respond(events: impl Stream<Item = io::Result<Event>> + Send + 'static) -> Response {
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    // Proxies that buffer would turn the stream into one late answer.
    let value = HeaderValue::from_static("no");
    response.headers_mut().insert("x-accel-buffering", value);
    response
}
