//! The ways in for the official SDKs and what is built on them: the same pipeline as
//! /v1/generate/text, with their bodies, streams, errors and headers.
//!
//! Here: what both have. How bodies are read and answers written: `domain/dialect`.

pub mod anthropic;
mod dialogue_body;
pub mod images;
pub mod openai;
mod references;
pub mod responses;
pub mod speech;
mod stream;
mod told;

use axum::{
    extract::{FromRequestParts, Path, rejection::PathRejection},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use http::{HeaderMap, HeaderName, HeaderValue, header, request::Parts};

use super::{
    ApiState, MediaLinks,
    admission::RequestPermit,
    body::JsonBody,
    error::{ApiError, GENERATION},
    extract::Authorized,
    generate::{IDEMPOTENCY_KEY, end, idempotency_key, missing, replayed},
    stream::last,
};
use crate::{
    domain::{
        catalogue::{Model, ModelKind, TextModel},
        conversation::Delta,
        dialect::{Answer, Head, Writer},
        generation::{FinishReason, Generation, Modality, Output, Status},
        ids::GenerationId,
        rate::RateState,
        request::{DialogueRequest, GenerationRequest},
        validate::Body,
    },
    jobs::Handle,
    media::{MediaFile, MediaKey},
    providers::{DeltaSink, Deltas},
    service::{
        ServiceError, WaitPlace,
        auth::Caller,
        generate::{IdempotentRequest, Submitted},
    },
};
use told::Told;

/// Whose SDK a path is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sdk {
    OpenAi,
    Anthropic,
}

impl Sdk {
    pub fn of(path: &str) -> Option<Self> {
        let below = |root| {
            let rest = path.strip_prefix(root);
            rest.is_some_and(|rest: &str| rest.is_empty() || rest.starts_with('/'))
        };
        match path {
            _ if below("/openai") => Some(Self::OpenAi),
            _ if below("/anthropic") => Some(Self::Anthropic),
            _ => None,
        }
    }

    /// What every answer carries: the id by both its names, and the rate limit.
    pub fn add_headers(
        self,
        headers: &mut HeaderMap,
        id: &HeaderValue,
        rate: Option<(RateState, DateTime<Utc>)>,
    ) {
        headers.insert("request-id", id.clone());
        let Some((rate, now)) = rate else { return };
        let (limit, remaining, reset) = match self {
            Self::OpenAi => (
                "x-ratelimit-limit-requests",
                "x-ratelimit-remaining-requests",
                (
                    "x-ratelimit-reset-requests",
                    format!("{}s", rate.reset_seconds),
                ),
            ),
            Self::Anthropic => {
                let wait = TimeDelta::try_seconds(rate.reset_seconds.cast_signed());
                let at = now + wait.unwrap_or_default();
                (
                    "anthropic-ratelimit-requests-limit",
                    "anthropic-ratelimit-requests-remaining",
                    (
                        "anthropic-ratelimit-requests-reset",
                        at.to_rfc3339_opts(SecondsFormat::Secs, true),
                    ),
                )
            }
        };
        headers.insert(limit, rate.limit.into());
        headers.insert(remaining, rate.remaining.into());
        if let Ok(value) = HeaderValue::from_str(&reset.1) {
            headers.insert(reset.0, value);
        }
    }
}

/// What tells a retry of an SDK: 0 with the first try, then 1, 2...
pub const RETRY_COUNT: HeaderName = HeaderName::from_static("x-stainless-retry-count");

/// Headers of a generation by an SDK.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it is a document, not a reader")]
struct SdkHeaders {
    /// 1 to 255 visible ASCII characters. The same key with the same request returns the answer first made, for 24 hours.
    #[param(rename = "Idempotency-Key")]
    idempotency_key: Option<String>,
    /// The SDKs count their tries. A retry, above 0, with the same key and body as a request of the last 10 minutes is answered with what that began, unless it failed; it is not charged again.
    #[param(rename = "X-Stainless-Retry-Count")]
    retry_count: Option<u32>,
}

/// Reads what makes a request the same as an earlier one: its idempotency key, or that an SDK
/// counts its attempts.
async fn idempotent<P, T: Body + Send + 'static>(
    auth: &Authorized<P>,
    headers: HeaderMap,
    route: &'static str,
    body: JsonBody<T>,
) -> Result<(Option<IdempotentRequest>, JsonBody<T>), ApiError> {
    let count = headers.get(RETRY_COUNT);
    let count = count.and_then(|count| count.to_str().ok()?.parse::<u32>().ok());
    let attempt = count.zip(body.digest());
    let attempt = attempt.map(|(count, digest)| {
        IdempotentRequest::attempt(count, &auth.caller, auth.arrived, route, digest)
    });
    if !headers.contains_key(IDEMPOTENCY_KEY) {
        return Ok((attempt, body));
    }
    let keyed = body.apart(move |body| {
        let key = idempotency_key(&headers, route, body.members())?;
        Ok((key, body))
    });
    let (key, body) = keyed.await?;
    Ok((key.or(attempt), body))
}

