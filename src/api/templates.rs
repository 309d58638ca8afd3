//! Prompt templates: create, list, look up, replace, delete.

use axum::{Json, response::Response};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    body::JsonBody,
    error::ApiError,
    extract::{Authorized, Manage, NoQuery, PathId, Query},
    record::{self, PageBody},
};
use crate::{
    domain::{ids::TemplateId, page::PageOf},
    request::{TemplatePreview, TemplateText},
    store::templates::{TEMPLATES_CURSOR, TemplateRecord},
};

/// Create a prompt template
#[utoipa::path(
    post, path = "/v1/templates", tag = "templates",
    responses((status = 201, description = "The template", body = TemplateRecord)),
)]
pub async fn create(
    auth: Authorized<Manage>,
    body: JsonBody<TemplateText>,
) -> Result<Response, ApiError> {
    let text = body.read()?;
    let service = &auth.service;
    let made = service.create_template(&auth.caller, &text, auth.form.as_ref());
    let body = made.await?;
    Ok(record::created(body, StatusCode::CREATED))
}

/// A rendered template.
#[derive(Debug, Serialize, ToSchema)]
pub struct PreviewBody {
    /// The prompt that would be sent.
    pub prompt: String,
    /// The system prompt that would be sent.
    #[schema(required, nullable)]
    pub system_prompt: Option<String>,
    /// The names that the template reads, without `prompt`, sorted.
    pub variables: Vec<String>,
}

/// Preview a prompt template
///
/// Renders a template as a generation would. The template need not be saved. Creates nothing.
#[utoipa::path(
    post, path = "/v1/templates/preview", tag = "templates",
    responses((status = 200, description = "What the template becomes", body = PreviewBody)),
)]
pub async fn preview(
    auth: Authorized<Manage>,
    body: JsonBody<TemplatePreview>,
) -> Result<Json<PreviewBody>, ApiError> {
    let preview = body.read()?;
    let variables = preview.text.variables.clone();
    let rendered = auth.service.preview_template(&auth.caller, preview).await?;
    Ok(Json(PreviewBody {
        prompt: rendered.prompt,
        system_prompt: rendered.system_prompt,
        variables,
    }))
}

/// List prompt templates
#[utoipa::path(
    get, path = "/v1/templates", tag = "templates",
    responses((status = 200, description = "A page of templates, newest first", body = PageBody<TemplateRecord>)),
)]
pub async fn list(
    auth: Authorized<Manage>,
    Query(PageOf(page)): Query<PageOf<TEMPLATES_CURSOR>>,
) -> Result<Response, ApiError> {
    let store = auth.service.store();
    let found = store.templates(auth.caller.account_id, &page).await?;
    Ok(record::page(found, &auth.uri, |template| template))
}

/// Look up a prompt template
#[utoipa::path(
    get, path = "/v1/templates/{id}", tag = "templates",
    responses((status = 200, description = "The template", body = TemplateRecord)),
)]
pub async fn get(
    auth: Authorized<Manage>,
    PathId(id): PathId<TemplateId>,
    _query: NoQuery,
) -> Result<Json<TemplateRecord>, ApiError> {
    Ok(Json(auth.service.template(&auth.caller, id).await?))
}

/// Replace a prompt template
///
/// Creates a new version from all fields of the body. Generations keep the version that they used.
#[utoipa::path(
    put, path = "/v1/templates/{id}", tag = "templates",
    responses((status = 200, description = "The new version", body = TemplateRecord)),
)]
pub async fn replace(
    auth: Authorized<Manage>,
    PathId(id): PathId<TemplateId>,
    body: JsonBody<TemplateText>,
) -> Result<Response, ApiError> {
    let text = body.read()?;
    let service = &auth.service;
    let made = service.replace_template(&auth.caller, id, &text, auth.form.as_ref());
    let body = made.await?;
    Ok(record::created(body, StatusCode::OK))
}

/// Delete a prompt template
///
/// Deletes all its versions. Generations that used it remain.
#[utoipa::path(
    delete, path = "/v1/templates/{id}", tag = "templates",
    responses((status = 204, description = "Deleted")),
)]
pub async fn delete(
    auth: Authorized<Manage>,
    PathId(id): PathId<TemplateId>,
    _query: NoQuery,
) -> Result<StatusCode, ApiError> {
    auth.service.delete_template(&auth.caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
