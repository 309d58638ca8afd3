//! POST /v1/generate/...: a response, an event stream, or 202 at once.

use std::{io, time::Duration};

use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::{
    ApiState,
    body::JsonBody,
    context::IDEMPOTENCY_KEY,
    error::ApiError,
    extract::{Authorized, GenerateAudio, GenerateImage, GenerateText, GenerateVideo, Permission},
    lifecycle::retirement,
    links::MediaLinks,
    prefer::Prefer,
    record::{self, GenerationRecord, SERVED_BY, mark_replay, served_by},
    stream::{self, Events},
};
use crate::{
    domain::{
        conversation::{Delta, Visibility},
        generation::{Generation, Status},
        validate::Body,
    },
    providers::{DeltaSink, Deltas},
    request::{GenerationRequest, ImageRequest, SpeechRequest, TextRequest, VideoRequest},
    service::{
        ServiceError,
        auth::Caller,
        generate::{IdempotentRequest, RequestInfo, Submitted},
    },
};

const TEXT: &str = "/v1/generate/text";
const IMAGE: &str = "/v1/generate/image";
const VIDEO: &str = "/v1/generate/video";
const AUDIO: &str = "/v1/generate/audio";
/// Retry-After of an unfinished generation, in seconds.
pub const POLL_SECONDS: u64 = 5;

/// Silence after which a stream gets a comment; the API promises 15 s.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Headers of a route that responds when the generation has ended.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it is a document, not a reader")]
struct SyncHeaders {
    /// 1 to 255 visible ASCII characters. For 24 hours, the same key with the same request returns
    /// the first generation.
    #[param(rename = "Idempotency-Key")]
    idempotency_key: Option<String>,
    /// `respond-async`: return 202 at once; poll for the end.
    #[param(rename = "Prefer")]
    prefer: Option<String>,
}

/// Headers of a route that responds at once.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it is a document, not a reader")]
struct AsyncHeaders {
    /// 1 to 255 visible ASCII characters. For 24 hours, the same key with the same request returns
    /// the first generation.
    #[param(rename = "Idempotency-Key")]
    idempotency_key: Option<String>,
    /// `wait=N`, 1 to 60 seconds: respond when the generation has ended, or after N seconds.
    #[param(rename = "Prefer")]
    prefer: Option<String>,
}

/// Generate text
///
/// Holds the maximum cost, generates, charges the actual token count and releases the rest. A
/// failure costs nothing.
///
/// An account that already runs its share of generations gets 429 `too_many_requests`, before its
/// credits are checked. With `Prefer: respond-async` the generation is a job, unless it is
/// streamed.
#[utoipa::path(
    post, path = TEXT, tag = "generate", params(SyncHeaders),
    responses(
        (status = 200, description = "The completed generation. With `stream` true: server-sent events `generation`, `delta`, then `completed` or `failed`.",
            content((GenerationRecord = "application/json"), (StreamEvent = "text/event-stream"))),
        (status = 202, description = "The generation, processing: with `Prefer: respond-async`, or a replay while the server stops", body = GenerationRecord),
    ),
)]
pub async fn text(
    auth: Authorized<GenerateText>,
    body: JsonBody<TextRequest>,
) -> Result<Response, ApiError> {
    let (submitted, deltas) = submit(&auth, TEXT, body).await?;
    let Some(deltas) = deltas else {
        return answer_sync(&auth, submitted).await;
    };
    let Authorized { state, caller, .. } = auth;
    let is_replay = submitted.is_replay();
    let (submitted, record) = state.service.record_of(&caller, submitted).await?;
    let retirement = retirement(&state.service, &record);
    let events = RecordEvents {
        begin: Some(GenerationRecord::of(record, state.links())),
        links: state.links().clone(),
    };
    let end = async move {
        let ended = state
            .service
            .wait_for_end(&caller, submitted, || true, || ());
        ended.await
    };
    let events = stream::events(events, None, deltas, end, KEEP_ALIVE);
    let mut response = stream::response(events);
    response.headers_mut().extend(retirement);
    Ok(mark_replay(response, is_replay))
}

/// Generate images
///
/// Holds the price, generates, stores the images and charges for the images that were made. A
/// failure costs nothing.
///
/// An account that already runs its share of generations gets 429 `too_many_requests`, before its
/// credits are checked. With `Prefer: respond-async` the generation is a job.
#[utoipa::path(
    post, path = IMAGE, tag = "generate", params(SyncHeaders),
    responses(
        (status = 200, description = "The completed generation", body = GenerationRecord),
        (status = 202, description = "The generation, processing: with `Prefer: respond-async`, or a replay while the server stops", body = GenerationRecord),
    ),
)]
pub async fn image(
    auth: Authorized<GenerateImage>,
    body: JsonBody<ImageRequest>,
) -> Result<Response, ApiError> {
    let (submitted, _) = submit(&auth, IMAGE, body).await?;
    answer_sync(&auth, submitted).await
}

