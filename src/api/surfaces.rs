//! The ways in for the official SDKs and what is built on them: the same pipeline as
//! /v1/generate/text, with their bodies, streams, errors and headers.
//!
//! Here: what both have. How bodies are read and answers written: `domain/dialect`.

pub mod anthropic;
pub mod openai;
mod stream;

use axum::{
    extract::{FromRequestParts, Path, rejection::PathRejection},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use http::{HeaderMap, HeaderName, HeaderValue, header, request::Parts};

use super::{
    ApiState, MediaLinks,
    admission::RequestPermit,
    error::{ApiError, GENERATION},
    generate::{end, replayed},
};
use crate::{
    domain::{
        catalogue::{Model, ModelKind, TextModel},
        conversation::Delta,
        dialect::{Answer, Head, Writer},
        generation::{FinishReason, Generation, Modality, Status},
        ids::GenerationId,
        rate::RateState,
        request::DialogueRequest,
    },
    providers::DeltaSink,
    service::{
        ServiceError,
        auth::Caller,
        generate::{IdempotentRequest, Submitted},
    },
};

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
struct Call<'a> {
    sdk: Sdk,
    state: ApiState,
    caller: Caller,
    permit: &'a RequestPermit,
    request_id: RequestId,
    key: Option<IdempotentRequest>,
}

impl Call<'_> {
    /// Generates, and answers as `writer` writes it.
    async fn answer<W: Writer>(
        self,
        dialogue: DialogueRequest,
        writer: impl FnOnce(Head) -> W,
    ) -> Result<Response, ApiError> {
        let (sink, deltas) = dialogue.stream.then(DeltaSink::channel).unzip();
        let (streamed, model) = (dialogue.stream, dialogue.model.clone());
        let bytes = dialogue.conversation.bytes();
        let service = &self.state.service;
        let left_out = service.left_out(&self.caller, &dialogue);
        let submitted = service.generate(
            &self.caller,
            dialogue.into(),
            self.key.as_ref(),
            sink,
            false,
        );
        let submitted = submitted.await?;
        let head = |record: &Generation, input_tokens| Head {
            id: record.id.0.simple().to_string(),
            created: record.created_at.timestamp(),
            model,
            input_tokens,
        };
        let (record, is_replay) = match (submitted, deltas) {
            (Submitted::New(record, handle), Some(deltas)) => {
                // As where no provider counts them.
                let input_tokens = (bytes as u64).div_ceil(4).max(1);
                let writer = writer(head(&record, input_tokens));
                let headers = Headers::of(&record, &left_out);
                let body = stream::live(self, record.id, handle, deltas, writer).await?;
                return Ok(headers.on(body));
            }
            (Submitted::New(record, handle), None) => {
                let ended = end(&self.state, &self.caller, self.permit, record.id, handle);
                (ended.await?, false)
            }
            (Submitted::Queued(record), _) => (self.replay(record.id).await?, false),
            (Submitted::Replay(id), _) => (self.replay(id).await?, true),
        };
        let headers = Headers::of(&record, &left_out);
        let answer = answer_of(&record, self.state.links())?;
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
        Ok(if is_replay {
            replayed(response)
        } else {
            response
        })
    }

    /// What was made before, once it is finished.
    async fn replay(&self, id: GenerationId) -> Result<Generation, ApiError> {
        let (service, caller) = (&self.state.service, &self.caller);
        let record = service.replay(caller, id, || self.permit.release()).await?;
        if !record.status.is_finished() {
            return Err(ServiceError::ShuttingDown.into());
        }
        Ok(record)
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
        let model = state.service.catalogue().named(&name, &account).ok()?;
        listed(model)
    });
    found.ok_or_else(|| ApiError::not_found("there is no such model on this server"))
}
