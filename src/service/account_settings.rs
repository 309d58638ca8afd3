//! The account's own settings: its default provider and model of each modality.

use serde_json::{Map, json};

use super::{Result, Service, ServiceError, auth::Caller};
use crate::{
    domain::{
        generation::Modality,
        request::{AccountChange, Target},
        validate::FieldError,
    },
    store::account_settings::AccountSettings,
};

impl Service {
    /// Returns the settings of a change that name no model of this server.
    pub fn change_violations(&self, change: &AccountChange) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (modality, target) in &change.defaults {
            let Some(target) = target else { continue };
            let found = self
                .catalogue()
                .resolve(*modality, target, &Target::default());
            errors.extend(found.err());
            errors.extend(self.unknown_fallbacks(*modality, target));
            // A default follows its replacement.
            errors.retain(|error| error.replacement.is_none());
            for error in &mut errors {
                if !error.param.starts_with("defaults.") {
                    error.param = format!("defaults.{modality}.{}", error.param);
                }
            }
        }
        errors
    }

    pub async fn change_account(
        &self,
        caller: &Caller,
        change: &AccountChange,
    ) -> Result<AccountSettings> {
        ServiceError::any(self.change_violations(change))?;
        let default = |(modality, target): &(Modality, Option<Target>)| {
            let default = target.as_ref().map(|target| {
                let mut default = json!({"provider": target.provider, "model": target.model});
                let fallbacks = target.fallbacks.iter();
                let fallbacks =
                    fallbacks.map(|one| json!({"provider": one.provider, "model": one.model}));
                default["fallbacks"] = fallbacks.collect();
                default
            });
            (modality.to_string(), default.unwrap_or_default())
        };
        let defaults: Map<_, _> = change.defaults.iter().map(default).collect();
        let store = &self.0.store;
        let changed = store
            .merge_defaults(caller.account_id, &defaults.into())
            .await?;
        self.0.key_cache.remove_account(caller.account_id);
        Ok(changed)
    }
}
