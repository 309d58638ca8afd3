//! POST /v1/generate/...: one answer, an event stream, or 202 at once.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Map, Value};

use super::{
    ApiState,
    admission::RequestPermit,
    body::JsonBody,
    error::ApiError,
    extract::{Authorized, GenerateAudio, GenerateImage, GenerateText, GenerateVideo},
    prefer::Prefer,
    record::GenerationRecord,
    stream::{self, StreamEvent},
};
use crate::{
    domain::{
        conversation::Visibility,
        generation::{Generation, Status},
        ids::GenerationId,
        request::{GenerationRequest, ImageRequest, SpeechRequest, TextRequest, VideoRequest},
        validate::Body,
    },
    jobs::Handle,
    providers::{DeltaSink, Deltas},
    service::{
        ServiceError,
        auth::Caller,
        generate::{IdempotentRequest, Submitted},
    },
};

const TEXT: &str = "/v1/generate/text";
const IMAGE: &str = "/v1/generate/image";
const VIDEO: &str = "/v1/generate/video";
const AUDIO: &str = "/v1/generate/audio";
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Seconds after which an unfinished generation is worth another look.
pub const POLL_SECONDS: u64 = 5;

/// Headers of a route that answers when it is finished.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it is a document, not a reader")]
struct SyncHeaders {
    /// 1 to 255 visible ASCII characters. The same key with the same request returns the generation first made, for 24 hours.
    #[param(rename = "Idempotency-Key")]
    idempotency_key: Option<String>,
    /// `respond-async`: answer 202 at once, to be polled.
    #[param(rename = "Prefer")]
    prefer: Option<String>,
}

/// Headers of a route that answers at once.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it is a document, not a reader")]
struct AsyncHeaders {
    /// 1 to 255 visible ASCII characters. The same key with the same request returns the generation first made, for 24 hours.
    #[param(rename = "Idempotency-Key")]
    idempotency_key: Option<String>,
    /// `wait=N`, 1 to 60 seconds: answer when it is finished, at latest then.
    #[param(rename = "Prefer")]
    prefer: Option<String>,
}

/// Generate text
///
/// Holds the ceiling of the cost, generates, charges the real token count and releases the
/// rest. A failure costs nothing.
///
/// An account that has as many generations running as its share allows gets 429
/// `too_many_requests`, before its credits are checked. With `Prefer: respond-async` the generation
/// is a job, unless it is streamed.
#[utoipa::path(
    post, path = TEXT, tag = "generate", params(SyncHeaders),
    responses(
        (status = 200, description = "The completed generation. With `stream` true: server-sent events `generation`, `delta`, then `completed` or `failed`.",
            content((GenerationRecord = "application/json"), (StreamEvent = "text/event-stream"))),
        (status = 202, description = "The generation, processing: with `Prefer: respond-async`, or of a replay that a stop of the server keeps from waiting", body = GenerationRecord),
    ),
)]
pub async fn text(
    State(state): State<ApiState>,
    auth: Authorized<GenerateText>,
    headers: HeaderMap,
    permit: RequestPermit,
    body: JsonBody<TextRequest>,
) -> Result<Response, ApiError> {
    let caller = auth.caller;
    let (submitted, deltas) = submit(&state, &caller, &headers, TEXT, body).await?;
    let Some(deltas) = deltas else {
        return answer_sync(&state, &caller, &headers, &permit, submitted).await;
    };
    Ok(match submitted {
        Submitted::New(record, handle) => stream::live(state, caller, *record, handle, deltas),
        Submitted::Queued(record, _) => stream::replayed(state, caller, *record),
        Submitted::Replay(id) | Submitted::Joined(id) => {
            let record = state.service.generation(&caller, id).await?;
            replayed(stream::replayed(state, caller, record))
        }
    })
}

/// Generate images
///
/// Holds the price, generates, stores the images and charges for those that came. A failure costs nothing.
///
/// An account that has as many generations running as its share allows gets 429
/// `too_many_requests`, before its credits are checked. With `Prefer: respond-async` the generation
/// is a job.
#[utoipa::path(
    post, path = IMAGE, tag = "generate", params(SyncHeaders),
    responses(
        (status = 200, description = "The completed generation", body = GenerationRecord),
        (status = 202, description = "The generation, processing: with `Prefer: respond-async`, or of a replay that a stop of the server keeps from waiting", body = GenerationRecord),
    ),
)]
pub async fn image(
    State(state): State<ApiState>,
    auth: Authorized<GenerateImage>,
    headers: HeaderMap,
    permit: RequestPermit,
    body: JsonBody<ImageRequest>,
) -> Result<Response, ApiError> {
    let (submitted, _) = submit(&state, &auth.caller, &headers, IMAGE, body).await?;
    answer_sync(&state, &auth.caller, &headers, &permit, submitted).await
}

