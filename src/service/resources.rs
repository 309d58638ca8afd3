//! Objects that an account manages through the API or the console: API keys, prompt templates
//! (which [`super::generate`] applies), and webhooks with their deliveries.

use chrono::{DateTime, Utc};
use secrecy::SecretString;

use super::{Result, Service, ServiceError, TokenRefusal, auth::Caller};
use crate::{
    domain::{
        ability::Ability,
        form_token::{self, FormToken},
        ids::{AccountId, ApiKeyId, TemplateId, WebhookDeliveryId, WebhookId},
        page::{Page, PageRequest},
        token::{self, NewToken},
        validate::{FieldCode, FieldError},
        webhook::{MAX_PER_ACCOUNT, secret_text},
    },
    jobs::webhooks::AddressRefusal,
    request::{KeyRequest, TemplateText, WebhookRequest},
    store::{
        StoreError,
        deliveries::DeliveryRecord,
        generations::Credential,
        keys::ApiKeyRecord,
        templates::{MAX_TEMPLATES, TemplateRecord},
        webhooks::{WebhookMade, WebhookRecord},
    },
};

fn refused(message: impl Into<String>) -> ServiceError {
    ServiceError::not_allowed("url", message)
}

impl Service {
    /// Checks a request for a key at the current time.
    pub fn key_violations(&self, request: &KeyRequest) -> Vec<FieldError> {
        let past = request.expires_at.filter(|at| *at <= self.now());
        let message = "must be in the future";
        let error = |_| FieldError::new("expires_at", FieldCode::OutOfRange, message);
        past.map(error).into_iter().collect()
    }

    /// Creates a key. Only this call returns its plain text. `by`: the creating credential, which
    /// must be valid when the key is stored; `None`: the operator.
    pub async fn create_key(
        &self,
        account: AccountId,
        request: &KeyRequest,
        by: Option<&Caller>,
    ) -> Result<(ApiKeyRecord, SecretString)> {
        let token = token::new_api_key().map_err(|e| ServiceError::Internal(e.to_string()))?;
        let key = self.store_key(account, request, by, &token).await?;
        Ok((key, token.secret))
    }

    /// Creates the key of a console form, unless it exists: any server may get the form again.
    pub async fn create_key_by_form(
        &self,
        caller: &Caller,
        request: &KeyRequest,
        form: &FormToken,
    ) -> Result<(Created<ApiKeyRecord>, SecretString)> {
        let account = caller.account_id;
        let token = form_token::api_key_of_form(form, account);
        let key = create_once(
            || self.0.store.key_of_digest(account, token.digest),
            |id| self.key(caller, id),
            || self.store_key(account, request, Some(caller), &token),
        );
        Ok((key.await?, token.secret))
    }

    async fn store_key(
        &self,
        account: AccountId,
        request: &KeyRequest,
        by: Option<&Caller>,
        token: &NewToken,
    ) -> Result<ApiKeyRecord> {
        ServiceError::any(self.key_violations(request))?;
        let (store, now) = (&self.0.store, self.0.clock.now());
        let by_credential = by.map(|caller| caller.credential);
        let created = store.create_key(account, request, token, by_credential, now);
        match (created.await?, by) {
            (Some(key), _) => Ok(key),
            (None, Some(caller)) => Err(self.creation_refusal(caller).await?),
            (None, None) => Err(ServiceError::Token(TokenRefusal::Invalid)),
        }
    }

    /// Returns why a caller may not create keys, although its token had all abilities when it was
    /// authenticated.
    async fn creation_refusal(&self, caller: &Caller) -> Result<ServiceError> {
        let account = self.account(caller.account_id).await?;
        let key = match caller.credential {
            Credential::ApiKey(id) => Some(self.key(caller, id).await?),
            Credential::Session(_) => None,
        };
        let is_revoked = key.as_ref().is_some_and(|key| key.revoked_at.is_some());
        Ok(match key {
            _ if is_revoked || account.deleted_at.is_some() => caller.ended(),
            _ if account.suspended_at.is_some() => ServiceError::Suspended,
            Some(key) if !key.abilities.grant(Ability::All) => {
                ServiceError::MissingAbility(Ability::All.as_str())
            }
            // The new key would not share the spend limit.
            Some(key) if key.spend_limit.is_some() => ServiceError::CappedKey,
            _ => caller.ended(),
        })
    }

    /// Returns the current time of the service's clock.
    pub fn now(&self) -> DateTime<Utc> {
        self.0.clock.now()
    }

    pub async fn key(&self, caller: &Caller, id: ApiKeyId) -> Result<ApiKeyRecord> {
        let key = self.0.store.key(caller.account_id, id, self.now()).await?;
        key.ok_or(ServiceError::NotFound)
    }

    /// Revokes a key of an account, immediately and permanently.
    pub async fn revoke_key(&self, account: AccountId, id: ApiKeyId) -> Result<ApiKeyRecord> {
        let now = self.0.clock.now();
        let key = self.0.store.revoke_key(account, id, now).await?;
        key.ok_or(ServiceError::NotFound)
    }

    /// Creates a template, once per console form.
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
                    format!("is one too many: an account has at most {MAX_TEMPLATES} templates; delete one first");
                ServiceError::not_allowed("name", message)
            })
        })
        .await
    }

    /// Replaces a template with a new version, once per console form.
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

    /// Creates a webhook, once per console form. Only this call returns its secret.
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
        let account = caller.account_id;
        let checked = self.0.sender.check(account, &request.url.1).await;
        checked.map_err(|refusal| match refusal {
            AddressRefusal::Private => refused(
                "must resolve to a public address; the operator can allow others with \
                 GENSVC__WEBHOOKS__ALLOW_PRIVATE=true",
            ),
            AddressRefusal::Busy => ServiceError::Overloaded,
            AddressRefusal::Unresolvable => refused("has a host that cannot be resolved"),
        })?;
        let (store, now) = (&self.0.store, self.0.clock.now());
        let made = store.create_webhook(account, caller.credential, request, secret, form, now);
        match made.await? {
            WebhookMade::Made(webhook) => Ok(webhook),
            WebhookMade::TooMany => Err(refused(format!(
                "is one too many: an account has at most {MAX_PER_ACCOUNT} webhooks; \
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

#[derive(Debug)]
pub enum Created<T> {
    Now(T),
    /// An earlier request with the same form created it.
    Before(T),
}

impl<T> Created<T> {
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Created<U> {
        match self {
            Self::Now(created) => Created::Now(change(created)),
            Self::Before(created) => Created::Before(change(created)),
        }
    }
}

/// Creates something unless the same form has created it before; then `find` returns its id, and it
/// is read. `create` fails on a unique constraint if the same form is sent concurrently.
async fn create_once<I, T, F, R, C>(
    find: impl Fn() -> F,
    read: impl Fn(I) -> R,
    create: impl FnOnce() -> C,
) -> Result<Created<T>>
where
    F: Future<Output = Result<Option<I>, StoreError>>,
    R: Future<Output = Result<T>>,
    C: Future<Output = Result<T>>,
{
    if let Some(id) = find().await? {
        return Ok(Created::Before(read(id).await?));
    }
    match create().await {
        Ok(created) => Ok(Created::Now(created)),
        Err(error @ ServiceError::Store(StoreError::Constraint(..))) => match find().await? {
            Some(id) => Ok(Created::Before(read(id).await?)),
            None => Err(error),
        },
        Err(error) => Err(error),
    }
}
