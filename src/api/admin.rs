//! Operators' routes: accounts with their keys and webhooks, credits, suspension.

pub mod reports;

use std::{fmt, ops::Deref};

use axum::{
    Json,
    extract::FromRequestParts,
    response::{IntoResponse as _, Response},
};
use http::{StatusCode, Uri, request::Parts};

use super::{
    ApiState,
    body::{EmptyBody, JsonBody, OptionalBody},
    context::{Known, is_counted, record_caller},
    error::ApiError,
    extract::{NoQuery, PathId, PathIds, Query, bearer},
    record::{self, PageBody},
};
use crate::{
    domain::{
        ids::{AccountId, ApiKeyId, WebhookDeliveryId},
        page::PageRequest,
        validate::{Fields, Input, generation_id, text},
    },
    request::{
        AccountRequest, AccountUpdate, EMAIL_CHARS, KeyRequest, MoveRequest, SuspensionRequest,
        normalized_email,
    },
    service::{ServiceError, operators::Presented},
    store::{
        accounts::{ACCOUNTS_CURSOR, AccountFilter, AccountRecord},
        credits::LedgerEntry,
        deliveries::DeliveryRecord,
        keys::ApiKeyRecord,
    },
};

/// The caller of an operators' route: an admin token, or the session of an operator, within its
/// rate limit. Other callers are refused with 401, 429 or 403, checked in this order.
pub struct Operator {
    state: ApiState,
    /// Name in the log.
    name: String,
}

impl Deref for Operator {
    type Target = ApiState;

    fn deref(&self) -> &ApiState {
        &self.state
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl FromRequestParts<ApiState> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let token = bearer(&parts.headers).map_err(ApiError::token)?;
        let counts = is_counted(parts);
        let presented = state.service.authenticate_operator(token, counts).await?;
        let known = match &presented {
            Presented::Customer(caller) => Known::from(caller),
            &Presented::Operator(token, rate) => Known {
                rate: Some(rate),
                admin_token: Some(token),
                ..Known::default()
            },
        };
        let rate = known.rate();
        record_caller(parts, counts, known, state.service.now());
        if let Some(rate) = rate.filter(|rate| rate.retry_after_seconds.is_some()) {
            return Err(ServiceError::RateLimited(rate).into());
        }
        let name = match presented {
            Presented::Operator(token, _) => format!("admin token {token}"),
            Presented::Customer(caller) => {
                caller.require_active()?;
                let user = caller.user_id.filter(|_| caller.operator);
                format!("user {}", user.ok_or(ServiceError::AdminRequired)?)
            }
        };
        let state = state.clone();
        Ok(Self { state, name })
    }
}

impl Input for (AccountFilter, PageRequest) {
    fn read(fields: &Fields<'_>) -> Option<Self> {
        let email = "Of a user of the account; compared as a whole, without case";
        let generation = "A generation of the account, also a deleted one; a finished one that was free is not found";
        let key_hint = "The hint of an API key of the account, also of a revoked one";
        let filter = AccountFilter {
            email: fields
                .optional("email", email, text(EMAIL_CHARS))
                .map(|email| normalized_email(&email)),
            generation: fields.optional("generation", generation, generation_id()),
            key_hint: fields.optional("key_hint", key_hint, text(usize::MAX)),
        };
        Some((filter, PageRequest::read(fields, ACCOUNTS_CURSOR)))
    }
}

/// List accounts
///
/// With several filters, an account matches all of them.
#[utoipa::path(
    get, path = "/v1/admin/accounts", tag = "admin",
    responses((status = 200, description = "A page of accounts, newest first", body = PageBody<AccountRecord>)),
)]
pub async fn list(
    operator: Operator,
    Query((filter, page)): Query<(AccountFilter, PageRequest)>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let store = operator.service.store();
    let found = store.accounts(&filter, &page).await?;
    Ok(record::page(found, &uri, |account| account))
}

/// Create an account
///
/// Also creates its first user. An email that belongs to an account already is `not_allowed`.
#[utoipa::path(
    post, path = "/v1/admin/accounts", tag = "admin",
    responses((status = 201, description = "The account", body = AccountRecord)),
)]
pub async fn create(
    operator: Operator,
    body: JsonBody<AccountRequest>,
) -> Result<(StatusCode, Json<AccountRecord>), ApiError> {
    let request = body.read()?;
    // Logged before the creation, which completes even if the caller disconnects.
    tracing::info!(%operator, credits = %request.credits, "creating an account");
    let (id, _) = operator.service.create_account(&request).await?;
    tracing::info!(%operator, account = %id, "the account was created");
    let account = operator.service.account(id).await?;
    Ok((StatusCode::CREATED, Json(account)))
}

/// Look up an account
#[utoipa::path(
    get, path = "/v1/admin/accounts/{id}", tag = "admin",
    responses((status = 200, description = "The account", body = AccountRecord)),
)]
pub async fn get(
    operator: Operator,
    PathId(id): PathId<AccountId>,
    _query: NoQuery,
) -> Result<Json<AccountRecord>, ApiError> {
    Ok(Json(operator.service.account(id).await?))
}

