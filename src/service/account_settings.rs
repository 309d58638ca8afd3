//! The account's own settings: its default provider and model of each modality.

use serde_json::{Map, Value, json};

use super::{Service, ServiceError, auth::Caller};
use crate::{
    domain::{
        generation::Modality,
        request::{NAME_CHARS, Target},
        validate::{Errors, FieldCode, Fields},
    },
    store::account_settings::AccountSettings,
};

/// What is to be changed: by modality, null where it is to be cleared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultsChange(Value);

impl Service {
    pub async fn own_account(&self, caller: &Caller) -> Result<AccountSettings, ServiceError> {
        Ok(self.0.store.account_settings(caller.account_id).await?)
    }

    /// Reads and checks a change of the account's settings.
    pub fn read_account_change(
        &self,
        body: &Map<String, Value>,
    ) -> Result<DefaultsChange, ServiceError> {
        let errors = Errors::default();
        let fields = Fields::new(body, &errors);
        let defaults = fields.object("defaults");
        let given = body.get("defaults").and_then(Value::as_object);
        let mut change = Map::new();
        for &modality in Modality::ALL {
            let name = modality.as_str();
            let of = defaults.object(name);
            let (provider, model) = (
                of.text("provider", NAME_CHARS),
                of.text("model", NAME_CHARS),
            );
            let value = match given.and_then(|given| given.get(name)) {
                Some(Value::Null) => Value::Null,
                Some(Value::Object(members)) => {
                    let unreadable = ["provider", "model"]
                        .iter()
                        .any(|member| errors.has(&of.path(member)));
                    of.finish();
                    if unreadable {
                        continue;
                    }
                    let Some(provider) = provider else {
                        let message = if members.get("model").is_some_and(|m| !m.is_null()) {
                            "is required: a model is named only together with its provider"
                        } else {
                            "is required; null in place of the object clears the default"
                        };
                        defaults.error(&format!("{name}.provider"), FieldCode::Required, message);
                        continue;
                    };
                    let target = Target {
                        provider: Some(provider.to_owned()),
                        model: model.map(str::to_owned),
                    };
                    let none = Target::default();
                    if let Err(error) = self.0.catalogue.resolve(modality, &target, &none) {
                        let param = format!("{name}.{}", error.param);
                        defaults.error(&param, error.code, error.message);
                        continue;
                    }
                    match model {
                        Some(model) => json!({"provider": provider, "model": model}),
                        None => json!({ "provider": provider }),
                    }
                }
                _ => continue,
            };
            change.insert(name.to_owned(), value);
        }
        defaults.finish();
        fields.finish();
        match errors.take() {
            none if none.is_empty() => Ok(DefaultsChange(change.into())),
            errors => Err(ServiceError::Invalid(errors)),
        }
    }

    /// Changes the account's settings.
    pub async fn change_account(
        &self,
        caller: &Caller,
        change: &DefaultsChange,
    ) -> Result<AccountSettings, ServiceError> {
        let store = &self.0.store;
        Ok(store.merge_defaults(caller.account_id, &change.0).await?)
    }
}
