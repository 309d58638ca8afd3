//! Login, logout, passwords, and the caller's identity.

use axum::{Extension, Json, extract::State};
use chrono::{DateTime, Utc};
use http::StatusCode;
use secrecy::ExposeSecret as _;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    ApiState,
    body::{EmptyBody, JsonBody},
    context::{CallerSlot, Known, RequestPermit},
    error::ApiError,
    extract::{AnyToken, Authorized, NoQuery, SessionOnly},
};
use crate::{
    domain::{
        ability::Abilities,
        clock::rfc3339,
        ids::{AccountId, UserId},
    },
    request::{Login, PasswordChange},
};

/// A user.
#[derive(Debug, Serialize, ToSchema)]
pub struct UserBody {
    /// Its id.
    pub id: UserId,
    /// The email as entered, in lower case if it is not ASCII.
    pub email: String,
    /// The user's name.
    #[schema(required, nullable)]
    pub name: Option<String>,
}

/// An account, in short.
#[derive(Debug, Serialize, ToSchema)]
pub struct AccountBody {
    /// Its id.
    pub id: AccountId,
    /// Its name.
    pub name: String,
}

/// A new session.
#[derive(Debug, Serialize, ToSchema)]
pub struct LoginBody {
    /// The session token. Only this response has it.
    pub token: String,
    /// Always `Bearer`.
    #[schema(example = "Bearer")]
    pub token_type: String,
    /// When the server ends the session.
    #[serde(serialize_with = "rfc3339")]
    pub expires_at: DateTime<Utc>,
    /// The user who logged in.
    pub user: UserBody,
    /// The user's account.
    pub account: AccountBody,
}

/// The kind of a token.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenType {
    /// From POST /v1/auth/login.
    Session,
    /// From POST /v1/api-keys.
    ApiKey,
}

/// The token of a request.
#[derive(Debug, Serialize, ToSchema)]
pub struct TokenBody {
    /// The kind of the token.
    pub r#type: TokenType,
    /// The abilities of the token.
    pub abilities: Abilities,
    /// When it expires; null: never.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub expires_at: Option<DateTime<Utc>>,
}

/// The caller's account and token.
#[derive(Debug, Serialize, ToSchema)]
pub struct MeBody {
    /// The session's user; null for keys.
    #[schema(required, nullable)]
    pub user: Option<UserBody>,
    /// The account.
    pub account: AccountBody,
    /// The token.
    pub token: TokenBody,
    /// Whether it is an operator's session, which may also use /v1/admin.
    pub operator: bool,
}

fn user((id, email, name): (UserId, String, Option<String>)) -> UserBody {
    UserBody { id, email, name }
}

/// Log in
///
/// After 10 failures of an email from an address within 15 minutes, the response is 429.
#[utoipa::path(
    post, path = "/v1/auth/login", tag = "auth",
    responses((status = 200, description = "A session token", body = LoginBody)),
)]
pub async fn login(
    State(state): State<ApiState>,
    Extension(permit): Extension<RequestPermit>,
    Extension(slot): Extension<CallerSlot>,
    body: JsonBody<Login>,
) -> Result<Json<LoginBody>, ApiError> {
    let login = body.read()?;
    let session = state.service.login(login, permit.key()).await?;
    let (id, name) = session.account;
    let known = Known {
        account: Some(id),
        ..Known::default()
    };
    slot.set(known, state.service.now());
    Ok(Json(LoginBody {
        token: session.token.expose_secret().to_owned(),
        token_type: "Bearer".to_owned(),
        expires_at: session.expires_at,
        user: user(session.user),
        account: AccountBody { id, name },
    }))
}

/// Log out
///
/// Ends this session only.
#[utoipa::path(
    post, path = "/v1/auth/logout", tag = "auth",
    responses((status = 204, description = "The session has ended")),
)]
pub async fn logout(
    auth: Authorized<SessionOnly>,
    _query: NoQuery,
    _body: EmptyBody,
) -> Result<StatusCode, ApiError> {
    auth.service.logout(&auth.caller).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Change the password
///
/// Ends the user's other sessions; this session and API keys remain. A wrong `current_password` is
/// `not_allowed`, and counts as a failed login.
#[utoipa::path(
    patch, path = "/v1/auth/password", tag = "auth",
    responses((status = 204, description = "The new password is set")),
)]
pub async fn change_password(
    auth: Authorized<SessionOnly>,
    body: JsonBody<PasswordChange>,
) -> Result<StatusCode, ApiError> {
    let (change, address) = (body.read()?, auth.permit.key());
    let changing = auth.service.change_password(&auth.caller, change, address);
    changing.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Read who the caller is
#[utoipa::path(
    get, path = "/v1/auth/me", tag = "auth",
    responses((status = 200, description = "Who the caller is", body = MeBody)),
)]
pub async fn me(auth: Authorized<AnyToken>, _query: NoQuery) -> Result<Json<MeBody>, ApiError> {
    let found = auth.service.identity(&auth.caller).await?;
    let caller = auth.caller;
    Ok(Json(MeBody {
        operator: caller.operator,
        account: AccountBody {
            id: caller.account_id,
            name: found.account_name,
        },
        token: TokenBody {
            r#type: if found.user.is_some() {
                TokenType::Session
            } else {
                TokenType::ApiKey
            },
            abilities: caller.abilities,
            expires_at: caller.expires_at,
        },
        user: found.user.map(user),
    }))
}
