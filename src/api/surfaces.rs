//! Routes for the official SDKs: the pipeline of /v1/generate with their bodies, streams, errors
//! and headers. `dialect` reads the bodies and writes the answers.

pub mod anthropic;
mod dialogue_body;
pub mod images;
pub mod openai;
mod references;
pub mod responses;
pub mod speech;
mod stream;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    extract::{Path, rejection::PathRejection},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::{Value, json};
use tracing::Instrument as _;

use super::{
    ApiState, MediaLinks,
    body::JsonBody,
    context::{RETRY_COUNT, RequestId, RequestPermit, Sdk},
    error::{ApiError, GENERATION},
    extract::Authorized,
    generate::idempotency_key,
    lifecycle::retirement,
    record::{SERVED_BY, mark_replay, served_by},
};
use crate::{
    catalogue::Model,
    dialect::{Answer, Head, Writer},
    domain::{
        conversation::Delta,
        generation::{FinishReason, Generation, Modality, Status, Surface},
        ids::GenerationId,
        route::{PROVIDER, route_name},
        validate::{Body, FieldCode, FieldError},
    },
    providers::{DeltaSink, Deltas},
    request::{DialogueRequest, GenerationRequest},
    service::{
        Service, ServiceError,
        auth::Caller,
        generate::{IdempotentRequest, RequestInfo, Submitted},
    },
};

/// Headers of a generation by an SDK.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it is a document, not a reader")]
struct SdkHeaders {
    /// 1 to 255 visible ASCII characters. For 24 hours, the same key with the same request returns
    /// the first answer.
    #[param(rename = "Idempotency-Key")]
    idempotency_key: Option<String>,
    /// The number of the attempt, as the SDKs count it. A retry (above 0) with the key and body of
    /// a request of the last 10 minutes gets the answer of that request's generation, unless it
    /// failed, and is not charged again.
    #[param(rename = "X-Stainless-Retry-Count")]
    retry_count: Option<u32>,
}

/// A request of an SDK, and its caller.
struct SdkRequest {
    sdk: Sdk,
    state: ApiState,
    caller: Caller,
    permit: RequestPermit,
    request_id: RequestId,
    key: Option<IdempotentRequest>,
    /// Fields whose names here differ from those in the rules.
    names: &'static [(&'static str, &'static str)],
}

