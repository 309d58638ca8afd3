//! POST /v1/generate/text: one answer, an event stream, or 202 at once.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Map, Value};

use super::{
    ApiState,
    error::ApiError,
    extract::{Authorized, GenerateText, JsonBody},
    prefer::Prefer,
    record::GenerationRecord,
    schema::TextGenerationRequest,
    stream,
};
use crate::{
    domain::{
        generation::{Generation, Status},
        ids::GenerationId,
    },
    service::{
        ServiceError,
        auth::Caller,
        generate::{Begun, KeyedRequest},
    },
};

const ROUTE: &str = "/v1/generate/text";
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Seconds after which an unfinished generation is worth another look.
pub const POLL_SECONDS: u64 = 5;

/// Generate text
///
/// Holds the ceiling of the cost, generates, charges the real token count and releases the
/// rest. A failure costs nothing.
#[utoipa::path(
    post, path = ROUTE, tag = "generate", request_body = TextGenerationRequest,
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 visible ASCII characters. The same key with the same request returns the generation first made, for 24 hours."),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: answer 202 at once, to be polled."),
    ),
    responses(
        (status = 200, description = "The completed generation. With `stream` true: server-sent events `generation`, `delta`, then `completed` or `failed`.",
            content((GenerationRecord = "application/json"), (String = "text/event-stream")),
            headers(("Idempotent-Replayed" = String, description = "`true` when an earlier request with the same Idempotency-Key made it"))),
        (status = 202, description = "With `Prefer: respond-async`: the generation, processing", body = GenerationRecord,
            headers(("Location" = String, description = "Where to poll"), ("Retry-After" = u64, description = "Seconds"))),
    ),
    security(("bearer" = [])), extensions(("x-required-ability" = json!("generate:text")))
)]
pub async fn text(
    State(state): State<ApiState>,
    auth: Authorized<GenerateText>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let caller = auth.caller;
    let keyed = idempotency_key(&headers, body.members())?;
    let request = body.read(|members| state.service.read_text(&caller, members))?;
    let (sink, deltas) = if request.stream {
        let (sink, deltas) = tokio::sync::mpsc::unbounded_channel();
        (Some(sink), Some(deltas))
    } else {
        (None, None)
    };
    let begun = state
        .service
        .begin_text(&caller, request, keyed.as_ref(), sink)
        .await?;
    let replayed = matches!(begun, Begun::Replay(_));
    let respond_async = Prefer::read(&headers).respond_async;
    let mut response = match (begun, deltas) {
        (Begun::New(record, handle), Some(deltas)) => {
            stream::live(state, caller, *record, handle, deltas)
        }
        (Begun::Replay(id), Some(_)) => {
            let record = state.service.generation(&caller, id).await?;
            stream::replayed(state, caller, record)
        }
        (Begun::New(record, _), None) if respond_async => accepted(&record),
        (Begun::Replay(id), None) if respond_async => {
            let record = state.service.generation(&caller, id).await?;
            if record.status.is_finished() {
                finished(&record)
            } else {
                accepted(&record)
            }
        }
        (Begun::New(record, handle), None) => match handle.finished().await {
            Some(record) => finished(&record),
            // Its task ended without a record: the process is stopping, or the database
            // refused the settlement.
            None => match state.service.generation(&caller, record.id).await? {
                ended if ended.status.is_finished() => finished(&ended),
                _ if state.service.is_draining() => {
                    return Err(ServiceError::ShuttingDown.into());
                }
                _ => return Err(ApiError::internal()),
            },
        },
        (Begun::Replay(id), None) => replay(&state, &caller, id).await?,
    };
    if replayed {
        let value = HeaderValue::from_static("true");
        response.headers_mut().insert("idempotent-replayed", value);
    }
    Ok(response)
}

async fn replay(state: &ApiState, caller: &Caller, id: GenerationId) -> Result<Response, ApiError> {
    Ok(finished(&state.service.replay(caller, id).await?))
}

/// The answer that a finished synchronous generation gives.
fn finished(record: &Generation) -> Response {
    match record.status {
        Status::Failed => ApiError::failed_generation(record).into_response(),
        _ => Json(GenerationRecord::from(record)).into_response(),
    }
}

/// 202 and where to poll.
fn accepted(record: &Generation) -> Response {
    let mut response = (StatusCode::ACCEPTED, Json(GenerationRecord::from(record))).into_response();
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/generate/{}", record.id)) {
        headers.insert(header::LOCATION, location);
    }
    headers.insert(header::RETRY_AFTER, POLL_SECONDS.into());
    let applied = HeaderValue::from_static("respond-async");
    headers.insert("preference-applied", applied);
    response
}

/// The request's idempotency key, checked.
fn idempotency_key(
    headers: &HeaderMap,
    body: &Map<String, Value>,
) -> Result<Option<KeyedRequest>, ApiError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let key = value.as_bytes();
    let sound = (1..=255).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic);
    match value.to_str() {
        Ok(key) if sound && values.next().is_none() => {
            Ok(Some(KeyedRequest::new(key.to_owned(), ROUTE, body)))
        }
        _ => Err(ApiError::invalid_header(
            "Idempotency-Key must be given once, as 1 to 255 visible ASCII characters",
        )),
    }
}
