//! The generation record and list pages of the API.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::links::MediaLinks;
use crate::domain::{
    clock::rfc3339,
    credits::Credits,
    generation::{
        FailureCode, FinishReason, Generation, Modality, Output, REQUEST_ID, Status, Surface,
        TemplateUse,
    },
    ids::{ApiKeyId, GenerationId},
    inputs::{INPUTS, InputOrigin, InputRole},
    page::Page,
    pricing::Bill,
    route::{Attempt, Dropped},
    usage::TextUsage,
};
use crate::service::resources::Created;

/// The credits of a generation.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RecordCredits {
    /// The credits held at creation: its maximum cost.
    pub estimated: Credits,
    /// The credits currently on hold.
    pub held: Credits,
    /// The credits charged; null until finished, "0" if it failed.
    #[schema(required, nullable)]
    pub charged: Option<Credits>,
}

/// Why a generation failed.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RecordError {
    /// The code, for programs.
    pub code: FailureCode,
    /// The message, for people.
    pub message: String,
    /// Whether an identical request may succeed later.
    pub retryable: bool,
}

/// Origin and course of a generation.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RecordMetadata {
    /// The key that created it; null for sessions.
    #[schema(required, nullable)]
    pub api_key_id: Option<ApiKeyId>,
    /// The template that was used; null if there was none.
    #[schema(required, nullable)]
    pub template: Option<TemplateUse>,
    /// Submissions to the provider.
    pub attempts: i32,
    /// The `X-Request-Id` of the request that created it. Retries and replays of the request do not
    /// change it. Null if an earlier release created it.
    #[schema(required, nullable)]
    pub request_id: Option<String>,
    /// The provider's request id, for its support.
    #[schema(required, nullable)]
    pub provider_request_id: Option<String>,
    /// Why a completed text may be incomplete: `length` (its output limit, or a limit of this
    /// server), `content_filter` (the provider's policy), `malformed_function_call` or `other`
    /// (another reason of the provider), `cancelled`. Null if it ended normally.
    #[schema(required, nullable)]
    pub finish_reason: Option<FinishReason>,
    /// Milliseconds from start to end; null until finished.
    #[schema(required, nullable)]
    pub duration_ms: Option<i64>,
    /// The prices at creation, from which the bill is computed.
    pub pricing: Value,
    /// Number of an SDK's retries that were answered with it. Retries are not charged.
    pub joined: i32,
    /// The requested route; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// The candidates that were ruled out before the hold; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<Dropped>,
}

/// A stored file.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct OutputBody {
    /// Its type.
    pub r#type: Modality,
    /// The link to the file. Each lookup signs a new one.
    pub url: String,
    /// Media type.
    #[schema(example = "image/png")]
    pub content_type: String,
    /// Length in bytes.
    pub bytes: u64,
    /// SHA-256, hexadecimal.
    pub sha256: String,
    /// Pixels; images and videos only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Pixels; images and videos only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// Duration in seconds; videos and speech only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

impl OutputBody {
    fn of(modality: Modality, output: Output, links: &MediaLinks) -> Self {
        Self {
            r#type: modality,
            url: links.url(&output.key),
            content_type: output.content_type,
            bytes: output.bytes,
            sha256: output.sha256,
            width: output.width,
            height: output.height,
            seconds: output.seconds,
        }
    }
}

/// An image that was an input of a generation.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct InputBody {
    /// Role of the image.
    pub role: InputRole,
    /// Origin of the image.
    pub from: InputOrigin,
    /// The upload's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload: Option<String>,
    /// The uuid of the generation that produced it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<Uuid>,
    /// Index of the file in that generation, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<u16>,
    /// Media type.
    #[schema(example = "image/png")]
    pub content_type: String,
    /// Length in bytes.
    pub bytes: u64,
    /// SHA-256, hexadecimal.
    pub sha256: String,
    /// Pixels, as displayed.
    pub width: u32,
    /// Pixels, as displayed.
    pub height: u32,
}

impl InputBody {
    /// Removes and returns the inputs in stored parameters.
    fn taken_from(parameters: &mut Value) -> Vec<Self> {
        let members = parameters.as_object_mut();
        let inputs = members.and_then(|members| members.remove(INPUTS));
        // The response has all members of `StoredInput` except the key.
        let inputs = inputs.map(serde_json::from_value::<Vec<Self>>);
        let inputs = inputs.transpose().unwrap_or_else(|error| {
            tracing::error!(%error, "the inputs of a record cannot be read");
            None
        });
        inputs.unwrap_or_default()
    }
}

