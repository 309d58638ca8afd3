//! API keys: create, list, look up, revoke.

use axum::{Json, response::Response};
use http::StatusCode;
use secrecy::ExposeSecret as _;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    body::JsonBody,
    error::ApiError,
    extract::{Authorized, Manage, NoQuery, PathId, Query},
    record::{self, PageBody},
};
use crate::{
    domain::{ids::ApiKeyId, page::PageOf},
    request::KeyRequest,
    service::resources::Created,
    store::keys::{ApiKeyRecord, KEYS_CURSOR},
};

/// A key that was just created.
#[derive(Debug, Serialize, ToSchema)]
pub struct NewKeyBody {
    /// The full key. Only this response has it.
    #[schema(example = "svc_...")]
    pub key: String,
    /// The record.
    #[serde(flatten)]
    pub record: ApiKeyRecord,
}

/// Create an API key
///
/// Only this response has the full key. A key with a `spend_limit` cannot create keys, which would
/// evade its limit (403 `session_required`).
#[utoipa::path(
    post, path = "/v1/api-keys", tag = "api-keys",
    responses((status = 201, description = "The key", body = NewKeyBody)),
)]
pub async fn create(
    auth: Authorized<Manage>,
    body: JsonBody<KeyRequest>,
) -> Result<Response, ApiError> {
    let request = body.read_as(|request| auth.service.key_violations(request))?;
    let caller = &auth.caller;
    let service = &auth.service;
    let (created, secret) = match &auth.form {
        Some(form) => service.create_key_by_form(caller, &request, form).await?,
        None => {
            let made = service.create_key(caller.account_id, &request, Some(caller));
            let (record, secret) = made.await?;
            (Created::Now(record), secret)
        }
    };
    let key = secret.expose_secret().to_owned();
    let body = created.map(|record| NewKeyBody { key, record });
    Ok(record::created(body, StatusCode::CREATED))
}

/// List API keys
#[utoipa::path(
    get, path = "/v1/api-keys", tag = "api-keys",
    responses((status = 200, description = "A page of keys, newest first", body = PageBody<ApiKeyRecord>)),
)]
pub async fn list(
    auth: Authorized<Manage>,
    Query(PageOf(page)): Query<PageOf<KEYS_CURSOR>>,
) -> Result<Response, ApiError> {
    let (store, now) = (auth.service.store(), auth.service.now());
    let found = store.keys(auth.caller.account_id, &page, now).await?;
    Ok(record::page(found, &auth.uri, |key| key))
}

/// Look up an API key
#[utoipa::path(
    get, path = "/v1/api-keys/{id}", tag = "api-keys",
    responses((status = 200, description = "The key", body = ApiKeyRecord)),
)]
pub async fn get(
    auth: Authorized<Manage>,
    PathId(id): PathId<ApiKeyId>,
    _query: NoQuery,
) -> Result<Json<ApiKeyRecord>, ApiError> {
    Ok(Json(auth.service.key(&auth.caller, id).await?))
}

/// Revoke an API key
///
/// Takes effect at once and cannot be undone; running requests finish. Idempotent.
#[utoipa::path(
    delete, path = "/v1/api-keys/{id}", tag = "api-keys",
    responses((status = 200, description = "The revoked key", body = ApiKeyRecord)),
)]
pub async fn revoke(
    auth: Authorized<Manage>,
    PathId(id): PathId<ApiKeyId>,
    _query: NoQuery,
) -> Result<Json<ApiKeyRecord>, ApiError> {
    let account = auth.caller.account_id;
    Ok(Json(auth.service.revoke_key(account, id).await?))
}
