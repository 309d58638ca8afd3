//! /anthropic: Messages, token counts, and models in Anthropic's format.

use axum::{
    Json,
    extract::{Path, rejection::PathRejection},
    response::Response,
};
use chrono::DateTime;
use http::HeaderMap;
use serde_json::{Value, json};

use super::{SdkHeaders, SdkRequest, dialogue_body::read, models, named, no_model, with_lifecycle};
use crate::{
    api::{
        body::JsonBody,
        context::Sdk,
        error::ApiError,
        extract::{AnyToken, Authorized, BetaQuery, CountTokens, GenerateText, Query},
    },
    catalogue::{Model, ModelKind},
    dialect::messages::{CountRequest, MessagesRequest, MessagesWriter},
    domain::{
        generation::{Modality, Surface},
        validate::{Fields, Input, integer, text},
    },
};

const MESSAGES: &str = "/anthropic/v1/messages";
const SURFACE: Surface = Surface::AnthropicMessages;
/// Maximum models of a page.
const MAX_PAGE: i64 = 1000;

/// Returns `None` unless it is a text model.
fn model_body(model: &Model) -> Option<Value> {
    let ModelKind::Text(text) = &model.kind else {
        return None;
    };
    let body = json!({
        "type": "model",
        "id": model.name(),
        "display_name": model.id,
        // The creation time is unknown.
        "created_at": DateTime::UNIX_EPOCH,
        "lifecycle": if model.retiring.is_some() { "deprecated" } else { "active" },
        "max_input_tokens": text.limits.max_input_tokens,
        "max_tokens": text.limits.max_output_tokens,
    });
    Some(with_lifecycle(body, model))
}

/// The requested page of models.
pub struct ModelPage {
    limit: Option<usize>,
    after: Option<String>,
    before: Option<String>,
}

impl Input for ModelPage {
    fn read(fields: &Fields<'_>) -> Option<Self> {
        BetaQuery::read(fields);
        let about = "Models of the page. Default: all.";
        Some(Self {
            limit: fields.optional("limit", about, integer(1..=MAX_PAGE)),
            after: fields.optional("after_id", "Those after this one.", text(usize::MAX)),
            before: fields.optional("before_id", "Those before this one.", text(usize::MAX)),
        })
    }
}

/// Messages
///
/// For the `anthropic` packages, with `base_url` `/anthropic` of this server. Supports dialogues
/// with tools; unsupported fields are refused by name. Holds, charges and records like POST
/// /v1/generate/text.
#[utoipa::path(
    post, path = MESSAGES, tag = "anthropic",
    params(SdkHeaders, ("beta" = Option<String>, Query, description = "Accepted and ignored.")),
    responses(
        (status = 200, description = "The answer. With `stream` true: server-sent events, the last `message_stop` or `error`.",
            content((Object = "application/json"), (String = "text/event-stream"))),
    ),
)]
pub async fn create(
    auth: Authorized<GenerateText>,
    body: JsonBody<MessagesRequest>,
) -> Result<Response, ApiError> {
    let own = own_headers(&auth.headers);
    let reading = SdkRequest::new(Sdk::Anthropic, auth, MESSAGES, &[], body);
    let (call, body) = reading.await?;
    let reading =
        body.off_thread(|body| read(body, SURFACE, own, |MessagesRequest(dialogue)| dialogue));
    let MessagesRequest(dialogue) = reading.await?;
    Box::pin(call.answer(dialogue, MessagesWriter::new)).await
}

/// Returns the headers that belong to a body.
fn own_headers(headers: &HeaderMap) -> Vec<(&'static str, String)> {
    let names = ["anthropic-beta", "anthropic-version"].into_iter();
    let found = names.filter_map(|name| {
        let values = headers.get_all(name).iter();
        let values: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
        (!values.is_empty()).then(|| (name, values.join(",")))
    });
    found.collect()
}

/// Count tokens
///
/// Returns the provider's count, or an estimate of one token per four bytes if the provider cannot
/// count or does not answer in time. Free.
#[utoipa::path(
    post, path = "/anthropic/v1/messages/count_tokens", tag = "anthropic",
    params(("beta" = Option<String>, Query, description = "Accepted and ignored.")),
    responses((status = 200, description = "The input tokens", body = Object)),
)]
pub async fn count_tokens(
    auth: Authorized<CountTokens>,
    body: JsonBody<CountRequest>,
) -> Result<Json<Value>, ApiError> {
    let own = own_headers(&auth.headers);
    let reading =
        body.off_thread(|body| read(body, SURFACE, own, |CountRequest(dialogue)| dialogue));
    let CountRequest(dialogue) = reading.await?;
    let counting = auth.service.count_tokens(&auth.caller, dialogue);
    Ok(Json(json!({"input_tokens": counting.await?})))
}

/// List models
///
/// The text models of this server.
#[utoipa::path(
    get, path = "/anthropic/v1/models", tag = "anthropic",
    responses((status = 200, description = "The models", body = Object)),
)]
pub async fn list(
    auth: Authorized<AnyToken>,
    Query(asked): Query<ModelPage>,
) -> Result<Json<Value>, ApiError> {
    let all: Vec<_> = models(&auth.state, Modality::Text).collect();
    let limit = asked.limit.unwrap_or(all.len());
    let place = |name: &Option<String>| {
        let name = name.as_ref()?;
        all.iter().position(|model| model.name() == *name)
    };
    let begin = place(&asked.after).map_or(0, |at| at + 1);
    let end = place(&asked.before).unwrap_or(all.len()).max(begin);
    // The page begins or ends next to the named model.
    let (begin, end) = match (&asked.after, &asked.before) {
        (None, Some(_)) => (end.saturating_sub(limit).max(begin), end),
        _ => (begin, end.min(begin.saturating_add(limit))),
    };
    let has_more = match (&asked.after, &asked.before) {
        (None, Some(_)) => begin > 0,
        _ => end < all.len(),
    };
    let page = &all[begin..end];
    let id = |model: &&Model| model.name();
    Ok(Json(json!({
        "data": page.iter().filter_map(|model| model_body(model)).collect::<Vec<_>>(),
        "has_more": has_more,
        "first_id": page.first().map(id),
        "last_id": page.last().map(id),
    })))
}

/// Look up a model
#[utoipa::path(
    get, path = "/anthropic/v1/models/{id}", tag = "anthropic",
    params(
        ("id" = String, Path, description = "`provider/model`, or just `model`; a slash in it is written %2F"),
        ("beta" = Option<String>, Query, description = "Accepted and ignored."),
    ),
    responses((status = 200, description = "The model", body = Object)),
)]
pub async fn get(
    auth: Authorized<AnyToken>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let model = named(&auth.state, &auth.caller, path, &[Modality::Text])?;
    model_body(model).map(Json).ok_or_else(no_model)
}

/// Answers the request with which agents check whether the server is reachable.
pub async fn hello() -> Json<Value> {
    Json(json!({"message": "hello"}))
}