/// The usage of a generation, in the units that are charged.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the record keeps it as JSON")]
enum Usage {
    /// Text.
    Text(TextUsage),
    /// Images.
    Image {
        /// Stored images.
        images: u32,
        /// Number of inputs; absent if there are none.
        input_images: Option<u32>,
        /// Tokens of the inputs; absent if they are charged by number.
        input_image_tokens: Option<u64>,
    },
    /// Video.
    Video {
        /// Seconds.
        seconds: u32,
        /// Number of inputs; absent if there are none.
        input_images: Option<u32>,
    },
    /// Speech.
    Audio {
        /// Characters of the text.
        characters: u64,
    },
}

/// A generation in the history.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct GenerationSummary {
    /// Its uuid.
    pub uuid: GenerationId,
    /// Modality.
    pub r#type: Modality,
    /// The API of the request.
    pub surface: Surface,
    /// Its status.
    pub status: Status,
    /// Resolved provider.
    pub provider: String,
    /// Resolved model.
    pub model: String,
    /// The prompt sent to the model, rendered if a template was used; cut to 200 characters in the
    /// history.
    pub prompt: String,
    /// The text, or the URL of the first stored file; null until completed. Cut to 200 characters
    /// in the history.
    #[schema(required, nullable)]
    pub result: Option<String>,
    /// Its usage, in the units that are charged; null until completed.
    #[schema(required, nullable, value_type = Option<Usage>)]
    pub usage: Option<Value>,
    /// Its credits.
    pub credits: RecordCredits,
    /// Why it failed.
    #[schema(required, nullable)]
    pub error: Option<RecordError>,
    /// 0 to 100; null if the provider does not report it.
    #[schema(required, nullable)]
    pub progress: Option<i16>,
    /// When it was created.
    #[serde(serialize_with = "rfc3339")]
    pub created_at: DateTime<Utc>,
    /// When work began.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub completed_at: Option<DateTime<Utc>>,
}

/// A complete generation record.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct GenerationRecord {
    /// The fields that the history shows too.
    #[serde(flatten)]
    pub summary: GenerationSummary,
    /// Resolved parameters.
    #[schema(value_type = Object)]
    pub parameters: Value,
    /// The input images.
    pub inputs: Vec<InputBody>,
    /// The stored files; empty for text.
    pub outputs: Vec<OutputBody>,
    /// The models that were tried, in order; the last one is its `provider` and `model`. Absent
    /// unless a route or fallbacks were requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// How its price was computed; null until completed.
    #[schema(required, nullable)]
    pub bill: Option<Bill>,
    /// Its origin and course.
    pub metadata: RecordMetadata,
}

impl GenerationSummary {
    /// Returns the summary, with newly signed links. Without stored files it needs no `links`.
    pub fn of<'a>(g: Generation, links: impl Into<Option<&'a MediaLinks>>) -> Self {
        let links: Option<&MediaLinks> = links.into();
        let first = g.outputs.first().zip(links);
        let url = first.map(|(output, links)| links.url(&output.key));
        Self {
            uuid: g.id,
            r#type: g.modality,
            surface: g.surface,
            status: g.status,
            credits: RecordCredits {
                estimated: g.estimated,
                held: g.held(),
                charged: g.charged,
            },
            provider: g.provider,
            model: g.model,
            prompt: g.prompt,
            result: g.result.or(url),
            usage: g.usage.map(sorted),
            error: g.failure.map(|failure| RecordError {
                code: failure.code,
                retryable: failure.is_retryable(),
                message: failure.message,
            }),
            progress: g.progress,
            created_at: g.created_at,
            started_at: g.started_at,
            completed_at: g.completed_at,
        }
    }
}

impl GenerationRecord {
    /// Returns the record, with newly signed links. Without stored files it needs no `links`.
    pub fn of<'a>(mut g: Generation, links: impl Into<Option<&'a MediaLinks>>) -> Self {
        let links: Option<&MediaLinks> = links.into();
        let outputs = links.map(|links| {
            let outputs = g.outputs.iter().cloned();
            let outputs = outputs.map(|output| OutputBody::of(g.modality, output, links));
            outputs.collect()
        });
        let usage = g.usage.as_ref();
        let bill = usage.and_then(|usage| Bill::new(g.modality, &g.pricing, &g.parameters, usage));
        let duration = g
            .started_at
            .zip(g.completed_at)
            .map(|(start, end)| end - start);
        let attempts = attempts(&mut g);
        let route = g.route.take().map(|route| *route).unwrap_or_default();
        let parameters = g.parameters.as_object_mut();
        let request_id = parameters.and_then(|members| members.remove(REQUEST_ID));
        let metadata = RecordMetadata {
            api_key_id: g.api_key_id,
            template: g.template,
            attempts: g.attempts,
            request_id: request_id.and_then(|id| id.as_str().map(str::to_owned)),
            provider_request_id: g.provider_request_id.take(),
            finish_reason: g.finish_reason,
            duration_ms: duration.map(|d| d.num_milliseconds()),
            pricing: sorted(g.pricing.take()),
            joined: g.joined,
            route: route.name,
            dropped: route.dropped,
        };
        let inputs = InputBody::taken_from(&mut g.parameters);
        let parameters = sorted(g.parameters.take());
        Self {
            inputs,
            outputs: outputs.unwrap_or_default(),
            attempts,
            bill,
            summary: GenerationSummary::of(g, links),
            parameters,
            metadata,
        }
    }
}

