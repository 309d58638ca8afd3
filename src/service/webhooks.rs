//! Webhooks and their deliveries.

use secrecy::SecretString;

use super::{
    Result, Service, ServiceError,
    auth::Caller,
    forms::{Created, create_once},
};
use crate::{
    domain::{
        form_token::FormToken,
        ids::{AccountId, WebhookDeliveryId, WebhookId},
        page::{Page, PageRequest},
        request::WebhookRequest,
        token,
        webhook::{MAX_PER_ACCOUNT, secret_text},
    },
    jobs::webhooks::AddressRefusal,
    store::{
        deliveries::DeliveryRecord,
        webhooks::{NewWebhook, WebhookMade, WebhookRecord},
    },
};

fn refused(message: impl Into<String>) -> ServiceError {
    ServiceError::not_allowed("url", message)
}

impl Service {
    /// Creates a webhook, once for each form of the console; its secret is only in this response.
    pub async fn create_webhook(
        &self,
        caller: &Caller,
        request: &WebhookRequest,
        form: Option<&FormToken>,
    ) -> Result<(Created<WebhookRecord>, SecretString)> {
        let account = caller.account_id;
        let secret = match form {
            Some(form) => form.webhook_secret(account),
            None => token::random().map_err(|e| ServiceError::Internal(e.to_string()))?,
        };
        let digest = form.map(|form| form.digest(account));
        let digest = digest.as_ref().map(<[u8; 32]>::as_slice);
        let find = || async {
            match digest {
                Some(digest) => self.0.store.webhook_of_form(account, digest).await,
                None => Ok(None),
            }
        };
        let create = || self.store_webhook(caller, request, digest, &secret);
        let webhook = create_once(find, |id| self.webhook(caller, id), create);
        Ok((webhook.await?, secret_text(&secret).into()))
    }

    async fn store_webhook(
        &self,
        caller: &Caller,
        request: &WebhookRequest,
        form: Option<&[u8]>,
        secret: &[u8],
    ) -> Result<WebhookRecord> {
        let (url, parsed) = &request.url;
        let checked = self.0.sender.check(caller.account_id, parsed).await;
        checked.map_err(|refusal| match refusal {
            AddressRefusal::Private => refused(
                "must lead to a public address; the operator can allow others with \
                 GENSVC__WEBHOOKS__ALLOW_PRIVATE=true",
            ),
            AddressRefusal::Busy => ServiceError::Overloaded,
            AddressRefusal::Unresolvable => refused("must have a host that can be resolved"),
        })?;
        let new = NewWebhook {
            account_id: caller.account_id,
            by: caller.credential,
            url,
            events: &request.events,
            form,
            now: self.0.clock.now(),
        };
        match self.0.store.create_webhook(&new, secret).await? {
            WebhookMade::Made(webhook) => Ok(webhook),
            WebhookMade::TooMany => Err(refused(format!(
                "would be one webhook too many: an account has at most {MAX_PER_ACCOUNT}; \
                 delete one first"
            ))),
            WebhookMade::CredentialEnded => Err(caller.ended()),
        }
    }

    pub async fn webhook(&self, caller: &Caller, id: WebhookId) -> Result<WebhookRecord> {
        let webhook = self.0.store.webhook(caller.account_id, id).await?;
        webhook.ok_or(ServiceError::NotFound)
    }

    /// Deletes a webhook of the caller's account and its pending deliveries.
    pub async fn delete_webhook(&self, caller: &Caller, id: WebhookId) -> Result<()> {
        let (store, now) = (&self.0.store, self.0.clock.now());
        let there = store.delete_webhook(caller.account_id, id, now).await?;
        there.then_some(()).ok_or(ServiceError::NotFound)
    }

    pub async fn deliveries(
        &self,
        caller: &Caller,
        id: WebhookId,
        page: &PageRequest,
    ) -> Result<Page<DeliveryRecord>> {
        self.webhook(caller, id).await?;
        let store = &self.0.store;
        Ok(store.deliveries(caller.account_id, id, page).await?)
    }

    /// Resends a delivery of an account, whatever its outcome. `id`: its webhook, if known.
    pub async fn redeliver(
        &self,
        account: AccountId,
        id: Option<WebhookId>,
        delivery: WebhookDeliveryId,
    ) -> Result<DeliveryRecord> {
        self.require_running()?;
        let now = self.0.clock.now();
        let delivery = self.0.store.redeliver(account, id, delivery, now).await?;
        delivery.ok_or(ServiceError::NotFound)
    }
}
