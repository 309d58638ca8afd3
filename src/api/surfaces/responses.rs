//! POST /openai/v1/responses, without state, and its token count.

use axum::{Json, response::Response};
use serde_json::{Map, Value, json};

use super::{
    SdkHeaders, SdkRequest, dialogue_body::read as read_dialogue, references::resolve, renamed,
};
use crate::{
    api::{
        body::JsonBody,
        context::Sdk,
        error::ApiError,
        extract::{Authorized, CountTokens, GenerateText},
    },
    dialect::responses::{InputTokensRequest, ResponsesRequest, ResponsesWriter},
    domain::generation::Surface,
};

const RESPONSES: &str = "/openai/v1/responses";
/// Fields whose names in chat differ.
pub(super) const RENAMED: &[(&str, &str)] =
    &[("messages", "input"), ("response_format", "text.format")];

/// Responses
///
/// For the `openai` packages. Only the record of the generation is stored for later requests; they
/// can refer to items of its answer by id. Holds, charges and records like POST /v1/generate/text.
/// Without a token limit, the account's credits limit the output.
#[utoipa::path(
    post, path = RESPONSES, tag = "openai", params(SdkHeaders),
    responses(
        (status = 200, description = "The answer. With `stream` true: server-sent events.",
            content((Object = "application/json"), (String = "text/event-stream"))),
    ),
)]
pub async fn respond(
    auth: Authorized<GenerateText>,
    body: JsonBody<ResponsesRequest>,
) -> Result<Response, ApiError> {
    let reading = SdkRequest::new(Sdk::OpenAi, auth, RESPONSES, RENAMED, body);
    let (mut call, body) = reading.await?;
    let body = resolve(&call.state, &mut call.caller, body).await?;
    let ResponsesRequest { dialogue, echo } = body.off_thread(read).await?;
    let writer = |head| ResponsesWriter::new(head, echo);
    Box::pin(call.answer(dialogue, writer)).await
}

/// Reads a body whose references are resolved.
pub(super) fn read(body: JsonBody<ResponsesRequest>) -> Result<ResponsesRequest, ApiError> {
    let surface = Surface::OpenAiResponses;
    read_dialogue(body, surface, Vec::new(), |request| &mut request.dialogue)
}

/// Count the input tokens of a response
///
/// Returns the provider's count, or an estimate of one token per four bytes if the provider cannot
/// count or does not answer in time. Free.
#[utoipa::path(
    post, path = "/openai/v1/responses/input_tokens", tag = "openai",
    responses((status = 200, description = "The input tokens", body = Object)),
)]
pub async fn input_tokens(
    mut auth: Authorized<CountTokens>,
    body: JsonBody<InputTokensRequest>,
) -> Result<Json<Value>, ApiError> {
    let body = resolve(&auth.state, &mut auth.caller, body).await?;
    let reading = body.off_thread(|body| {
        let surface = Surface::OpenAiResponses;
        read_dialogue(body, surface, Vec::new(), |request| &mut request.0)
    });
    let InputTokensRequest(dialogue) = reading.await?;
    let service = &auth.service;
    let tokens = service.count_tokens(&auth.caller, dialogue).await;
    let tokens = tokens.map_err(|error| renamed(error, RENAMED))?;
    Ok(Json(
        json!({"object": "response.input_tokens", "input_tokens": tokens}),
    ))
}

/// Returns whether the stream of an answer ends with the usage, if the body is one of Responses
/// that was sent to Chat Completions, as one editor does; `None` for other bodies.
pub(super) fn is_mixed(members: &mut Map<String, Value>) -> Option<bool> {
    let mixed = members.contains_key("input") && !members.contains_key("messages");
    mixed.then(|| {
        let options = members.shift_remove("stream_options");
        options.is_some_and(|options| options["include_usage"] == json!(true))
    })
}