/// Generate a video
///
/// Holds the price and answers at once; poll until it is completed or failed. A failure costs nothing.
#[utoipa::path(
    post, path = VIDEO, tag = "generate", params(AsyncHeaders),
    responses(
        (status = 200, description = "The completed generation", body = GenerationRecord),
        (status = 202, description = "The generation, processing", body = GenerationRecord),
    ),
)]
pub async fn video(
    State(state): State<ApiState>,
    auth: Authorized<GenerateVideo>,
    headers: HeaderMap,
    permit: RequestPermit,
    body: JsonBody<VideoRequest>,
) -> Result<Response, ApiError> {
    let (submitted, _) = submit(&state, &auth.caller, &headers, VIDEO, body).await?;
    answer_queued(&state, &auth.caller, &headers, &permit, submitted).await
}

/// Generate speech
///
/// Holds the price and answers at once; poll until it is completed or failed. A failure costs nothing.
#[utoipa::path(
    post, path = AUDIO, tag = "generate", params(AsyncHeaders),
    responses(
        (status = 200, description = "The completed generation", body = GenerationRecord),
        (status = 202, description = "The generation, processing", body = GenerationRecord),
    ),
)]
pub async fn audio(
    State(state): State<ApiState>,
    auth: Authorized<GenerateAudio>,
    headers: HeaderMap,
    permit: RequestPermit,
    body: JsonBody<SpeechRequest>,
) -> Result<Response, ApiError> {
    let (submitted, _) = submit(&state, &auth.caller, &headers, AUDIO, body).await?;
    answer_queued(&state, &auth.caller, &headers, &permit, submitted).await
}

/// Reads a body and submits its request; with what a streamed text will deliver.
async fn submit<T: Body>(
    state: &ApiState,
    caller: &Caller,
    headers: &HeaderMap,
    route: &str,
    body: JsonBody<T>,
) -> Result<(Submitted, Option<Deltas>), ApiError>
where
    GenerationRequest: From<T>,
{
    let key = idempotency_key(headers, route, body.members())?;
    let request: GenerationRequest =
        body.read_as(|request| state.service.violations(caller, request))?;
    let respond_async = !request.is_streamed() && Prefer::read(headers).respond_async;
    let (sink, deltas) = request
        .is_streamed()
        .then(|| DeltaSink::channel(Visibility::TEXT))
        .unzip();
    let submitted = state
        .service
        .generate(caller, request, key.as_ref(), sink, respond_async, || ())
        .await?;
    Ok((submitted, deltas))
}

/// The answer of a synchronous route: when it is finished, unless it need not wait.
async fn answer_sync(
    state: &ApiState,
    caller: &Caller,
    headers: &HeaderMap,
    permit: &RequestPermit,
    submitted: Submitted,
) -> Result<Response, ApiError> {
    let at_once = Prefer::read(headers).respond_async;
    match submitted {
        Submitted::Queued(record, _) => Ok(accepted(state, *record)),
        Submitted::New(record, _) if at_once => Ok(preferred(accepted(state, *record))),
        Submitted::New(record, handle) => {
            let ended = end(state, caller, permit, *record, handle).await?;
            Ok(finished(state, ended))
        }
        Submitted::Replay(id) | Submitted::Joined(id) if at_once => {
            let record = state.service.generation(caller, id).await?;
            Ok(replayed(if record.status.is_finished() {
                finished(state, record)
            } else {
                preferred(accepted(state, record))
            }))
        }
        Submitted::Replay(id) | Submitted::Joined(id) => {
            let record = state
                .service
                .replay(caller, id, || permit.release())
                .await?;
            Ok(replayed(if record.status.is_finished() {
                finished(state, record)
            } else {
                accepted(state, record)
            }))
        }
    }
}

/// Waits for the end of a generation that was just created.
pub async fn end(
    state: &ApiState,
    caller: &Caller,
    permit: &RequestPermit,
    record: Generation,
    handle: Handle,
) -> Result<Generation, ApiError> {
    permit.release();
    let (service, id) = (&state.service, record.id);
    let ended = tokio::select! {
        biased;
        ended = handle.finished() => ended,
        () = service.given_up() => {
            return Err(ServiceError::StoppedWaiting(Box::new(record)).into());
        }
    };
    match ended {
        Some(record) => Ok(Arc::unwrap_or_clone(record)),
        // Its task ended without a record: it was ended elsewhere and deleted, the process is
        // stopping, or the database refused the settlement.
        None => match service.generation(caller, id).await {
            Err(ServiceError::NotFound) => Err(missing(state, caller, id).await),
            Err(error) => Err(error.into()),
            Ok(ended) if ended.status.is_finished() => Ok(ended),
            Ok(running) if service.is_draining() => {
                Err(ServiceError::StoppedWaiting(Box::new(running)).into())
            }
            Ok(_) => Err(ApiError::internal()),
        },
    }
}

