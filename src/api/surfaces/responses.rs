//! POST /openai/v1/responses, without state, and the count of its tokens.

use std::collections::HashMap;

use axum::{Json, extract::State, response::Response};
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{Call, RequestId, Sdk, SdkHeaders, idempotent, renamed};
use crate::{
    api::{
        ApiState,
        admission::RequestPermit,
        body::JsonBody,
        error::ApiError,
        extract::{Authorized, CountTokens, GenerateText},
    },
    domain::{
        dialect::{
            Answer,
            responses::{
                InputTokensRequest, ResponseBody, ResponseEvent, ResponseInputTokens,
                ResponsesRequest, ResponsesWriter, referenced,
            },
        },
        generation::Surface,
        ids::GenerationId,
        receipt::Prefixes,
        validate::{FieldCode, FieldError},
    },
    service::{ServiceError, auth::Caller},
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
            content((ResponseBody = "application/json"), (ResponseEvent = "text/event-stream"))),
    ),
)]
pub async fn respond(
    State(state): State<ApiState>,
    mut auth: Authorized<GenerateText>,
    headers: HeaderMap,
    permit: RequestPermit,
    request_id: RequestId,
    body: JsonBody<ResponsesRequest>,
) -> Result<Response, ApiError> {
    let (key, mut body) = idempotent(&auth, headers, RESPONSES, body).await?;
    bring_back(&state, &mut auth.caller, body.members_mut()).await?;
    let ResponsesRequest { dialogue, echo } = body.apart(read).await?;
    let call = Call {
        sdk: Sdk::OpenAi,
        state,
        caller: auth.caller,
        permit,
        request_id,
        key,
        names: RENAMED,
    };
    let writer = |head| ResponsesWriter::new(head, echo);
    Box::pin(call.answer(dialogue, writer)).await
}

/// Reads a body in which all items are there.
pub(super) fn read(body: JsonBody<ResponsesRequest>) -> Result<ResponsesRequest, ApiError> {
    let prefixes = Prefixes::of(Surface::OpenAiResponses, body.members(), &[]);
    let mut request = body.read()?;
    request.dialogue.prefixes = prefixes;
    Ok(request)
}

/// Count the input tokens of a response
///
/// An upper bound: no provider is asked. Costs nothing.
#[utoipa::path(
    post, path = "/openai/v1/responses/input_tokens", tag = "openai",
    responses((status = 200, description = "The input tokens", body = ResponseInputTokens)),
)]
pub async fn input_tokens(
    State(state): State<ApiState>,
    mut auth: Authorized<CountTokens>,
    mut body: JsonBody<InputTokensRequest>,
) -> Result<Json<ResponseInputTokens>, ApiError> {
    bring_back(&state, &mut auth.caller, body.members_mut()).await?;
    let reading = body.apart(|body| {
        let prefixes = Prefixes::of(Surface::OpenAiResponses, body.members(), &[]);
        let InputTokensRequest(mut dialogue) = body.read()?;
        dialogue.prefixes = prefixes;
        Ok(dialogue)
    });
    let dialogue = reading.await?;
    let tokens = state.service.count_tokens(&auth.caller, &dialogue).await;
    let tokens = tokens.map_err(|error| renamed(error, RENAMED))?;
    Ok(Json(ResponseInputTokens::new(tokens)))
}

/// Items of earlier answers that an input may bring back, and of how many answers.
const MAX_BROUGHT: usize = 1_000;
const MAX_ANSWERS: usize = 64;

/// Puts the items of the account's own answers where an input refers to them by their ids, and
/// where it has reasoning without what its vendor signed.
pub(super) async fn bring_back(
    state: &ApiState,
    caller: &mut Caller,
    members: &mut Map<String, Value>,
) -> Result<(), ApiError> {
    let Some(Value::Array(items)) = members.get_mut("input") else {
        return Ok(());
    };
    let mut answers = HashMap::new();
    let (mut count, mut bytes) = (0, 0);
    for (at, item) in items.iter_mut().enumerate() {
        let is_reference = item["type"] == "item_reference";
        let is_bare = item["type"] == "reasoning" && item["encrypted_content"].is_null();
        if !is_reference && !is_bare {
            continue;
        }
        let id = item["id"].as_str().unwrap_or_default();
        let found = referenced(id).and_then(|(generation, place)| {
            Some((Uuid::try_parse(generation).ok()?, generation, place))
        });
        let mut brought = None;
        if let Some((uuid, generation, place)) = found {
            count += 1;
            let is_known = answers.contains_key(&uuid);
            if count > MAX_BROUGHT || !is_known && answers.len() == MAX_ANSWERS {
                if is_bare {
                    continue;
                }
                let message = format!(
                    "must bring back at most {MAX_BROUGHT} items, of at most {MAX_ANSWERS} answers"
                );
                let error = FieldError::new("input", FieldCode::OutOfRange, message);
                return Err(ServiceError::invalid(error).into());
            }
            if !is_known {
                *caller = state.service.confirmed(caller).await?;
                let found = answered(state, caller, GenerationId(uuid), generation).await?;
                answers.insert(uuid, found);
            }
            brought = answers[&uuid].get(place);
        }
        match brought.filter(|(brought, _)| brought["id"] == id) {
            Some((brought, length)) => {
                bytes += length;
                if bytes > state.settings.max_sdk_body_bytes {
                    return Err(ApiError::from_status(StatusCode::PAYLOAD_TOO_LARGE));
                }
                *item = brought.clone();
            }
            None if is_bare => {}
            None => {
                let message = "refers to no item of an answer of this account";
                let param = format!("input[{at}].id");
                let error = FieldError::new(param, FieldCode::NotAllowed, message);
                return Err(ServiceError::invalid(error).into());
            }
        }
    }
    Ok(())
}

/// The items of an answer, with their bytes; none of what is not there.
async fn answered(
    state: &ApiState,
    caller: &Caller,
    id: GenerationId,
    generation: &str,
) -> Result<Vec<(Value, usize)>, ApiError> {
    let answer = match state.service.generation(caller, id).await {
        Ok(found) => Answer::of(&found),
        Err(ServiceError::NotFound) => None,
        Err(error) => return Err(error.into()),
    };
    let items = answer.map_or_else(Vec::new, |answer| answer.response_items(generation));
    let items = items.into_iter();
    Ok(items
        .map(|item| {
            let length = item.to_string().len();
            (item, length)
        })
        .collect())
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
