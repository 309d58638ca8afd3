//! /openai/v1: Chat Completions, and the models in its dialect.

use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
};
use serde_json::{Value, json};

use super::{
    SdkHeaders, SdkRequest,
    dialogue_body::DialogueBody,
    idempotent, no_model, not_found,
    references::resolve,
    responses::{RENAMED, is_mixed, read as read_responses},
    with_lifecycle,
};
use crate::{
    api::{
        ApiState,
        body::JsonBody,
        context::Sdk,
        error::ApiError,
        extract::{AnyToken, Authorized, GenerateText, Incoming, NoQuery},
    },
    domain::{
        catalogue::Model,
        dialect::{
            chat::{ChatRequest, ChatWriter},
            responses::ResponsesRequest,
        },
        generation::{Modality, Surface},
        request::DialogueRequest,
        route::{PROVIDER, route_name},
        validate::FieldCode,
    },
    service::ServiceError,
};

const CHAT: &str = "/openai/v1/chat/completions";
/// What the `openai` packages can generate here.
const SERVED: [Modality; 3] = [Modality::Text, Modality::Image, Modality::Audio];

fn model_body(model: &Model) -> Value {
    let body = json!({
        "id": model.name(),
        "object": "model",
        // Unknown.
        "created": 0,
        "owned_by": model.provider,
        "type": model.modality(),
    });
    with_lifecycle(body, model)
}

/// Chat Completions
///
/// For the `openai` packages, with `base_url` `/openai/v1` of this server. Dialogues with tools;
/// every other field is refused by name. Held, charged and recorded as by POST /v1/generate/text;
/// without a limit it may write what the account can pay for.
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
    mut incoming: Incoming<GenerateText>,
    body: JsonBody<ChatRequest>,
) -> Result<Response, ApiError> {
    let (key, mut body) = idempotent(&incoming, CHAT, body).await?;
    let (request, names) = match is_mixed(body.members_mut()) {
        None => (body.apart(read).await?, None),
        Some(include_usage) => {
            let body = body.of_another::<ResponsesRequest>();
            let body = resolve(&incoming.state, &mut incoming.auth.caller, body).await?;
            let read = body.apart(read_responses).await?;
            if !read.echo.shown.tools.is_empty() {
                let message = "has tools whose calls a chat has no form for";
                let code = FieldCode::NotSupported;
                return Err(ServiceError::field("tools", code, message).into());
            }
            let dialogue = DialogueRequest {
                surface: Surface::OpenAiChat,
                original: None,
                ..read.dialogue
            };
            let request = ChatRequest {
                dialogue,
                include_usage,
            };
            (request, Some(RENAMED))
        }
    };
    let call = SdkRequest::new(Sdk::OpenAi, incoming, key, names.unwrap_or_default());
    let writer = |head| ChatWriter::new(head, request.include_usage);
    Box::pin(call.answer(request.dialogue, writer)).await
}

/// Reads a body, and keeps it as it was sent.
fn read(mut body: JsonBody<ChatRequest>) -> Result<ChatRequest, ApiError> {
    let sent = DialogueBody::new(&mut body, Surface::OpenAiChat, Vec::new());
    let mut request = body.read()?;
    sent.attach_to(&mut request.dialogue);
    Ok(request)
}

/// List models
///
/// The models of this server that these routes take, text first. Beyond OpenAI's members, each has
/// its `type` (text, image or audio), and `models` repeats `data` for clients that read that.
#[utoipa::path(
    get, path = "/openai/v1/models", tag = "openai",
    responses((status = 200, description = "The models", body = Object)),
)]
pub async fn list(
    State(state): State<ApiState>,
    _auth: Authorized<AnyToken>,
    _query: NoQuery,
) -> Json<Value> {
    let catalogue = state.service.catalogue();
    let of = |modality| {
        let models = catalogue.listed();
        models.filter(move |model| model.modality() == modality && !model.retired)
    };
    let data: Vec<Value> = SERVED.into_iter().flat_map(of).map(model_body).collect();
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
    State(state): State<ApiState>,
    auth: Authorized<AnyToken>,
    path: Result<Path<String>, PathRejection>,
    _query: NoQuery,
) -> Result<Json<Value>, ApiError> {
    let Path(name) = path.map_err(|_| no_model())?;
    let catalogue = state.service.catalogue();
    let route = route_name(&name).and_then(|name| catalogue.find_listed(PROVIDER, name));
    let mut refused = no_model();
    for modality in SERVED {
        let account = auth.caller.account_default(modality);
        match catalogue.named(modality, &name, &account) {
            Ok(model) => return Ok(Json(model_body(route.unwrap_or(model)))),
            Err(error) if error.code == FieldCode::ModelRetired => refused = not_found(error),
            Err(_) => {}
        }
    }
    Err(refused)
}