/// The answer to a request whose generation is not found any more: how it ended, 404 if it was
/// completed and deleted, or 503 if the database was set back to before its creation.
pub async fn missing(state: &ApiState, caller: &Caller, id: GenerationId) -> ApiError {
    match state.service.generation_or_remains(caller, id).await {
        Ok(remains) if remains.status == Status::Failed => {
            ApiError::failed_generation(remains, state.links())
        }
        Ok(_) => ApiError::not_found("the generation was deleted"),
        Err(ServiceError::NotFound) => ApiError::database_unavailable(),
        Err(error) => error.into(),
    }
}

/// The answer of an asynchronous route: at once, unless it is to wait. A generation that is
/// finished by then answers 200, however it ended.
async fn answer_queued(
    state: &ApiState,
    caller: &Caller,
    headers: &HeaderMap,
    permit: &RequestPermit,
    submitted: Submitted,
) -> Result<Response, ApiError> {
    let (id, mut record, is_replay) = match submitted {
        Submitted::New(record, _) | Submitted::Queued(record, _) => {
            (record.id, Some(*record), false)
        }
        Submitted::Replay(id) | Submitted::Joined(id) => (id, None, true),
    };
    let wait = Prefer::read(headers).wait;
    let mut waited = false;
    if wait.is_some() || is_replay {
        let within = wait.unwrap_or_default();
        let found = state
            .service
            .generation_within(caller, id, within, || permit.release());
        match found.await {
            Ok(found) => {
                waited = found.waited;
                record = Some(found.generation);
            }
            Err(ServiceError::NotFound) if !is_replay => {
                return Err(missing(state, caller, id).await);
            }
            // It was created: a caller who learns that will not repeat the request.
            Err(error) if record.is_none() => return Err(error.into()),
            Err(error) => tracing::warn!(%error, "a wait was cut short"),
        }
    }
    let mut record = record.ok_or_else(ApiError::internal)?;
    if record.status == Status::Pending {
        // Only a lookup tells that a job waits for a worker.
        record.status = Status::Processing;
    }
    let mut response = if record.status.is_finished() {
        Json(GenerationRecord::of(record, state.links())).into_response()
    } else {
        accepted(state, record)
    };
    if let Some(applied) = wait.filter(|_| waited).and_then(Prefer::applied_wait) {
        response.headers_mut().insert("preference-applied", applied);
    }
    Ok(if is_replay {
        replayed(response)
    } else {
        response
    })
}

/// The answer that a finished synchronous generation gives.
fn finished(state: &ApiState, record: Generation) -> Response {
    match record.status {
        Status::Failed => ApiError::failed_generation(record, state.links()).into_response(),
        _ => Json(GenerationRecord::of(record, state.links())).into_response(),
    }
}

/// 202 and where to poll.
fn accepted(state: &ApiState, record: Generation) -> Response {
    let id = record.id;
    let body = Json(GenerationRecord::of(record, state.links()));
    let mut response = (StatusCode::ACCEPTED, body).into_response();
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/generate/{id}")) {
        headers.insert(header::LOCATION, location);
    }
    headers.insert(header::RETRY_AFTER, POLL_SECONDS.into());
    response
}

fn preferred(mut response: Response) -> Response {
    let applied = HeaderValue::from_static("respond-async");
    response.headers_mut().insert("preference-applied", applied);
    response
}

pub fn replayed(mut response: Response) -> Response {
    let value = HeaderValue::from_static("true");
    response.headers_mut().insert("idempotent-replayed", value);
    response
}

/// The request's idempotency key, checked.
pub fn idempotency_key(
    headers: &HeaderMap,
    route: &str,
    body: &Map<String, Value>,
) -> Result<Option<IdempotentRequest>, ApiError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let key = value.as_bytes();
    let sound = (1..=255).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic);
    match value.to_str() {
        Ok(key) if sound && values.next().is_none() => {
            Ok(Some(IdempotentRequest::new(key.to_owned(), route, body)))
        }
        _ => Err(ApiError::invalid_header(
            "Idempotency-Key must be given once, as 1 to 255 visible ASCII characters",
        )),
    }
}