/// Returns all attempts of a generation with several candidates. The last is the generation itself.
fn attempts(g: &mut Generation) -> Vec<Attempt> {
    let Some(route) = &mut g.route else {
        return Vec::new();
    };
    let mut attempts = std::mem::take(&mut route.left);
    let called_before = attempts.iter().filter(|one| one.called == Some(true));
    let is_called = usize::try_from(g.attempts).is_ok_and(|all| all > called_before.count());
    // Calls of a server that died are not counted.
    let is_counted = g.failure.as_ref().map_or_else(
        || g.status.is_finished(),
        |failure| failure.code != FailureCode::Interrupted,
    );
    let left_at = attempts.last().and_then(|last| last.ended_at);
    let outcome = match &g.failure {
        Some(failure) => failure.code.as_str(),
        None => g.status.as_str(),
    };
    attempts.push(Attempt {
        number: attempts.last().map_or(1, |last| last.number + 1),
        provider: g.provider.clone(),
        model: g.model.clone(),
        started_at: left_at.or(g.started_at).unwrap_or(g.created_at),
        ended_at: g.completed_at,
        called: (is_called || is_counted).then_some(is_called),
        outcome: outcome.to_owned(),
        status: None,
        provider_request_id: g.provider_request_id.clone(),
    });
    attempts
}

/// The model that was used for a request with several candidates.
pub const SERVED_BY: HeaderName = HeaderName::from_static("x-gensvc-served-by");

/// Returns the value of [`SERVED_BY`]; `None` if the request had only one candidate.
pub fn served_by(g: &Generation) -> Option<HeaderValue> {
    g.route.as_ref()?;
    HeaderValue::from_str(&format!("{}/{}", g.provider, g.model)).ok()
}

/// Responds with the record of a generation; once that has ended, with [`SERVED_BY`].
pub fn answer(g: Generation, links: &MediaLinks) -> Response {
    let served_by = served_by(&g).filter(|_| g.status.is_finished());
    let mut response = Json(GenerationRecord::of(g, links)).into_response();
    let served_by = served_by.map(|value| (SERVED_BY, value));
    response.headers_mut().extend(served_by);
    response
}

/// Sorts members, because the database returns them in another order than a new record has.
fn sorted(mut value: Value) -> Value {
    value.sort_all_objects();
    value
}

/// One page of a list, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct PageBody<T> {
    /// The rows.
    pub data: Vec<T>,
    /// The requested page size.
    pub per_page: i64,
    /// `cursor` of the next page; null on the last page.
    #[schema(required, nullable)]
    pub next_cursor: Option<String>,
}

/// Responds with a created object: `status` for a new one, 200 if the same form created it before.
pub fn created<T: Serialize>(created: Created<T>, status: StatusCode) -> Response {
    match created {
        Created::Now(body) => (status, Json(body)).into_response(),
        Created::Before(body) => mark_replay(Json(body).into_response(), true),
    }
}

/// Marks the response to a request whose object another request created.
pub fn mark_replay(mut response: Response, is_replay: bool) -> Response {
    if is_replay {
        let value = HeaderValue::from_static("true");
        response.headers_mut().insert("idempotent-replayed", value);
    }
    response
}

/// Responds with a page, and a `Link` to the next page that keeps the query's filters.
pub fn page<R, T: Serialize>(page: Page<R>, uri: &http::Uri, row: impl Fn(R) -> T) -> Response {
    let next_cursor = page.next.map(crate::domain::page::Cursor::encode);
    let link = next_cursor.as_ref().and_then(|cursor| {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        let old = uri.query().unwrap_or_default();
        query.extend_pairs(
            url::form_urlencoded::parse(old.as_bytes()).filter(|(n, _)| n != "cursor"),
        );
        query.append_pair("cursor", cursor);
        let target = format!("<{}?{}>; rel=\"next\"", uri.path(), query.finish());
        HeaderValue::from_str(&target).ok()
    });
    let body = PageBody {
        data: page.rows.into_iter().map(row).collect::<Vec<_>>(),
        per_page: page.per_page,
        next_cursor,
    };
    let mut response = Json(body).into_response();
    if let Some(link) = link {
        response.headers_mut().insert(header::LINK, link);
    }
    response
}
