//! An account's own settings.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{Result, Store};
use crate::domain::ids::AccountId;

/// The owner's view of an account.
#[derive(Debug, Clone)]
pub struct AccountSettings {
    pub id: AccountId,
    pub name: String,
    /// Default providers and models by modality.
    pub defaults: Value,
    pub created_at: DateTime<Utc>,
}

impl Store {
    pub async fn account_settings(&self, id: AccountId) -> Result<AccountSettings> {
        let reading = sqlx::query_as!(
            AccountSettings,
            r#"select id as "id: _", name, defaults, created_at from accounts where id = $1"#,
            id.0,
        )
        .fetch_one(self.requests.named("read account settings"));
        Ok(reading.await?)
    }

    /// Merges defaults by modality; null clears one. One statement, so that concurrent changes of
    /// different modalities do not overwrite each other.
    pub async fn merge_defaults(&self, id: AccountId, changes: &Value) -> Result<AccountSettings> {
        let reading = sqlx::query_as!(
            AccountSettings,
            r#"update accounts set defaults = jsonb_strip_nulls(defaults || $2)
             where id = $1
             returning id as "id: _", name, defaults, created_at"#,
            id.0,
            changes,
        )
        .fetch_one(self.requests.named("merge account settings"));
        Ok(reading.await?)
    }
}
