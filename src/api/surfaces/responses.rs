//! POST /openai/v1/responses, without state, and the count of its tokens.

use axum::{Json, extract::State, response::Response};
use serde_json::{Map, Value, json};

use super::{
    SdkHeaders, SdkRequest, dialogue_body::DialogueBody, idempotent, references::resolve, renamed,
};
use crate::{
    api::{
        ApiState,
        body::JsonBody,
        context::Sdk,
        error::ApiError,
        extract::{Authorized, CountTokens, GenerateText, Incoming},
    },
    domain::{
        dialect::responses::{InputTokensRequest, ResponsesRequest, ResponsesWriter},
        generation::Surface,
    },
};

const RESPONSES: &str = "/openai/v1/responses";
/// Fields that chat has under other names.
pub(super) const RENAMED: &[(&str, &str)] =
    &[("messages", "input"), ("response_format", "text.format")];

/// Responses
///
/// For the `openai` packages. Nothing is kept for later requests but the record of the generation;
/// items of its answer can be brought back by their ids. Held, charged and recorded as by POST
/// /v1/generate/text; without a limit it may write what the account can pay for.
#[utoipa::path(
    post, path = RESPONSES, tag = "openai", params(SdkHeaders),
    responses(
        (status = 200, description = "The answer. With `stream` true: server-sent events.",
            content((Object = "application/json"), (String = "text/event-stream"))),
    ),
)]
pub async fn respond(
    mut incoming: Incoming<GenerateText>,
    body: JsonBody<ResponsesRequest>,
) -> Result<Response, ApiError> {
    let (key, body) = idempotent(&incoming, RESPONSES, body).await?;
    let body = resolve(&incoming.state, &mut incoming.auth.caller, body).await?;
    let ResponsesRequest { dialogue, echo } = body.apart(read).await?;
    let call = SdkRequest::new(Sdk::OpenAi, incoming, key, RENAMED);
    let writer = |head| ResponsesWriter::new(head, echo);
    Box::pin(call.answer(dialogue, writer)).await
}

/// Reads a body in which all items are there.
pub(super) fn read(mut body: JsonBody<ResponsesRequest>) -> Result<ResponsesRequest, ApiError> {
    let sent = DialogueBody::new(&mut body, Surface::OpenAiResponses, Vec::new());
    let mut request = body.read()?;
    sent.attach_to(&mut request.dialogue);
    Ok(request)
}

/// Count the input tokens of a response
///
/// Returns an upper bound. Asks the provider only if the dialogue has documents. Free.
#[utoipa::path(
    post, path = "/openai/v1/responses/input_tokens", tag = "openai",
    responses((status = 200, description = "The input tokens", body = Object)),
)]
pub async fn input_tokens(
    State(state): State<ApiState>,
    mut auth: Authorized<CountTokens>,
    body: JsonBody<InputTokensRequest>,
) -> Result<Json<Value>, ApiError> {
    let body = resolve(&state, &mut auth.caller, body).await?;
    let reading = body.apart(|mut body| {
        let sent = DialogueBody::new(&mut body, Surface::OpenAiResponses, Vec::new());
        let InputTokensRequest(mut dialogue) = body.read()?;
        sent.attach_to(&mut dialogue);
        Ok(dialogue)
    });
    let dialogue = reading.await?;
    let tokens = state.service.count_tokens(&auth.caller, dialogue).await;
    let tokens = tokens.map_err(|error| renamed(error, RENAMED))?;
    Ok(Json(
        json!({"object": "response.input_tokens", "input_tokens": tokens}),
    ))
}

/// Whether a body is one of Responses that was sent for a chat, as an editor does, and whether a
/// stream of its answer ends with the usage.
pub(super) fn is_mixed(members: &mut Map<String, Value>) -> Option<bool> {
    let mixed = members.contains_key("input") && !members.contains_key("messages");
    mixed.then(|| {
        let options = members.shift_remove("stream_options");
        options.is_some_and(|options| options["include_usage"] == json!(true))
    })
}
