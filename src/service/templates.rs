//! Stored prompt templates. [`super::generate`] applies them.

use super::{
    Result, Service, ServiceError,
    auth::Caller,
    forms::{Created, create_once},
};
use crate::{
    domain::{form_token::FormToken, ids::TemplateId, request::TemplateText},
    store::templates::{MAX_TEMPLATES, TemplateRecord},
};

impl Service {
    /// Creates a template, once for each form of the console.
    pub async fn create_template(
        &self,
        caller: &Caller,
        text: &TemplateText,
        form: Option<&FormToken>,
    ) -> Result<Created<TemplateRecord>> {
        self.store_once(caller, form, async |digest| {
            let (store, now) = (&self.0.store, self.0.clock.now());
            let made = store.create_template(caller.account_id, text, digest, now);
            made.await?.ok_or_else(|| {
                let message =
                    format!("would be one more than the {MAX_TEMPLATES} templates of an account");
                ServiceError::not_allowed("name", message)
            })
        })
        .await
    }

    /// Replaces a template with a new version, once for each form of the console.
    pub async fn replace_template(
        &self,
        caller: &Caller,
        id: TemplateId,
        text: &TemplateText,
        form: Option<&FormToken>,
    ) -> Result<Created<TemplateRecord>> {
        self.store_once(caller, form, async |digest| {
            let (store, now) = (&self.0.store, self.0.clock.now());
            let found = store.replace_template(caller.account_id, id, text, digest, now);
            found.await?.ok_or(ServiceError::NotFound)
        })
        .await
    }

    async fn store_once(
        &self,
        caller: &Caller,
        form: Option<&FormToken>,
        store: impl AsyncFnOnce(Option<&[u8]>) -> Result<TemplateRecord>,
    ) -> Result<Created<TemplateRecord>> {
        let account = caller.account_id;
        let digest = form.map(|form| form.digest(account));
        let digest = digest.as_ref().map(<[u8; 32]>::as_slice);
        let find = || async {
            match digest {
                Some(digest) => self.0.store.template_of_form(account, digest).await,
                None => Ok(None),
            }
        };
        create_once(find, |id| self.template(caller, id), || store(digest)).await
    }

    pub async fn template(&self, caller: &Caller, id: TemplateId) -> Result<TemplateRecord> {
        let found = self.0.store.template(caller.account_id, id).await?;
        found.ok_or(ServiceError::NotFound)
    }

    /// Deletes a template. Generations that used it remain.
    pub async fn delete_template(&self, caller: &Caller, id: TemplateId) -> Result<()> {
        let there = self.0.store.delete_template(caller.account_id, id).await?;
        there.then_some(()).ok_or(ServiceError::NotFound)
    }
}