/// The id of a request, for an error in a stream.
#[derive(Debug, Clone)]
pub struct RequestId(pub String);

impl FromRequestParts<ApiState> for RequestId {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &ApiState) -> Result<Self, ApiError> {
        let id = parts.extensions.get::<Self>();
        id.cloned().ok_or_else(ApiError::internal)
    }
}

/// A request that is ready to be sent, and whoever waits for it.
struct Call {
    sdk: Sdk,
    state: ApiState,
    caller: Caller,
    permit: RequestPermit,
    request_id: RequestId,
    key: Option<IdempotentRequest>,
    /// Fields that have other names here than in the rules.
    names: &'static [(&'static str, &'static str)],
}

impl Call {
    /// Generates, and answers as `writer` writes it.
    async fn answer<W: Writer>(
        self,
        dialogue: DialogueRequest,
        writer: impl FnOnce(Head) -> W,
    ) -> Result<Response, ApiError> {
        let (sink, deltas) = dialogue
            .stream
            .then(|| DeltaSink::channel(dialogue.visibility))
            .unzip();
        let (streamed, model) = (dialogue.stream, dialogue.model.clone());
        let service = &self.state.service;
        let (left_out, estimated) = service.preview(&self.caller, &dialogue);
        let estimated = estimated.max(1);
        let told = Told {
            surface: dialogue.surface,
            model: model.clone(),
        };
        let submitted = told.failed(self.submit(dialogue.into(), sink).await)?;
        let head = |record: &Generation, input_tokens| Head {
            id: record.id.0.simple().to_string(),
            created: record.created_at.timestamp(),
            model,
            input_tokens,
        };
        let (record, is_replay) = match (submitted, deltas) {
            (Submitted::New(record, handle), Some(deltas)) => {
                let writer = writer(head(&record, estimated));
                let headers = Headers::of(&record, &left_out);
                let (sdk, request) = (self.sdk, self.request_id.clone());
                let end = told.at_end(record.id, self.last(record.id, handle));
                let body = stream::live(sdk, request, end, deltas, writer).await?;
                return Ok(headers.on(body));
            }
            (made @ (Submitted::Replay(id) | Submitted::Joined(id)), Some(_)) => {
                let (service, caller) = (&self.state.service, &self.caller);
                let record =
                    told.failed(service.generation(caller, id).await.map_err(Into::into))?;
                if !record.status.is_finished() {
                    let writer = writer(head(&record, estimated));
                    let headers = Headers::of(&record, &left_out);
                    let (sdk, request) = (self.sdk, self.request_id.clone());
                    let end = told.at_end(record.id, self.answer_at_end(made));
                    let body = stream::live(sdk, request, end, Deltas::at_end(), writer).await?;
                    return Ok(replayed(headers.on(body)));
                }
                (record, true)
            }
            (submitted, _) => told.failed(self.wait(submitted).await)?,
        };
        let headers = Headers::of(&record, &left_out);
        let answer = told.end(Some(record.id), answer_of(&record, self.state.links()))?;
        let mut writer = writer(head(&record, answer.usage.input_tokens));
        let response = if streamed {
            let mut events = writer.begin();
            for delta in answer.parts.iter().cloned().flat_map(Delta::of) {
                events += &writer.piece(&delta);
            }
            stream::response(events + &writer.end(&answer))
        } else {
            let json = [(header::CONTENT_TYPE, "application/json")];
            (json, writer.whole(&answer)).into_response()
        };
        let response = headers.on(response);
        Ok(marked(response, is_replay))
    }

    /// The end of what runs here.
    async fn last(self, id: GenerationId, handle: Handle) -> Result<Answer, ApiError> {
        self.permit.release();
        let record = last(&self.state, &self.caller, id, handle).await?;
        answer_of(&record, self.state.links())
    }

    /// The answer of a generation that another request created, when it has ended.
    async fn answer_at_end(self, made: Submitted) -> Result<Answer, ApiError> {
        let (record, _) = self.wait(made).await?;
        answer_of(&record, self.state.links())
    }

    async fn submit(
        &self,
        request: GenerationRequest,
        sink: Option<DeltaSink>,
    ) -> Result<Submitted, ApiError> {
        let (service, key) = (&self.state.service, self.key.as_ref());
        let waiting = || self.permit.release();
        let submitting = service.generate(&self.caller, request, key, sink, false, waiting);
        submitting.await.map_err(|error| renamed(error, self.names))
    }

    /// The generation at its end, and whether another request made it.
    async fn wait(&self, submitted: Submitted) -> Result<(Generation, bool), ApiError> {
        Ok(match submitted {
            Submitted::New(record, handle) => {
                let ended = end(&self.state, &self.caller, &self.permit, *record, handle);
                (ended.await?, false)
            }
            Submitted::Queued(record, place) => (self.ended(record.id, place).await?, false),
            Submitted::Replay(id) => (self.replay(id).await?, true),
            Submitted::Joined(id) => (self.ended(id, None).await?, true),
        })
    }