impl SdkRequest {
    /// Reads the idempotency key or the SDK's attempt number, by which earlier requests are found.
    async fn new<P, T: Body + Send + 'static>(
        sdk: Sdk,
        auth: Authorized<P>,
        route: &'static str,
        names: &'static [(&'static str, &'static str)],
        body: JsonBody<T>,
    ) -> Result<(Self, JsonBody<T>), ApiError> {
        let count = auth.headers.get(RETRY_COUNT);
        let count = count.and_then(|count| count.to_str().ok()?.parse::<u32>().ok());
        let attempt = count.zip(body.digest);
        let attempt = attempt.map(|(count, digest)| {
            IdempotentRequest::attempt(count, &auth.caller, auth.arrived, route, digest)
        });
        let (key, body) = idempotency_key(&auth.headers, route, body).await?;
        let request = Self {
            sdk,
            state: auth.state,
            caller: auth.caller,
            permit: auth.permit,
            request_id: auth.request_id,
            key: key.or(attempt),
            names,
        };
        Ok((request, body))
    }

    /// Generates, and responds in the format of `writer`.
    async fn answer<W: Writer>(
        self,
        dialogue: DialogueRequest,
        writer: impl FnOnce(Head) -> W,
    ) -> Result<Response, ApiError> {
        let (sink, deltas) = dialogue
            .stream
            .then(|| DeltaSink::channel(dialogue.visibility()))
            .unzip();
        let (streamed, model) = (dialogue.stream, dialogue.model.clone());
        let service = self.state.service.clone();
        let preview = service.preview(&self.caller, &dialogue);
        let log = SdkRequestLog {
            surface: dialogue.surface,
            model: model.clone(),
        };
        let submitted = log.failure(self.submit(dialogue.into(), sink).await)?;
        let is_replay = submitted.is_replay();
        let head = |record: &Generation, input_tokens| Head {
            id: record.id.0.simple().to_string(),
            created: record.created_at.timestamp(),
            model,
            input_tokens,
        };
        let record = if let Some(deltas) = deltas {
            let found = service.record_of(&self.caller, submitted).await;
            let (submitted, mut record) = log.failure(found.map_err(Into::into))?;
            if !record.status.is_finished() {
                let writer = writer(head(&record, preview.input_tokens.max(1)));
                let handle = match &submitted {
                    Submitted::New(_, handle) if record.route.is_some() => Some(handle.clone()),
                    _ => None,
                };
                let id = record.id;
                let (sdk, request) = (self.sdk, self.request_id.clone());
                // A generation that this process runs always ends. The wait for another one may still
                // fail with a status of its own until the headers are sent.
                let is_new = matches!(submitted, Submitted::New(..));
                let is_persistent = Arc::new(AtomicBool::new(is_new));
                let is_sent = Arc::clone(&is_persistent);
                let deltas = if is_replay { Deltas::at_end() } else { deltas };
                // The request is complete before the stream ends.
                let end = async move {
                    let is_persistent = move || is_persistent.load(Ordering::Acquire);
                    let ended = self.wait(submitted, is_persistent).await;
                    let ended = ended.and_then(|record| answer_of(&record, self.state.links()));
                    log.end(Some(id), ended)
                };
                let end = end.in_current_span();
                let silence = stream::KEEP_ALIVE;
                let live = stream::live(sdk, request, end, deltas, writer, silence);
                let (events, has_begun) = live.await?;
                is_sent.store(true, Ordering::Release);
                // With the first piece it is decided who serves.
                let is_decided = has_begun && handle.is_some() || record.route.is_none();
                if let Some(handle) = handle {
                    handle.follow_moves(&mut record);
                }
                let left_out = preview.left_out(&record);
                let mut response = super::stream::response(events);
                let headers = headers(&service, &record, left_out, is_decided);
                response.headers_mut().extend(headers);
                return Ok(mark_replay(response, is_replay));
            }
            record
        } else {
            log.failure(self.wait(submitted, || false).await)?
        };
        let headers = headers(&service, &record, preview.left_out(&record), true);
        let answer = log.end(Some(record.id), answer_of(&record, self.state.links()))?;
        let mut writer = writer(head(&record, answer.usage.input_tokens));
        let mut response = if streamed {
            let mut events = writer.begin();
            for delta in answer.parts.iter().cloned().flat_map(Delta::of) {
                events += &writer.piece(&delta);
            }
            let events = events + &writer.end(&answer);
            super::stream::response(futures_util::stream::once(async { Ok(events) }))
        } else {
            let json = [(header::CONTENT_TYPE, "application/json")];
            (json, writer.whole(&answer)).into_response()
        };
        response.headers_mut().extend(headers);
        Ok(mark_replay(response, is_replay))
    }

    async fn submit(
        &self,
        request: GenerationRequest,
        sink: Option<DeltaSink>,
    ) -> Result<Submitted, ApiError> {
        let info = RequestInfo {
            request_id: &self.request_id.0,
            idempotent: self.key.as_ref(),
            respond_async: false,
        };
        let (service, waiting) = (&self.state.service, || self.permit.release());
        let submitting = service.generate(&self.caller, request, info, sink, waiting);
        submitting.await.map_err(|error| renamed(error, self.names))
    }

    async fn wait(
        &self,
        submitted: Submitted,
        is_persistent: impl Fn() -> bool + Send + Sync,
    ) -> Result<Generation, ApiError> {
        let (service, on_wait) = (&self.state.service, || self.permit.release());
        let ended = service.wait_for_end(&self.caller, submitted, is_persistent, on_wait);
        Ok(ended.await?)
    }

    /// Generates files and waits for them. Returns whether another request created them.
    async fn files(&self, request: GenerationRequest) -> Result<(Generation, bool), ApiError> {
        let log = SdkRequestLog {
            surface: request.surface(),
            model: request.model().unwrap_or_default().to_owned(),
        };
        let submitted = log.failure(self.submit(request, None).await)?;
        let is_replay = submitted.is_replay();
        let record = log.failure(self.wait(submitted, || false).await)?;
        let id = record.id;
        let made = if record.status == Status::Failed {
            Err(ApiError::failed_generation(record, self.state.links()))
        } else {
            Ok((record, is_replay))
        };
        log.end(Some(id), made)
    }

    /// Adds the headers of a completed generation, even to an error, since its work was charged.
    fn of_files(
        &self,
        made: Result<Response, ApiError>,
        record: &Generation,
        left_out: &[&str],
    ) -> Response {
        let mut response = made.into_response();
        let headers = headers(&self.state.service, record, left_out, true);
        response.headers_mut().extend(headers);
        response
    }
}

/// One log line per request of an SDK, when it ends.
#[derive(Debug, Clone)]
struct SdkRequestLog {
    surface: Surface,
    /// The requested model name.
    model: String,
}

