//! API keys: create, list, look up, revoke.

use axum::{Json, extract::State, response::Response};
use chrono::{DateTime, Utc};
use http::{StatusCode, Uri};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    ApiState,
    body::JsonBody,
    error::ApiError,
    extract::{Authorized, Manage, NoQuery, PathId, Query, SubmittedForm},
    record::{self, PageBody},
};
use crate::{
    domain::{
        ability::Abilities, clock::rfc3339, credits::Credits, ids::ApiKeyId, page::PageOf,
        request::KeyRequest, spend::SpendPeriod,
    },
    service::forms::Created,
    store::keys::{ApiKeyRecord, KEYS_CURSOR},
};

/// An API key, without the key itself.
#[derive(Debug, Serialize, ToSchema)]
pub struct KeyBody {
    /// Its id.
    pub id: ApiKeyId,
    /// Its label.
    pub name: String,
    /// First and last characters of the key.
    #[schema(example = "svc_a1B2...9zYx")]
    pub key_hint: String,
    /// The abilities of the key.
    pub abilities: Abilities,
    /// Requests per minute.
    pub rate_limit_per_minute: u32,
    /// When it expires; null: never.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub expires_at: Option<DateTime<Utc>>,
    /// The maximum that it may spend in each period; null: only the balance limits it.
    #[schema(required, nullable)]
    pub spend_limit: Option<Credits>,
    /// The period of the limit, in UTC; null: the limit is for all time.
    #[schema(required, nullable)]
    pub spend_period: Option<SpendPeriod>,
    /// Its spending in the current period: charged credits, and holds of running work.
    pub spent: Credits,
    /// When it was last used; may lag by 60 s.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub last_used_at: Option<DateTime<Utc>>,
    /// When it was revoked.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub revoked_at: Option<DateTime<Utc>>,
    /// When it was created.
    #[serde(serialize_with = "rfc3339")]
    pub created_at: DateTime<Utc>,
}

/// A key that was just created.
#[derive(Debug, Serialize, ToSchema)]
pub struct NewKeyBody {
    /// The full key. Only this answer has it.
    #[schema(example = "svc_...")]
    pub key: String,
    /// The record.
    #[serde(flatten)]
    pub record: KeyBody,
}

impl NewKeyBody {
    /// The body for a key that was just created.
    pub fn new(record: ApiKeyRecord, secret: &SecretString) -> Self {
        Self {
            key: secret.expose_secret().to_owned(),
            record: record.into(),
        }
    }
}

impl From<ApiKeyRecord> for KeyBody {
    fn from(key: ApiKeyRecord) -> Self {
        Self {
            id: key.id,
            name: key.name,
            key_hint: key.key_hint,
            abilities: key.abilities,
            rate_limit_per_minute: key.rate_limit_per_minute.unsigned_abs(),
            expires_at: key.expires_at,
            spend_limit: key.spend_limit,
            spend_period: key.spend_period,
            spent: key.spent,
            last_used_at: key.last_used_at,
            revoked_at: key.revoked_at,
            created_at: key.created_at,
        }
    }
}

/// Create an API key
///
/// Only this answer has the full key. A key with a `spend_limit` cannot create keys (403
/// `session_required`), which would evade its limit.
#[utoipa::path(
    post, path = "/v1/api-keys", tag = "api-keys",
    responses((status = 201, description = "The key", body = NewKeyBody)),
)]
pub async fn create(
    State(state): State<ApiState>,
    auth: Authorized<Manage>,
    SubmittedForm(form): SubmittedForm,
    body: JsonBody<KeyRequest>,
) -> Result<Response, ApiError> {
    let request = body.read_as(|request| state.service.key_violations(request))?;
    let caller = &auth.caller;
    let service = &state.service;
    let (key, secret) = match form {
        Some(form) => service.create_key_by_form(caller, &request, &form).await?,
        None => {
            let made = service.create_key(caller.account_id, &request, Some(caller));
            let (key, secret) = made.await?;
            (Created::Now(key), secret)
        }
    };
    let body = key.map(|key| NewKeyBody::new(key, &secret));
    Ok(record::created(body, StatusCode::CREATED))
}

/// List API keys
#[utoipa::path(
    get, path = "/v1/api-keys", tag = "api-keys",
    responses((status = 200, description = "A page of keys, newest first", body = PageBody<KeyBody>)),
)]
pub async fn list(
    State(state): State<ApiState>,
    auth: Authorized<Manage>,
    query: Query<PageOf<KEYS_CURSOR>>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let PageOf(page) = query.read()?;
    let found = state.service.keys(&auth.caller, &page).await?;
    Ok(record::page(found, &uri, KeyBody::from))
}

/// Look up an API key
#[utoipa::path(
    get, path = "/v1/api-keys/{id}", tag = "api-keys",
    params(("id" = i64, Path, description = "The key's id")),
    responses((status = 200, description = "The key", body = KeyBody)),
)]
pub async fn get(
    State(state): State<ApiState>,
    auth: Authorized<Manage>,
    PathId(id): PathId<ApiKeyId>,
    _query: NoQuery,
) -> Result<Json<KeyBody>, ApiError> {
    Ok(Json(state.service.key(&auth.caller, id).await?.into()))
}

/// Revoke an API key
///
/// Takes effect at once and permanently; running requests finish. A repetition returns the same answer.
#[utoipa::path(
    delete, path = "/v1/api-keys/{id}", tag = "api-keys",
    params(("id" = i64, Path, description = "The key's id")),
    responses((status = 200, description = "The revoked key", body = KeyBody)),
)]
pub async fn revoke(
    State(state): State<ApiState>,
    auth: Authorized<Manage>,
    PathId(id): PathId<ApiKeyId>,
    _query: NoQuery,
) -> Result<Json<KeyBody>, ApiError> {
    Ok(Json(
        state.service.revoke_key(&auth.caller, id).await?.into(),
    ))
}
