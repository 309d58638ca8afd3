//! The operator's own systems: accounts, grants, suspension.

pub mod customers;
mod permission;
pub mod reports;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{StatusCode, Uri};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;

use super::{
    ApiState,
    body::{EmptyBody, JsonBody, OptionalBody},
    error::ApiError,
    extract::{NoQuery, PathId, Query},
    record::{self, PageBody},
};
use crate::{
    domain::{
        ids::AccountId,
        page::PageRequest,
        request::{AccountRequest, EMAIL_CHARS, MoveRequest, SuspensionRequest},
        validate::{Fields, Input, generation_id, text},
    },
    store::{
        accounts::{ACCOUNTS_CURSOR, AccountFilter, AccountRecord},
        credits::LedgerEntry,
        sessions::AdminTokenRecord,
    },
};
pub use permission::Operator;

/// What the list of accounts is asked for.
pub struct AccountsQuery {
    filter: AccountFilter,
    page: PageRequest,
}

impl Input for AccountsQuery {
    fn read(fields: &Fields<'_>) -> Option<Self> {
        let email = "Of a user of the account; compared as a whole, without case";
        let generation = "A generation of the account, also a deleted one; a finished one that was free is not found";
        let key_hint = "The hint of an API key of the account, also of a revoked one";
        Some(Self {
            filter: AccountFilter {
                email: fields.optional("email", email, text(EMAIL_CHARS)),
                generation: fields.optional("generation", generation, generation_id()),
                key_hint: fields.optional("key_hint", key_hint, text(usize::MAX)),
            },
            page: PageRequest::read(fields, ACCOUNTS_CURSOR),
        })
    }
}

/// An admin token just made.
#[derive(Serialize)]
pub struct NewAdminTokenBody {
    /// The full token, once.
    pub token: String,
    #[serde(flatten)]
    pub record: AdminTokenRecord,
}

impl NewAdminTokenBody {
    /// The body for a token just made.
    pub fn new(record: AdminTokenRecord, secret: &SecretString) -> Self {
        Self {
            token: secret.expose_secret().to_owned(),
            record,
        }
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
    State(state): State<ApiState>,
    _operator: Operator,
    query: Query<AccountsQuery>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let AccountsQuery { filter, page } = query.read()?;
    let store = state.service.store();
    let found = store.accounts(&filter, &page).await?;
    Ok(record::page(found, &uri, |account| account))
}

/// Make an account
///
/// With its first user. An email that belongs to an account already is `not_allowed`.
#[utoipa::path(
    post, path = "/v1/admin/accounts", tag = "admin",
    responses((status = 201, description = "The account", body = AccountRecord)),
)]
pub async fn create(
    State(state): State<ApiState>,
    operator: Operator,
    body: JsonBody<AccountRequest>,
) -> Result<(StatusCode, Json<AccountRecord>), ApiError> {
    let request = body.read()?;
    let (id, _) = state.service.create_account(&request).await?;
    tracing::info!(%operator, account = %id, "an account was made");
    let account = state.service.account(id).await?;
    Ok((StatusCode::CREATED, Json(account)))
}

/// Look up an account
#[utoipa::path(
    get, path = "/v1/admin/accounts/{id}", tag = "admin",
    responses((status = 200, description = "The account", body = AccountRecord)),
)]
pub async fn get(
    State(state): State<ApiState>,
    _operator: Operator,
    PathId(id): PathId<AccountId>,
    _query: NoQuery,
) -> Result<Json<AccountRecord>, ApiError> {
    Ok(Json(state.service.account(id).await?))
}

/// Grant, correct or refund credits
///
/// A reference is one movement of an account: the same movement sent again answers 200 and the
/// first entry, another one is `reference_reused`. An adjustment may take credits back, down to
/// what is on hold. A refund gives back what one generation of the account was charged, or a part
/// of it, once.
#[utoipa::path(
    post, path = "/v1/admin/accounts/{id}/credits", tag = "admin",
    responses(
        (status = 201, description = "The entry in the ledger", body = LedgerEntry),
        (status = 200, description = "The entry that this reference made before; nothing was moved again", body = LedgerEntry),
    ),
)]
pub async fn move_credits(
    State(state): State<ApiState>,
    operator: Operator,
    PathId(id): PathId<AccountId>,
    body: JsonBody<MoveRequest>,
) -> Result<Response, ApiError> {
    let request = body.read()?;
    let done = state
        .service
        .move_credits(id, request.what, Some(&request.reference))
        .await?;
    if done.moved {
        tracing::info!(%operator, account = %id, kind = done.entry.kind,
            amount = %done.entry.amount, entry = %done.entry.id, "credits were moved");
    }
    let status = if done.moved {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(done.entry)).into_response())
}

/// Suspend an account
///
/// Its tokens get 403 `account_suspended` from now on; its running work finishes. Repeating it
/// answers the same.
#[utoipa::path(
    post, path = "/v1/admin/accounts/{id}/suspend", tag = "admin",
    responses((status = 200, description = "The suspended account", body = AccountRecord)),
)]
pub async fn suspend(
    State(state): State<ApiState>,
    operator: Operator,
    PathId(id): PathId<AccountId>,
    body: OptionalBody<SuspensionRequest>,
) -> Result<Json<AccountRecord>, ApiError> {
    let reason = body.read()?.reason;
    let account = state
        .service
        .set_suspended(id, true, reason.as_deref())
        .await?;
    tracing::info!(%operator, account = %id, "the account is suspended");
    Ok(Json(account))
}

/// Resume a suspended account
///
/// A deleted account stays suspended. Repeating it answers the same.
#[utoipa::path(
    post, path = "/v1/admin/accounts/{id}/resume", tag = "admin",
    responses((status = 200, description = "The account", body = AccountRecord)),
)]
pub async fn resume(
    State(state): State<ApiState>,
    operator: Operator,
    PathId(id): PathId<AccountId>,
    _query: NoQuery,
    _body: EmptyBody,
) -> Result<Json<AccountRecord>, ApiError> {
    let account = state.service.set_suspended(id, false, None).await?;
    tracing::info!(%operator, account = %id, "account resumed");
    Ok(Json(account))
}
