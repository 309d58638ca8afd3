//! Generations after they were made: lookup, history, cancel, delete.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode, Uri, header};

use super::{
    ApiState,
    admission::RequestPermit,
    error::ApiError,
    extract::{AnyToken, Authorized, NoBody, NoQuery, PathId, Query, ReadHistory},
    generate::POLL_SECONDS,
    prefer::Prefer,
    record::{self, GenerationRecord, GenerationSummary, PageBody},
};
use crate::{
    domain::{
        generation::{Modality, Status},
        ids::GenerationId,
        page::PageRequest,
        validate::{FieldCode, Fields},
    },
    service::keys::time,
    store::history::HistoryFilter,
};

/// Look up a generation
///
/// With `Prefer: wait=N` the answer comes as soon as it is finished, at latest after N seconds.
#[utoipa::path(
    get, path = "/v1/generate/{uuid}", tag = "generations",
    params(
        ("uuid" = String, Path, description = "The generation's uuid"),
        ("Prefer" = Option<String>, Header, description = "`wait=N`, 1 to 60 seconds"),
    ),
    responses((status = 200, description = "The generation; `Retry-After` while it is unfinished", body = GenerationRecord)),
    security(("bearer" = [])), extensions(("x-required-ability" = json!("read:history")))
)]
pub async fn lookup(
    State(state): State<ApiState>,
    auth: Authorized<ReadHistory>,
    PathId(id): PathId<GenerationId>,
    _query: NoQuery,
    headers: HeaderMap,
    permit: RequestPermit,
) -> Result<Response, ApiError> {
    let wait = Prefer::read(&headers).wait;
    let found = state
        .service
        .generation_within(&auth.caller, id, wait.unwrap_or_default(), || {
            permit.release();
        })
        .await?;
    let mut response = Json(GenerationRecord::of(&found.generation, state.links())).into_response();
    let headers = response.headers_mut();
    if !found.generation.status.is_finished() {
        headers.insert(header::RETRY_AFTER, POLL_SECONDS.into());
    }
    if let Some(applied) = wait.filter(|_| found.waited).and_then(Prefer::applied_wait) {
        headers.insert("preference-applied", applied);
    }
    Ok(response)
}

/// List generations
///
/// Newest first; stable while new ones arrive.
#[utoipa::path(
    get, path = "/v1/generate/history", tag = "generations",
    params(
        ("type" = Option<Modality>, Query, description = "Modality"),
        ("status" = Option<Status>, Query, description = "Where they stand"),
        ("provider" = Option<String>, Query, description = "Provider name"),
        ("model" = Option<String>, Query, description = "Model id"),
        ("created_after" = Option<DateTime<Utc>>, Query, description = "RFC 3339, inclusive"),
        ("created_before" = Option<DateTime<Utc>>, Query, description = "RFC 3339, exclusive"),
        ("per_page" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Default 20"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
    ),
    responses((status = 200, description = "A page of generations", body = PageBody<GenerationSummary>)),
    security(("bearer" = [])), extensions(("x-required-ability" = json!("read:history")))
)]
pub async fn history(
    State(state): State<ApiState>,
    auth: Authorized<ReadHistory>,
    query: Query,
    uri: Uri,
) -> Result<Response, ApiError> {
    let (filter, page) = query.read(|fields| {
        let filter = HistoryFilter {
            modality: one_of(fields, "type", Modality::ALL, Modality::parse),
            status: one_of(fields, "status", Status::ALL, Status::parse),
            provider: fields.string("provider").map(str::to_owned),
            model: fields.string("model").map(str::to_owned),
            created_after: time(fields, "created_after"),
            created_before: time(fields, "created_before"),
        };
        (filter, PageRequest::read(fields, b'g'))
    })?;
    let found = state.service.history(&auth.caller, &filter, &page).await?;
    Ok(record::page(found, &uri, |g| {
        GenerationSummary::of(&g, state.links())
    }))
}

/// Cancel a generation
///
/// Ends unfinished work as failed with code `cancelled`; the hold is released. A text of which
/// pieces have been delivered ends completed, with the text so far and
/// `metadata.finish_reason` `cancelled`: it is charged for its input and what was delivered.
/// Needs the ability of the generation's type.
#[utoipa::path(
    post, path = "/v1/generate/{uuid}/cancel", tag = "generations",
    params(("uuid" = String, Path, description = "The generation's uuid")),
    responses((status = 200, description = "The cancelled generation", body = GenerationRecord)),
    security(("bearer" = [])), extensions(("x-required-ability" = json!("of the type")))
)]
pub async fn cancel(
    State(state): State<ApiState>,
    auth: Authorized<AnyToken>,
    PathId(id): PathId<GenerationId>,
    _query: NoQuery,
    _body: NoBody,
) -> Result<Json<GenerationRecord>, ApiError> {
    let record = state.service.cancel(&auth.caller, id).await?;
    Ok(Json(GenerationRecord::of(&record, state.links())))
}

/// Delete a generation
///
/// Removes the prompt and the result of a finished generation for good; the ledger keeps its
/// numbers. Needs the ability of the generation's type.
#[utoipa::path(
    delete, path = "/v1/generate/{uuid}", tag = "generations",
    params(("uuid" = String, Path, description = "The generation's uuid")),
    responses((status = 204, description = "Deleted")),
    security(("bearer" = [])), extensions(("x-required-ability" = json!("of the type")))
)]
pub async fn delete(
    State(state): State<ApiState>,
    auth: Authorized<AnyToken>,
    PathId(id): PathId<GenerationId>,
    _query: NoQuery,
) -> Result<StatusCode, ApiError> {
    state.service.delete(&auth.caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Reads a parameter that is one of a list of names.
pub fn one_of<T: Copy + std::fmt::Display>(
    fields: &Fields<'_>,
    name: &'static str,
    all: &[T],
    parse: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let text = fields.string(name)?;
    let value = parse(text);
    if value.is_none() {
        let names: Vec<String> = all.iter().map(ToString::to_string).collect();
        let message = format!("must be one of {}", names.join(", "));
        fields.error(name, FieldCode::NotAllowed, message);
    }
    value
}
