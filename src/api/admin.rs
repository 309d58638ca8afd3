//! The operator's own systems: accounts, grants, suspension.

pub mod customers;
mod permission;
pub mod reports;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use chrono::{DateTime, Utc};
use http::{StatusCode, Uri};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    ApiState,
    body::{EmptyBody, JsonBody, OptionalBody},
    credits::LedgerEntryBody,
    error::ApiError,
    extract::{NoQuery, PathId, Query},
    record::{self, PageBody},
};
use crate::{
    domain::{
        clock::rfc3339,
        credits::Credits,
        ids::{AccountId, AdminTokenId},
        page::PageRequest,
        request::{AccountRequest, EMAIL_CHARS, MoveRequest, SuspensionRequest},
        validate::{Fields, Input, text},
    },
    store::{
        accounts::{ACCOUNTS_CURSOR, AccountRecord},
        admin::AdminTokenRecord,
    },
};
pub use permission::Operator;

/// What the list of accounts is asked for.
pub struct AccountsQuery {
    email: Option<String>,
    page: PageRequest,
}

impl Input for AccountsQuery {
    fn read(fields: &Fields<'_>) -> Option<Self> {
        let email = "Of a user of the account; compared as a whole, without case";
        Some(Self {
            email: fields.optional("email", email, text(EMAIL_CHARS)),
            page: PageRequest::read(fields, ACCOUNTS_CURSOR),
        })
    }
}

/// An account, as the operator sees it.
#[derive(Debug, Serialize, ToSchema)]
pub struct AdminAccountBody {
    /// Its id.
    pub id: AccountId,
    /// Its name.
    pub name: String,
    /// The first user's email, as entered; empty for a deleted account.
    pub email: String,
    /// What is owned.
    pub balance: Credits,
    /// What running work may cost at most.
    pub held: Credits,
    /// `balance - held`.
    pub available: Credits,
    /// What it was charged in all, less what was refunded.
    pub spent: Credits,
    /// Since when it is suspended; null where it is not.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub suspended_at: Option<DateTime<Utc>>,
    /// Why it is suspended, where a reason was given.
    #[schema(required, nullable)]
    pub suspended_reason: Option<String>,
    /// When it was deleted; null if it was not.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub deleted_at: Option<DateTime<Utc>>,
    /// When the last prompt and file of a deleted account were removed; null until then.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub erased_at: Option<DateTime<Utc>>,
    /// When it was made.
    #[serde(serialize_with = "rfc3339")]
    pub created_at: DateTime<Utc>,
}

impl From<AccountRecord> for AdminAccountBody {
    fn from(account: AccountRecord) -> Self {
        let available = account.available();
        Self {
            id: account.id,
            name: account.name,
            email: account.email,
            balance: account.balance,
            held: account.held,
            available,
            spent: account.spent,
            suspended_at: account.suspended_at,
            suspended_reason: account.suspended_reason,
            deleted_at: account.deleted_at,
            erased_at: account.erased_at,
            created_at: account.created_at,
        }
    }
}

/// An admin token, without the token itself. Only the command line shows it.
#[derive(Debug, Serialize)]
pub struct AdminTokenBody {
    pub id: AdminTokenId,
    pub name: String,
    /// When it was last used; may lag by 60 s.
    #[serde(serialize_with = "rfc3339")]
    pub last_used_at: Option<DateTime<Utc>>,
    /// When it was revoked.
    #[serde(serialize_with = "rfc3339")]
    pub revoked_at: Option<DateTime<Utc>>,
    /// When it was made.
    #[serde(serialize_with = "rfc3339")]
    pub created_at: DateTime<Utc>,
}

/// An admin token just made.
#[derive(Serialize)]
pub struct NewAdminTokenBody {
    /// The full token, once.
    pub token: String,
    #[serde(flatten)]
    pub record: AdminTokenBody,
}

impl NewAdminTokenBody {
    /// The body for a token just made.
    pub fn new(record: AdminTokenRecord, secret: &SecretString) -> Self {
        Self {
            token: secret.expose_secret().to_owned(),
            record: record.into(),
        }
    }
}

impl From<AdminTokenRecord> for AdminTokenBody {
    fn from(token: AdminTokenRecord) -> Self {
        Self {
            id: token.id,
            name: token.name,
            last_used_at: token.last_used_at,
            revoked_at: token.revoked_at,
            created_at: token.created_at,
        }
    }
}