/// Generate a video
///
/// Holds the price and responds at once; poll until it is completed or failed. A failure costs
/// nothing.
#[utoipa::path(
    post, path = VIDEO, tag = "generate", params(AsyncHeaders),
    responses(
        (status = 200, description = "The completed generation", body = GenerationRecord),
        (status = 202, description = "The generation, processing", body = GenerationRecord),
    ),
)]
pub async fn video(
    auth: Authorized<GenerateVideo>,
    body: JsonBody<VideoRequest>,
) -> Result<Response, ApiError> {
    let (submitted, _) = submit(&auth, VIDEO, body).await?;
    answer_queued(&auth, submitted).await
}

/// Generate speech
///
/// Holds the price and responds at once; poll until it is completed or failed. A failure costs
/// nothing.
#[utoipa::path(
    post, path = AUDIO, tag = "generate", params(AsyncHeaders),
    responses(
        (status = 200, description = "The completed generation", body = GenerationRecord),
        (status = 202, description = "The generation, processing", body = GenerationRecord),
    ),
)]
pub async fn audio(
    auth: Authorized<GenerateAudio>,
    body: JsonBody<SpeechRequest>,
) -> Result<Response, ApiError> {
    let (submitted, _) = submit(&auth, AUDIO, body).await?;
    answer_queued(&auth, submitted).await
}

/// The events of a stream: `generation`, `delta`..., then `completed` or `failed`.
struct RecordEvents {
    begin: Option<GenerationRecord>,
    links: MediaLinks,
}

impl Events for RecordEvents {
    type End = Result<Generation, ServiceError>;

    fn begin(&mut self) -> String {
        event("generation", &self.begin.take())
    }

    fn piece(&mut self, piece: &Delta) -> String {
        match piece {
            Delta::Text(text) => event("delta", &json!({ "text": text })),
            // The answer to a prompt is only text, and reasoning is not shown.
            _ => String::new(),
        }
    }

    fn keep_alive(&mut self) -> String {
        ":\n\n".to_owned()
    }

    fn end(&mut self, end: Self::End, pieces: &Deltas) -> io::Result<String> {
        let Ok(record) = end else {
            return Ok(String::new());
        };
        let text = record.result.as_deref().unwrap_or_default();
        // The record, its events and a copy may be in memory at once.
        if !pieces.reserve(3 * text.len()) {
            return Err(io::Error::other(
                "no memory is left for the end of a stream",
            ));
        }
        let rest = pieces.rest_of_text(text);
        let rest = rest.map(|text| event("delta", &json!({ "text": text })));
        let name = match record.status {
            Status::Failed => "failed",
            _ => "completed",
        };
        let last = event(name, &GenerationRecord::of(record, &self.links));
        Ok(rest.unwrap_or_default() + &last)
    }
}

fn event(name: &str, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n")
}

/// One event of the stream, for the OpenAPI document.
#[derive(ToSchema)]
#[schema(example = json!({"event": "delta", "data": "{\"text\":\"Exact\"}"}))]
#[expect(dead_code, reason = "it is a document, not a writer")]
pub struct StreamEvent {
    /// First `generation`, then `delta` as text arrives, last `completed` or `failed`.
    #[schema(pattern = "^(generation|delta|completed|failed)$")]
    event: String,
    /// JSON: `{"text": "..."}` for `delta`, otherwise the generation's record.
    data: String,
}

/// Reads a body, which may be large.
pub async fn read<T: Body + Send + 'static>(
    state: &ApiState,
    caller: &Caller,
    body: JsonBody<T>,
) -> Result<GenerationRequest, ApiError>
where
    GenerationRequest: From<T>,
{
    let (service, caller) = (state.service.clone(), caller.clone());
    let violations = move |request: &_| service.violations(&caller, request);
    body.off_thread(|body| body.read_as(violations)).await
}

/// Reads a body and submits its request. Also returns the pieces of a streamed text.
async fn submit<P: Permission, T: Body + Send + 'static>(
    auth: &Authorized<P>,
    route: &'static str,
    body: JsonBody<T>,
) -> Result<(Submitted, Option<Deltas>), ApiError>
where
    GenerationRequest: From<T>,
{
    let (key, body) = idempotency_key(&auth.headers, route, body).await?;
    let request = read(&auth.state, &auth.caller, body).await?;
    let respond_async = !request.is_streamed() && Prefer::read(&auth.headers).respond_async;
    let (sink, deltas) = request
        .is_streamed()
        .then(|| DeltaSink::channel(Visibility::TEXT))
        .unzip();
    let info = RequestInfo {
        request_id: &auth.request_id.0,
        idempotent: key.as_ref(),
        respond_async,
    };
    let waiting = || auth.permit.release();
    let service = &auth.service;
    let submitting = service.generate(&auth.caller, request, info, sink, waiting);
    Ok((submitting.await?, deltas))
}

