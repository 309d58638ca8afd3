//! An account's own settings.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{Store, StoreError};
use crate::domain::ids::AccountId;

/// An account, as its owner sees it.
#[derive(Debug, Clone)]
pub struct AccountSettings {
    pub id: AccountId,
    pub name: String,
    /// Default providers and models by modality.
    pub defaults: Value,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

struct SettingsRow {
    id: i64,
    name: String,
    defaults: Value,
    created_at: DateTime<Utc>,
}

impl From<SettingsRow> for AccountSettings {
    fn from(row: SettingsRow) -> Self {
        Self {
            id: AccountId(row.id),
            name: row.name,
            defaults: row.defaults,
            created_at: row.created_at,
        }
    }
}

impl Store {
    pub async fn account_settings(&self, id: AccountId) -> Result<AccountSettings, StoreError> {
        let row = sqlx::query_as!(
            SettingsRow,
            "select id, name, defaults, created_at from accounts where id = $1",
            id.0,
        )
        .fetch_one(self.requests.named("read account settings"))
        .await?;
        Ok(row.into())
    }

    /// Merges defaults by modality; null clears one. One statement, so that parallel changes
    /// of different modalities all stay.
    pub async fn merge_defaults(
        &self,
        id: AccountId,
        changes: &Value,
    ) -> Result<AccountSettings, StoreError> {
        let row = sqlx::query_as!(
            SettingsRow,
            "update accounts set defaults = jsonb_strip_nulls(defaults || $2)
             where id = $1
             returning id, name, defaults, created_at",
            id.0,
            changes,
        )
        .fetch_one(self.requests.named("merge account settings"))
        .await?;
        Ok(row.into())
    }
}