/// List accounts
#[utoipa::path(
    get, path = "/v1/admin/accounts", tag = "admin",
    responses((status = 200, description = "A page of accounts, newest first", body = PageBody<AdminAccountBody>)),
)]
pub async fn list(
    State(state): State<ApiState>,
    _operator: Operator,
    query: Query<AccountsQuery>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let AccountsQuery { email, page } = query.read()?;
    let found = state.service.accounts(email.as_deref(), &page).await?;
    Ok(record::page(found, &uri, AdminAccountBody::from))
}

/// Make an account
///
/// With its first user. An email that belongs to an account already is `not_allowed`.
#[utoipa::path(
    post, path = "/v1/admin/accounts", tag = "admin",
    responses((status = 201, description = "The account", body = AdminAccountBody)),
)]
pub async fn create(
    State(state): State<ApiState>,
    operator: Operator,
    body: JsonBody<AccountRequest>,
) -> Result<(StatusCode, Json<AdminAccountBody>), ApiError> {
    let request = body.read()?;
    let (id, _) = state.service.create_account(&request).await?;
    tracing::info!(%operator, account = %id, "an account was made");
    let account = state.service.account(id).await?;
    Ok((StatusCode::CREATED, Json(account.into())))
}

/// Look up an account
#[utoipa::path(
    get, path = "/v1/admin/accounts/{id}", tag = "admin",
    params(("id" = i64, Path, description = "The account's id")),
    responses((status = 200, description = "The account", body = AdminAccountBody)),
)]
pub async fn get(
    State(state): State<ApiState>,
    _operator: Operator,
    PathId(id): PathId<AccountId>,
    _query: NoQuery,
) -> Result<Json<AdminAccountBody>, ApiError> {
    Ok(Json(state.service.account(id).await?.into()))
}

/// Grant, correct or refund credits
///
/// A reference is one movement of an account: the same movement sent again answers 200 and the
/// first entry, another one is `reference_reused`. An adjustment may take credits back, down to
/// what is on hold. A refund gives back what one generation of the account was charged, or a part
/// of it, once.
#[utoipa::path(
    post, path = "/v1/admin/accounts/{id}/credits", tag = "admin",
    params(("id" = i64, Path, description = "The account's id")),
    responses(
        (status = 201, description = "The entry in the ledger", body = LedgerEntryBody),
        (status = 200, description = "The entry that this reference made before; nothing was moved again", body = LedgerEntryBody),
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
    Ok((status, Json(LedgerEntryBody::from(done.entry))).into_response())
}

/// Suspend an account
///
/// Its tokens get 403 `account_suspended` from now on; its running work finishes. Repeating it
/// answers the same.
#[utoipa::path(
    post, path = "/v1/admin/accounts/{id}/suspend", tag = "admin",
    params(("id" = i64, Path, description = "The account's id")),
    responses((status = 200, description = "The suspended account", body = AdminAccountBody)),
)]
pub async fn suspend(
    State(state): State<ApiState>,
    operator: Operator,
    PathId(id): PathId<AccountId>,
    body: OptionalBody<SuspensionRequest>,
) -> Result<Json<AdminAccountBody>, ApiError> {
    let reason = body.read()?.reason;
    let account = state
        .service
        .set_suspended(id, true, reason.as_deref())
        .await?;
    tracing::info!(%operator, account = %id, "the account is suspended");
    Ok(Json(account.into()))
}

/// Resume a suspended account
///
/// A deleted account stays suspended. Repeating it answers the same.
#[utoipa::path(
    post, path = "/v1/admin/accounts/{id}/resume", tag = "admin",
    params(("id" = i64, Path, description = "The account's id")),
    responses((status = 200, description = "The account", body = AdminAccountBody)),
)]
pub async fn resume(
    State(state): State<ApiState>,
    operator: Operator,
    PathId(id): PathId<AccountId>,
    _query: NoQuery,
    _body: EmptyBody,
) -> Result<Json<AdminAccountBody>, ApiError> {
    let account = state.service.set_suspended(id, false, None).await?;
    tracing::info!(%operator, account = %id, "account resumed");
    Ok(Json(account.into()))
}
