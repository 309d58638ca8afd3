//! Prompt templates: keeping them. How one is applied is in [`super::generate`].

use super::{Service, ServiceError, auth::Caller};
use crate::{
    domain::{
        ids::TemplateId,
        page::{Page, PageRequest},
        request::TemplateText,
        validate::{FieldCode, FieldError},
    },
    store::templates::{MAX_TEMPLATES, TemplateRecord},
};

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