/// Grant, correct or refund credits
///
/// A reference identifies one movement of an account: sending the same movement again returns 200
/// with the first entry, and another movement with it is `reference_reused`. An adjustment may take
/// back credits that are not on hold. A refund returns the charge of one generation of the account,
/// or a part of it, once.
#[utoipa::path(
    post, path = "/v1/admin/accounts/{id}/credits", tag = "admin",
    responses(
        (status = 201, description = "The entry in the ledger", body = LedgerEntry),
        (status = 200, description = "The entry that this reference made before; nothing was moved again", body = LedgerEntry),
    ),
)]
pub async fn move_credits(
    operator: Operator,
    PathId(id): PathId<AccountId>,
    body: JsonBody<MoveRequest>,
) -> Result<Response, ApiError> {
    let MoveRequest { what, reference } = body.read()?;
    tracing::info!(%operator, account = %id, kind = what.kind(), amount = what.amount().map(display),
        reference, "moving credits");
    let moving = operator.service.move_credits(id, what, Some(&reference));
    let (entry, moved) = moving.await?;
    let status = if moved {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(entry)).into_response())
}

/// Suspend an account
///
/// Its tokens get 403 `account_suspended` from now on; its running work finishes. Idempotent.
#[utoipa::path(
    post, path = "/v1/admin/accounts/{id}/suspend", tag = "admin",
    responses((status = 200, description = "The suspended account", body = AccountRecord)),
)]
pub async fn suspend(
    operator: Operator,
    PathId(id): PathId<AccountId>,
    OptionalBody(SuspensionRequest { reason }): OptionalBody<SuspensionRequest>,
) -> Result<Json<AccountRecord>, ApiError> {
    tracing::info!(%operator, account = %id, "suspending an account");
    let suspending = operator.service.set_suspended(id, true, reason.as_deref());
    Ok(Json(suspending.await?))
}

/// Resume a suspended account
///
/// A deleted account stays suspended. Idempotent.
#[utoipa::path(
    post, path = "/v1/admin/accounts/{id}/resume", tag = "admin",
    responses((status = 200, description = "The account", body = AccountRecord)),
)]
pub async fn resume(
    operator: Operator,
    PathId(id): PathId<AccountId>,
    _query: NoQuery,
    _body: EmptyBody,
) -> Result<Json<AccountRecord>, ApiError> {
    tracing::info!(%operator, account = %id, "resuming an account");
    let account = operator.service.set_suspended(id, false, None).await?;
    Ok(Json(account))
}

/// Change an account's email or name
///
/// An email that belongs to another user is `not_allowed`. Sessions and keys stay valid.
#[utoipa::path(
    patch, path = "/v1/admin/accounts/{id}", tag = "admin",
    responses((status = 200, description = "The account", body = AccountRecord)),
)]
pub async fn change(
    operator: Operator,
    PathId(id): PathId<AccountId>,
    body: JsonBody<AccountUpdate>,
) -> Result<Json<AccountRecord>, ApiError> {
    let change = body.read()?;
    // Logged before the change, which completes even if the caller disconnects.
    tracing::info!(%operator, account = %id, "changing an account");
    let account = operator.service.update_account(id, &change).await?;
    Ok(Json(account))
}

/// Delete an account
///
/// Removes its users, sessions, templates and default models at once, revokes its keys and deletes
/// its webhooks. Prompts, results and files of its generations are removed in the background;
/// `erased_at` is set when all are removed. Running work finishes and is charged. The ledger and
/// the counts and costs of generations are kept. This cannot be undone. An operator's account is
/// `not_allowed`. Idempotent.
#[utoipa::path(
    delete, path = "/v1/admin/accounts/{id}", tag = "admin",
    responses((status = 200, description = "The deleted account", body = AccountRecord)),
)]
pub async fn delete(
    operator: Operator,
    PathId(id): PathId<AccountId>,
    _query: NoQuery,
) -> Result<Json<AccountRecord>, ApiError> {
    tracing::info!(%operator, account = %id, "deleting an account");
    let account = operator.service.delete_account(id).await?;
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
    operator: Operator,
    PathIds(id, key): PathIds<AccountId, ApiKeyId>,
    body: JsonBody<KeyRequest>,
) -> Result<Json<ApiKeyRecord>, ApiError> {
    let request = body.read_as(|request| operator.service.key_violations(request))?;
    tracing::info!(%operator, account = %id, key = %key, "replacing a key");
    let record = operator.service.replace_key(id, key, &request).await?;
    Ok(Json(record))
}

/// Revoke an API key of an account
///
/// Takes effect at once and cannot be undone; running requests finish. Idempotent.
#[utoipa::path(
    delete, path = "/v1/admin/accounts/{id}/api-keys/{key}", tag = "admin",
    responses((status = 200, description = "The revoked key", body = ApiKeyRecord)),
)]
pub async fn revoke_key(
    operator: Operator,
    PathIds(id, key): PathIds<AccountId, ApiKeyId>,
    _query: NoQuery,
) -> Result<Json<ApiKeyRecord>, ApiError> {
    tracing::info!(%operator, account = %id, key = %key, "revoking a key");
    let record = operator.service.revoke_key(id, key).await?;
    Ok(Json(record))
}

/// Resend a webhook delivery of an account
///
/// Any delivery can be resent, also one that succeeded or was given up. A pending delivery becomes
/// due now.
#[utoipa::path(
    post, path = "/v1/admin/accounts/{id}/deliveries/{delivery}/redeliver", tag = "admin",
    responses((status = 202, description = "The delivery, pending", body = DeliveryRecord)),
)]
pub async fn redeliver(
    operator: Operator,
    PathIds(id, delivery): PathIds<AccountId, WebhookDeliveryId>,
    _query: NoQuery,
    _body: EmptyBody,
) -> Result<(StatusCode, Json<DeliveryRecord>), ApiError> {
    tracing::info!(%operator, account = %id, delivery = %delivery, "sending a webhook again");
    let found = operator.service.redeliver(id, None, delivery).await?;
    Ok((StatusCode::ACCEPTED, Json(found)))
}
