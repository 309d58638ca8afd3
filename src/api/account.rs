//! The account's own settings.

use axum::Json;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    body::JsonBody,
    error::ApiError,
    extract::{Authorized, Manage, NoQuery},
};
use crate::{
    domain::{clock::rfc3339, ids::AccountId},
    request::AccountChange,
    store::accounts::AccountSettings,
};

/// A default of an account.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DefaultBody {
    /// The provider of requests that name none. Ignored if this server no longer has it.
    pub provider: String,
    /// Its model, for requests without provider and model; null: the provider's own default.
    #[schema(required, nullable)]
    pub model: Option<String>,
    /// Models to use if its provider does not start, in order; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<DefaultFallback>,
}

/// A model to use if the previous one does not start.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct DefaultFallback {
    /// Its provider.
    pub provider: String,
    /// The model.
    pub model: String,
}

/// The defaults of an account, one for each modality; null if the server's default is used.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DefaultsBody {
    /// The default for text.
    #[schema(required, nullable)]
    pub text: Option<DefaultBody>,
    /// The default for images.
    #[schema(required, nullable)]
    pub image: Option<DefaultBody>,
    /// The default for video.
    #[schema(required, nullable)]
    pub video: Option<DefaultBody>,
    /// The default for speech.
    #[schema(required, nullable)]
    pub audio: Option<DefaultBody>,
}

/// An account.
#[derive(Debug, Serialize, ToSchema)]
pub struct AccountBody {
    /// Its id.
    pub id: AccountId,
    /// Its name.
    pub name: String,
    /// Its default providers and models.
    pub defaults: DefaultsBody,
    /// When the account was created.
    #[serde(serialize_with = "rfc3339")]
    pub created_at: DateTime<Utc>,
}

impl From<AccountSettings> for AccountBody {
    fn from(account: AccountSettings) -> Self {
        let defaults = serde_json::from_value(account.defaults).unwrap_or_else(|error| {
            tracing::error!(%error, "the defaults of an account cannot be read");
            DefaultsBody::default()
        });
        Self {
            id: account.id,
            name: account.name,
            defaults,
            created_at: account.created_at,
        }
    }
}

/// Read the account
#[utoipa::path(
    get, path = "/v1/account", tag = "account",
    responses((status = 200, description = "The account", body = AccountBody)),
)]
pub async fn get(auth: Authorized<Manage>, _query: NoQuery) -> Result<Json<AccountBody>, ApiError> {
    let account = auth.caller.account_id;
    let found = auth.service.store().account_settings(account).await?;
    Ok(Json(found.into()))
}

/// Change the account's defaults
///
/// Changes are merged by modality: omitted modalities are kept, and null clears one. A model is
/// only accepted together with its provider.
#[utoipa::path(
    patch, path = "/v1/account", tag = "account",
    responses((status = 200, description = "The account, changed", body = AccountBody)),
)]
pub async fn change(
    auth: Authorized<Manage>,
    body: JsonBody<AccountChange>,
) -> Result<Json<AccountBody>, ApiError> {
    let change = body.read_as(|change| auth.service.change_violations(change))?;
    let account = auth.service.change_account(&auth.caller, &change).await?;
    Ok(Json(account.into()))
}