    /// Makes files, and waits for them.
    async fn files(&self, request: GenerationRequest) -> Result<(Generation, bool), ApiError> {
        let told = Told {
            surface: request.surface(),
            model: request.model().unwrap_or_default().to_owned(),
        };
        let submitted = told.failed(self.submit(request, None).await)?;
        let (record, is_replay) = told.failed(self.wait(submitted).await)?;
        let id = record.id;
        let made = if record.status == Status::Failed {
            Err(ApiError::failed_generation(record, self.state.links()))
        } else {
            Ok((record, is_replay))
        };
        told.end(Some(id), made)
    }

    /// What a key made before, once it is finished.
    async fn replay(&self, id: GenerationId) -> Result<Generation, ApiError> {
        let (service, caller) = (&self.state.service, &self.caller);
        let replaying = service.replay(caller, id, || self.permit.release());
        let record = replaying.await?;
        if record.status.is_finished() {
            Ok(record)
        } else {
            Err(ServiceError::StoppedWaiting(Box::new(record)).into())
        }
    }

    /// Waits for the end of a generation that runs for this caller.
    async fn ended(
        &self,
        id: GenerationId,
        place: Option<WaitPlace>,
    ) -> Result<Generation, ApiError> {
        let (service, caller) = (&self.state.service, &self.caller);
        let waiting = service.ended(caller, id, place, || self.permit.release());
        match waiting.await {
            Err(ServiceError::NotFound) => Err(missing(&self.state, caller, id).await),
            ended => Ok(ended?),
        }
    }
}

fn marked(response: Response, is_replay: bool) -> Response {
    if is_replay {
        replayed(response)
    } else {
        response
    }
}

/// The answer of a finished generation; what was cut short is none.
fn answer_of(record: &Generation, links: &MediaLinks) -> Result<Answer, ApiError> {
    if record.status == Status::Failed {
        return Err(ApiError::failed_generation(record.clone(), links));
    }
    if record.finish_reason == Some(FinishReason::Cancelled) {
        return Err(ApiError::cancelled());
    }
    Answer::of(record).ok_or_else(ApiError::internal)
}

/// A stored file, from its beginning.
async fn file(state: &ApiState, output: &Output) -> Result<MediaFile, ApiError> {
    let key: MediaKey = output.key.parse().map_err(|_| ApiError::internal())?;
    let file = state.settings.storage.get(&key, None).await?;
    file.ok_or_else(|| ApiError::not_found("the file was deleted"))
}

/// Names of fields that a request of an SDK has under others.
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

/// What tells of the generation behind an answer.
struct Headers([(HeaderName, Option<HeaderValue>); 3]);

impl Headers {
    fn of(record: &Generation, left_out: &[&str]) -> Self {
        let limit = record.parameters["max_tokens"].as_u64();
        Self([
            (
                GENERATION,
                HeaderValue::from_str(&record.id.to_string()).ok(),
            ),
            (MAX_TOKENS, limit.map(HeaderValue::from)),
            (
                LEFT_OUT,
                (!left_out.is_empty())
                    .then(|| HeaderValue::from_str(&left_out.join(", ")).ok())
                    .flatten(),
            ),
        ])
    }

    fn on(self, mut response: Response) -> Response {
        for (name, value) in self.0 {
            if let Some(value) = value {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

/// Fields that change no answer, and that the provider was not sent.
const LEFT_OUT: HeaderName = HeaderName::from_static("x-gensvc-left-out");
const MAX_TOKENS: HeaderName = HeaderName::from_static("x-gensvc-max-tokens");

/// A text model, after the name that requests have for it.
type Listed<'a> = (String, &'a Model, &'a TextModel);

fn listed(model: &Model) -> Option<Listed<'_>> {
    match &model.kind {
        ModelKind::Text(text) => Some((format!("{}/{}", model.provider, model.id), model, text)),
        _ => None,
    }
}

/// The text models of this server.
fn models(state: &ApiState) -> impl Iterator<Item = Listed<'_>> {
    state.service.catalogue().models().iter().filter_map(listed)
}

/// The model that a request of this caller would get by this name.
fn named<'a>(
    state: &'a ApiState,
    caller: &Caller,
    name: Result<Path<String>, PathRejection>,
) -> Result<Listed<'a>, ApiError> {
    let found = name.ok().and_then(|Path(name)| {
        let account = caller.account_default(Modality::Text);
        let catalogue = state.service.catalogue();
        let model = catalogue.named(Modality::Text, &name, &account).ok()?;
        listed(model)
    });
    found.ok_or_else(no_model)
}

fn no_model() -> ApiError {
    ApiError::not_found("there is no such model on this server")
}