impl SdkRequestLog {
    fn end<T>(
        &self,
        generation: Option<GenerationId>,
        result: Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let outcome = match &result {
            Ok(_) => "completed",
            Err(error) => error.code().as_str(),
        };
        tracing::info!(
            surface = self.surface.as_str(),
            model = self.model,
            generation = generation.map(tracing::field::display),
            outcome,
            "SDK request ended"
        );
        result
    }

    /// Logs the end of a failed request.
    fn failure<T>(&self, result: Result<T, ApiError>) -> Result<T, ApiError> {
        if result.is_err() {
            self.end(None, result)
        } else {
            result
        }
    }
}

/// Returns the answer of a finished generation; an error for a failed or cancelled one.
fn answer_of(record: &Generation, links: &MediaLinks) -> Result<Answer, ApiError> {
    if record.status == Status::Failed {
        return Err(ApiError::failed_generation(record.clone(), links));
    }
    if record.finish_reason == Some(FinishReason::Cancelled) {
        return Err(ApiError::cancelled().naming(record.clone()));
    }
    let answer = Answer::of(record);
    answer.ok_or_else(|| ApiError::internal().naming(record.clone()))
}

/// Renames the fields of an error to their names in the SDK's request.
fn renamed(error: ServiceError, names: &[(&str, &str)]) -> ApiError {
    let ServiceError::Invalid(mut errors) = error else {
        return error.into();
    };
    for error in &mut errors {
        let own = error.param.trim_start_matches("parameters.");
        let renamed = names.iter().find(|(name, _)| *name == own);
        error.param = renamed.map_or(own, |(_, name)| name).to_owned();
    }
    ServiceError::Invalid(errors).into()
}

/// Returns headers about the generation; only its id until it `is_decided` which model is used.
fn headers(
    service: &Service,
    record: &Generation,
    left_out: &[&str],
    is_decided: bool,
) -> HeaderMap {
    let mut headers = retirement(service, record);
    let id = HeaderValue::from_str(&record.id.to_string());
    headers.extend(id.ok().map(|id| (GENERATION, id)));
    if is_decided {
        let limit = record.parameters["max_tokens"].as_u64();
        headers.extend(limit.map(|limit| (MAX_TOKENS, HeaderValue::from(limit))));
        headers.extend(served_by(record).map(|model| (SERVED_BY, model)));
        let left_out = HeaderValue::from_str(&left_out.join(", "));
        let left_out = left_out.ok().filter(|names| !names.is_empty());
        headers.extend(left_out.map(|names| (LEFT_OUT, names)));
    }
    headers
}

/// Fields that change no answer and were not sent to the provider.
const LEFT_OUT: HeaderName = HeaderName::from_static("x-gensvc-left-out");
const MAX_TOKENS: HeaderName = HeaderName::from_static("x-gensvc-max-tokens");

/// Returns the models of this type that are not retired.
fn models(state: &ApiState, modality: Modality) -> impl Iterator<Item = &Model> {
    let models = state.service.catalogue().listed();
    models.filter(move |model| model.modality() == modality && !model.retired)
}

/// Adds a model's retirement and aliases to its entry in a list, as in GET /v1/models.
fn with_lifecycle(mut body: Value, model: &Model) -> Value {
    if let Some(day) = model.retiring {
        body["retiring"] = json!(day);
    }
    if let Some(replacement) = &model.replacement {
        body["replacement"] = json!(replacement);
    }
    if !model.aliases.is_empty() {
        body["aliases"] = json!(model.aliases);
    }
    body
}

/// Returns the model that this name resolves to for this caller, if it has one of these types.
fn named<'a>(
    state: &'a ApiState,
    caller: &Caller,
    name: Result<Path<String>, PathRejection>,
    types: &[Modality],
) -> Result<&'a Model, ApiError> {
    let Path(name) = name.map_err(|_| no_model())?;
    let catalogue = state.service.catalogue();
    let route = route_name(&name).and_then(|name| catalogue.find_listed(PROVIDER, name));
    let mut refusal = no_model();
    for &modality in types {
        let account = caller.account_default(modality);
        match catalogue.named(modality, &name, &account, Surface::Generate) {
            Ok(model) => return Ok(route.unwrap_or(model)),
            Err(error) if error.code == FieldCode::ModelRetired => {
                refusal = ApiError::invalid(vec![error]);
            }
            Err(_) => {}
        }
    }
    Err(refusal)
}

fn no_model() -> ApiError {
    let message = "is not a model of this server";
    ApiError::invalid(vec![FieldError::new(
        "model",
        FieldCode::UnknownModel,
        message,
    )])
}
