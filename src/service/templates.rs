//! Prompt templates: keeping them. How one is applied is in [`super::generate`].

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{Service, ServiceError, auth::Caller};
use crate::{
    domain::{
        ids::TemplateId,
        page::{Page, PageRequest},
        template::{PROMPT_SOURCE_CHARS, SYSTEM_PROMPT_SOURCE_CHARS, Template},
        validate::{Errors, FieldCode, FieldError, Fields},
    },
    store::templates::{MAX_TEMPLATES, TemplateRecord, TemplateText},
};

/// Characters of a template's name.
const NAME_CHARS: usize = 100;

/// Reads and checks a template that is to be kept. Mistakes in it are named with their lines.
pub fn read_template(body: &Map<String, Value>) -> Result<TemplateText, ServiceError> {
    let errors = Errors::default();
    let fields = Fields::new(body, &errors);
    let name = fields.required_text("name", NAME_CHARS);
    let prompt = fields.required_text("prompt", PROMPT_SOURCE_CHARS);
    let system_prompt = fields.text("system_prompt", SYSTEM_PROMPT_SOURCE_CHARS);
    let mut variables = BTreeSet::new();
    for (field, source) in [("prompt", prompt), ("system_prompt", system_prompt)] {
        match source.map(Template::parse) {
            Some(Ok(template)) => variables.extend(template.variables().map(str::to_owned)),
            Some(Err(error)) => fields.error(
                field,
                FieldCode::InvalidFormat,
                format!("is not a valid template: {error}"),
            ),
            None => {}
        }
    }
    fields.finish();
    match (name, prompt, errors.take()) {
        (Some(name), Some(prompt), errors) if errors.is_empty() => Ok(TemplateText {
            name: name.to_owned(),
            prompt: prompt.to_owned(),
            system_prompt: system_prompt.map(str::to_owned),
            variables: variables.into_iter().collect(),
        }),
        (_, _, errors) => Err(ServiceError::Invalid(errors)),
    }
}

impl Service {
    pub async fn create_template(
        &self,
        caller: &Caller,
        text: &TemplateText,
    ) -> Result<TemplateRecord, ServiceError> {
        let now = self.0.clock.now();
        let made = self.0.store.create_template(caller.account_id, text, now);
        made.await?.ok_or_else(|| {
            ServiceError::invalid(FieldError::new(
                "name",
                FieldCode::NotAllowed,
                format!("would be one more than the {MAX_TEMPLATES} templates of an account"),
            ))
        })
    }

    /// Replaces all of a template by a new version.
    pub async fn replace_template(
        &self,
        caller: &Caller,
        id: TemplateId,
        text: &TemplateText,
    ) -> Result<TemplateRecord, ServiceError> {
        let now = self.0.clock.now();
        let store = &self.0.store;
        let found = store.replace_template(caller.account_id, id, text, now);
        found.await?.ok_or(ServiceError::NotFound)
    }

    /// One template of the caller's account.
    pub async fn template(
        &self,
        caller: &Caller,
        id: TemplateId,
    ) -> Result<TemplateRecord, ServiceError> {
        let found = self.0.store.template(caller.account_id, id).await?;
        found.ok_or(ServiceError::NotFound)
    }

    /// The templates of the caller's account.
    pub async fn templates(
        &self,
        caller: &Caller,
        page: &PageRequest,
    ) -> Result<Page<TemplateRecord>, ServiceError> {
        Ok(self.0.store.templates(caller.account_id, page).await?)
    }

    /// Deletes a template. What was made with it stays.
    pub async fn delete_template(
        &self,
        caller: &Caller,
        id: TemplateId,
    ) -> Result<(), ServiceError> {
        let there = self.0.store.delete_template(caller.account_id, id).await?;
        there.then_some(()).ok_or(ServiceError::NotFound)
    }
}
