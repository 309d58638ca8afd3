//! Generations: lookup, history, cancel, delete.

use axum::response::Response;
use http::{StatusCode, header};
use serde_json::json;

use super::{
    ApiState,
    body::EmptyBody,
    error::ApiError,
    extract::{Authorized, FromPath as _, NoQuery, OfTheType, PathId, Query, ReadHistory},
    generate::POLL_SECONDS,
    prefer::Prefer,
    record::{self, GenerationRecord, GenerationSummary, PageBody},
};
use crate::{
    domain::{
        generation::Generation,
        ids::{ApiKeyId, GenerationId},
        page::PageRequest,
        validate::{FieldCode, Fields, Input, Parsed, parsed, query_timestamp, text, words},
    },
    store::history::{CallerFilter, HistoryFilter},
};

const CALLER: Parsed<CallerFilter> = parsed(
    || json!({"type": "string", "pattern": "^(none|[0-9]{1,18})$"}),
    |text| {
        if text == "none" {
            return Ok(CallerFilter::Session);
        }
        let id = ApiKeyId::from_path(text).map(CallerFilter::Key);
        id.ok_or((
            FieldCode::InvalidFormat,
            "must be a key's id, or none".into(),
        ))
    },
);

impl Input for (HistoryFilter, PageRequest) {
    fn read(fields: &Fields<'_>) -> Option<Self> {
        let time = |name, about| fields.optional(name, about, query_timestamp());
        let filter = HistoryFilter {
            modality: fields.optional("type", "Modality", words()),
            status: fields.optional("status", "Where they stand", words()),
            provider: fields.optional("provider", "Provider name", text(usize::MAX)),
            model: fields.optional("model", "Model id", text(usize::MAX)),
            caller: fields.optional("api_key", "The key's id; `none` for sessions", CALLER),
            created_after: time("created_after", "RFC 3339, inclusive"),
            created_before: time("created_before", "RFC 3339, exclusive"),
            prompt: fields.optional("prompt", "Text in the prompt, in any case", text(200)),
            request_id: fields.optional(
                "request_id",
                "The `X-Request-Id` of the request that created them",
                text(usize::MAX),
            ),
            provider_request_id: fields.optional(
                "provider_request_id",
                "The provider's id of the request, also of an earlier attempt, before a fallback",
                text(usize::MAX),
            ),
        };
        Some((filter, PageRequest::read(fields, b'g')))
    }
}

/// Look up a generation
///
/// With `Prefer: wait=N` the response is sent when the generation has ended, at the latest after N
/// seconds.
#[utoipa::path(
    get, path = "/v1/generate/{uuid}", tag = "generations",
    params(("Prefer" = Option<String>, Header, description = "`wait=N`, 1 to 60 seconds")),
    responses((status = 200, description = "The generation; `Retry-After` while it is unfinished", body = GenerationRecord)),
)]
pub async fn lookup(
    auth: Authorized<ReadHistory>,
    PathId(id): PathId<GenerationId>,
    _query: NoQuery,
) -> Result<Response, ApiError> {
    let wait = Prefer::read(&auth.headers).wait;
    let (timeout, waiting) = (wait.unwrap_or_default(), || auth.permit.release());
    let service = &auth.service;
    let finding = service.generation_within(&auth.caller, id, timeout, waiting);
    let (found, waited) = finding.await?;
    let mut response = current(&auth.state, found);
    if let Some(applied) = wait.filter(|_| waited).and_then(Prefer::applied_wait) {
        response.headers_mut().insert("preference-applied", applied);
    }
    Ok(response)
}

/// List generations
///
/// Newest first. New generations do not shift pages.
///
/// `prompt` searches the first 2,000 characters of each prompt without case; `request_id` and
/// `provider_request_id` must match exactly. With one of these a page searches at most 10,000
/// generations: it can have fewer than `per_page` rows, or none, and still a `next_cursor`, with
/// which the search continues.
#[utoipa::path(
    get, path = "/v1/generate/history", tag = "generations",
    responses((status = 200, description = "A page of generations", body = PageBody<GenerationSummary>)),
)]
pub async fn history(
    auth: Authorized<ReadHistory>,
    Query((filter, page)): Query<(HistoryFilter, PageRequest)>,
) -> Result<Response, ApiError> {
    let account = auth.caller.account_id;
    let found = auth.service.history(account, &filter, &page).await?;
    Ok(record::page(found, &auth.uri, |g| {
        GenerationSummary::of(g, auth.links())
    }))
}

/// Cancel a generation
///
/// Ends unfinished work as failed with code `cancelled`; the hold is released.
///
/// A streamed text that was partly delivered is completed, with the text so far and
/// `metadata.finish_reason` `cancelled`. Its delivery stops at once. If the model may reason
/// without showing it, the provider bills that too: its response is read to its end, without being
/// delivered, and its token counts determine the charge. Otherwise the provider's call is ended,
/// and missing counts are estimated from the delivered bytes. The charge never exceeds the hold.
///
/// The response waits up to 10 s for the end. After that it has the current record, with status
/// processing and `Retry-After`: look it up later. Needs the ability of the generation's type.
#[utoipa::path(
    post, path = "/v1/generate/{uuid}/cancel", tag = "generations",
    responses((status = 200, description = "The cancelled generation; `Retry-After` while it is unfinished", body = GenerationRecord)),
)]
pub async fn cancel(
    auth: Authorized<OfTheType>,
    PathId(id): PathId<GenerationId>,
    query: Result<NoQuery, ApiError>,
    body: Result<EmptyBody, ApiError>,
) -> Result<Response, ApiError> {
    check_input(&auth, id, query.and(body)).await?;
    let record = auth.service.cancel(&auth.caller, id).await?;
    Ok(current(&auth.state, record))
}

/// Fails for a wrong input, unless the generation does not exist or the caller lacks its ability,
/// which is reported first.
async fn check_input<T: Send>(
    auth: &Authorized<OfTheType>,
    id: GenerationId,
    input: Result<T, ApiError>,
) -> Result<(), ApiError> {
    if let Err(error) = input {
        auth.service.changeable_generation(&auth.caller, id).await?;
        return Err(error);
    }
    Ok(())
}

/// The record as it is now, with `Retry-After` while it is unfinished.
fn current(state: &ApiState, record: Generation) -> Response {
    let is_finished = record.status.is_finished();
    let mut response = record::answer(record, state.links());
    if !is_finished {
        let seconds = POLL_SECONDS.into();
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    response
}

/// Delete a generation
///
/// Permanently removes the prompt and the result of a finished generation; the ledger keeps its
/// numbers. Needs the ability of the generation's type.
#[utoipa::path(
    delete, path = "/v1/generate/{uuid}", tag = "generations",
    responses((status = 204, description = "Deleted")),
)]
pub async fn delete(
    auth: Authorized<OfTheType>,
    PathId(id): PathId<GenerationId>,
    query: Result<NoQuery, ApiError>,
) -> Result<StatusCode, ApiError> {
    check_input(&auth, id, query).await?;
    auth.service.delete(&auth.caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
