//! /openai/v1: Chat Completions, and models in OpenAI's format.

use axum::{
    Json,
    extract::{Path, rejection::PathRejection},
    response::Response,
};
use serde_json::{Value, json};

use super::{
    SdkHeaders, SdkRequest, dialogue_body, models, named,
    references::resolve,
    responses::{RENAMED, is_mixed, read as read_responses},
    with_lifecycle,
};
use crate::{
    api::{
        body::JsonBody,
        context::Sdk,
        error::ApiError,
        extract::{AnyToken, Authorized, GenerateText},
    },
    catalogue::Model,
    dialect::{
        chat::{ChatRequest, ChatWriter},
        responses::ResponsesRequest,
    },
    domain::{
        generation::{Modality, Surface},
        validate::FieldCode,
    },
    request::DialogueRequest,
    service::ServiceError,
};

const CHAT: &str = "/openai/v1/chat/completions";
/// The modalities of the `openai` packages' routes.
const SERVED: [Modality; 3] = [Modality::Text, Modality::Image, Modality::Audio];

fn model_body(model: &Model) -> Value {
    let body = json!({
        "id": model.name(),
        "object": "model",
        // The creation time is unknown.
        "created": 0,
        "owned_by": model.provider,
        "type": model.modality(),
    });
    with_lifecycle(body, model)
}

/// Chat Completions
///
/// For the `openai` packages, with `base_url` `/openai/v1` of this server. Supports dialogues with
/// tools; unsupported fields are refused by name. Holds, charges and records like POST
/// /v1/generate/text. Without a token limit, the account's credits limit the output.
#[utoipa::path(
    post, path = CHAT, tag = "openai", params(SdkHeaders),
    responses(
        (status = 200, description = "The answer. With `stream` true: server-sent events, the last `[DONE]`. \
            Beyond OpenAI's members, a message may have `reasoning_content` or `reasoning`, and a tool \
            call `extra_content.google.thought_signature`; send them back unchanged in the next turn.",
            content((Object = "application/json"), (String = "text/event-stream"))),
    ),
)]
pub async fn chat(
    auth: Authorized<GenerateText>,
    body: JsonBody<ChatRequest>,
) -> Result<Response, ApiError> {
    let reading = SdkRequest::new(Sdk::OpenAi, auth, CHAT, &[], body);
    let (mut call, mut body) = reading.await?;
    let request = match is_mixed(&mut body.members) {
        None => body.off_thread(read).await?,
        Some(include_usage) => {
            call.names = RENAMED;
            let body = body.of_another::<ResponsesRequest>();
            let body = resolve(&call.state, &mut call.caller, body).await?;
            let read = body.off_thread(read_responses).await?;
            let Some(custom) = read.echo.shown.custom_names() else {
                let message = "has a namespace; send it to /openai/v1/responses";
                let code = FieldCode::NotSupported;
                return Err(ServiceError::field("tools", code, message).into());
            };
            let dialogue = DialogueRequest {
                surface: Surface::OpenAiChat,
                original: None,
                ..read.dialogue
            };
            ChatRequest {
                dialogue,
                include_usage,
                custom,
            }
        }
    };
    let (include_usage, custom) = (request.include_usage, request.custom);
    let writer = |head| ChatWriter::new(head, include_usage, custom);
    Box::pin(call.answer(request.dialogue, writer)).await
}

/// Reads a body and keeps the original.
fn read(body: JsonBody<ChatRequest>) -> Result<ChatRequest, ApiError> {
    let surface = Surface::OpenAiChat;
    dialogue_body::read(body, surface, Vec::new(), |request| &mut request.dialogue)
}

/// List models
///
/// Returns the models that these routes accept, text first. In addition to OpenAI's members, each
/// has its `type` (text, image or audio), and `models` repeats `data` for clients that read it.
/// Query parameters are ignored.
#[utoipa::path(
    get, path = "/openai/v1/models", tag = "openai",
    responses((status = 200, description = "The models", body = Object)),
)]
pub async fn list(auth: Authorized<AnyToken>) -> Json<Value> {
    let all = SERVED
        .into_iter()
        .flat_map(|modality| models(&auth.state, modality));
    let data: Vec<Value> = all.map(model_body).collect();
    Json(json!({"object": "list", "data": data, "models": data}))
}

/// Look up a model
#[utoipa::path(
    get, path = "/openai/v1/models/{id}", tag = "openai",
    params(
        ("id" = String, Path, description = "`provider/model`, or just `model`; a slash in it is written %2F"),
    ),
    responses((status = 200, description = "The model", body = Object)),
)]
pub async fn get(
    auth: Authorized<AnyToken>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let model = named(&auth.state, &auth.caller, path, &SERVED)?;
    Ok(Json(model_body(model)))
}
