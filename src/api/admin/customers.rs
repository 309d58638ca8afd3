//! Operators' changes to an account and its keys and webhooks.

use axum::{Json, extract::State};
use http::StatusCode;

use super::Operator;
use crate::{
    api::{
        ApiState,
        body::{EmptyBody, JsonBody},
        error::ApiError,
        extract::{NoQuery, PathId, PathIds},
    },
    domain::{
        ids::{AccountId, ApiKeyId, WebhookDeliveryId},
        request::{AccountUpdate, KeyRequest},
    },
    store::{accounts::AccountRecord, deliveries::DeliveryRecord, keys::ApiKeyRecord},
};

/// Change an account's email or name
///
/// An email that belongs to another user is `not_allowed`. Sessions and keys stay valid.
#[utoipa::path(
    patch, path = "/v1/admin/accounts/{id}", tag = "admin",
    responses((status = 200, description = "The account", body = AccountRecord)),
)]
pub async fn change(
    State(state): State<ApiState>,
    operator: Operator,
    PathId(id): PathId<AccountId>,
    body: JsonBody<AccountUpdate>,
) -> Result<Json<AccountRecord>, ApiError> {
    let change = body.read()?;
    // Before the change: a caller who hangs up must not leave it without a line.
    tracing::info!(%operator, account = %id, "changing an account");
    let account = state.service.update_account(id, &change).await?;
    Ok(Json(account))
}

/// Delete an account
///
/// Removes its users, sessions, templates and default models at once, revokes its keys and deletes
/// its webhooks. Prompts, results and files of its generations are removed in the background;
/// `erased_at` is set when none is left. Running work finishes and is charged. The ledger and the
/// counts and costs of generations are kept. This cannot be undone. An operator's account is
/// `not_allowed`. Repeating it answers the same.
#[utoipa::path(
    delete, path = "/v1/admin/accounts/{id}", tag = "admin",
    responses((status = 200, description = "The deleted account", body = AccountRecord)),
)]
pub async fn delete(
    State(state): State<ApiState>,
    operator: Operator,
    PathId(id): PathId<AccountId>,
    _query: NoQuery,
) -> Result<Json<AccountRecord>, ApiError> {
    tracing::info!(%operator, account = %id, "deleting an account");
    let account = state.service.delete_account(id).await?;
    Ok(Json(account))
}

/// Replace an API key's name, abilities and limits
///
/// Omitted fields get their defaults, as in a new key. Earlier spending of the key counts toward
/// the new limit; a key that has already spent more is refused until the next period.
#[utoipa::path(
    put, path = "/v1/admin/accounts/{id}/api-keys/{key}", tag = "admin",
    responses((status = 200, description = "The key", body = ApiKeyRecord)),
)]
pub async fn replace_key(
    State(state): State<ApiState>,
    operator: Operator,
    PathIds(id, key): PathIds<AccountId, ApiKeyId>,
    body: JsonBody<KeyRequest>,
) -> Result<Json<ApiKeyRecord>, ApiError> {
    let request = body.read_as(|request| state.service.key_violations(request))?;
    tracing::info!(%operator, account = %id, key = %key, "replacing a key");
    let record = state.service.replace_key(id, key, &request).await?;
    Ok(Json(record))
}

/// Revoke an API key of an account
///
/// Takes effect at once and cannot be undone; running requests finish. Repeating it answers the
/// same.
#[utoipa::path(
    delete, path = "/v1/admin/accounts/{id}/api-keys/{key}", tag = "admin",
    responses((status = 200, description = "The revoked key", body = ApiKeyRecord)),
)]
pub async fn revoke_key(
    State(state): State<ApiState>,
    operator: Operator,
    PathIds(id, key): PathIds<AccountId, ApiKeyId>,
    _query: NoQuery,
) -> Result<Json<ApiKeyRecord>, ApiError> {
    tracing::info!(%operator, account = %id, key = %key, "revoking a key");
    let record = state.service.revoke_key(id, key).await?;
    Ok(Json(record))
}

/// Resend a webhook delivery of an account
///
/// Any delivery can be resent, also one that succeeded or was given up. A pending one becomes due
/// now.
#[utoipa::path(
    post, path = "/v1/admin/accounts/{id}/deliveries/{delivery}/redeliver", tag = "admin",
    responses((status = 202, description = "The delivery, pending", body = DeliveryRecord)),
)]
pub async fn redeliver(
    State(state): State<ApiState>,
    operator: Operator,
    PathIds(id, delivery): PathIds<AccountId, WebhookDeliveryId>,
    _query: NoQuery,
    _body: EmptyBody,
) -> Result<(StatusCode, Json<DeliveryRecord>), ApiError> {
    tracing::info!(%operator, account = %id, delivery = %delivery, "sending a webhook again");
    let found = state.service.redeliver(id, None, delivery).await?;
    Ok((StatusCode::ACCEPTED, Json(found)))
}