/// Responds to a synchronous route at the end of the generation, unless `Prefer` says otherwise.
async fn answer_sync<P: Permission>(
    auth: &Authorized<P>,
    submitted: Submitted,
) -> Result<Response, ApiError> {
    let (state, caller) = (&auth.state, &auth.caller);
    let is_replay = submitted.is_replay();
    let response = if Prefer::read(&auth.headers).respond_async {
        let (_, record) = state.service.record_of(caller, submitted).await?;
        if record.status.is_finished() {
            finished(state, record)
        } else {
            let mut response = accepted(state, record);
            let applied = HeaderValue::from_static("respond-async");
            response.headers_mut().insert("preference-applied", applied);
            response
        }
    } else {
        let waiting = || auth.permit.release();
        let ended = state
            .service
            .wait_for_end(caller, submitted, || false, waiting);
        match ended.await {
            Err(ServiceError::StoppedWaiting(record)) if is_replay => accepted(state, *record),
            ended => finished(state, ended?),
        }
    };
    Ok(mark_replay(response, is_replay))
}

/// Responds to an asynchronous route at once, or after the wait that `Prefer` requests. The status
/// is 200 if the generation has ended by then, even if it failed.
async fn answer_queued<P: Permission>(
    auth: &Authorized<P>,
    submitted: Submitted,
) -> Result<Response, ApiError> {
    let (state, caller) = (&auth.state, &auth.caller);
    let (service, is_replay) = (&state.service, submitted.is_replay());
    let (_, mut record) = service.record_of(caller, submitted).await?;
    let mut applied = None;
    if let Some(wait) = Prefer::read(&auth.headers).wait {
        let found = service.generation_within(caller, record.id, wait, || auth.permit.release());
        match found.await {
            Ok((found, waited)) => {
                applied = Prefer::applied_wait(wait).filter(|_| waited);
                record = found;
            }
            Err(ServiceError::NotFound) if !is_replay => {
                let remains = service.remains(caller, record.id).await?;
                return Err(ApiError::failed_generation(remains, state.links()));
            }
            Err(ServiceError::NotFound) => return Err(ServiceError::NotFound.into()),
            // The caller must learn that it was created, so that it does not create it again.
            Err(error) => tracing::warn!(%error, "a wait was cut short"),
        }
    }
    if record.status == Status::Pending {
        // Only a lookup shows that a job waits for a worker.
        record.status = Status::Processing;
    }
    let mut response = if record.status.is_finished() {
        completed(state, record)
    } else {
        accepted(state, record)
    };
    if let Some(applied) = applied {
        response.headers_mut().insert("preference-applied", applied);
    }
    Ok(mark_replay(response, is_replay))
}

/// Returns the response for an ended synchronous generation.
fn finished(state: &ApiState, record: Generation) -> Response {
    if record.status != Status::Failed {
        return completed(state, record);
    }
    let served_by = served_by(&record).map(|value| (SERVED_BY, value));
    let mut response = ApiError::failed_generation(record, state.links()).into_response();
    response.headers_mut().extend(served_by);
    response
}

/// Returns the record of a completed generation.
fn completed(state: &ApiState, record: Generation) -> Response {
    let retirement = retirement(&state.service, &record);
    let mut response = record::answer(record, state.links());
    response.headers_mut().extend(retirement);
    response
}

/// Returns 202 with the URL to poll.
fn accepted(state: &ApiState, record: Generation) -> Response {
    let id = record.id;
    let mut response = completed(state, record);
    *response.status_mut() = StatusCode::ACCEPTED;
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/generate/{id}")) {
        headers.insert(header::LOCATION, location);
    }
    headers.insert(header::RETRY_AFTER, POLL_SECONDS.into());
    response
}

/// Reads and checks the idempotency key. Returns it with the body, which may be large.
pub async fn idempotency_key<T: Body + Send + 'static>(
    headers: &HeaderMap,
    route: &'static str,
    body: JsonBody<T>,
) -> Result<(Option<IdempotentRequest>, JsonBody<T>), ApiError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Ok((None, body));
    };
    let key = value.to_str().unwrap_or_default().to_owned();
    let sound = (1..=255).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic());
    if !sound || values.next().is_some() {
        return Err(ApiError::invalid_header(
            "Idempotency-Key must be given once, as 1 to 255 visible ASCII characters",
        ));
    }
    let keyed = body.off_thread(move |body| {
        let key = IdempotentRequest::new(key, route, &body.members);
        Ok((Some(key), body))
    });
    keyed.await
}
