//! Webhooks: making, listing, deleting, and sending a delivery again.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use secrecy::SecretString;
use serde_json::{Map, Value};
use url::Url;

use super::{Service, ServiceError, TokenRefusal, auth::Caller};
use crate::{
    domain::{
        ids::{WebhookDeliveryId, WebhookId},
        page::{Page, PageRequest},
        token,
        validate::{Errors, FieldCode, FieldError, Fields},
        webhook::{MAX_PER_ACCOUNT, WebhookEvent},
    },
    jobs::webhooks::AddressRefusal,
    store::{
        deliveries::DeliveryRecord,
        generations::Credential,
        webhooks::{NewWebhook, WebhookMade, WebhookRecord},
    },
};

/// Characters of a webhook's URL.
const URL_CHARS: usize = 2_048;
/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;
/// What a secret begins with, as Standard Webhooks has it.
const SECRET_PREFIX: &str = "whsec_";

/// A webhook that is asked for.
#[derive(Debug, Clone)]
pub struct WebhookRequest {
    /// As it was given.
    url: String,
    parsed: Url,
    events: Vec<WebhookEvent>,
}

impl WebhookRequest {
    /// Reads and checks a body. Where the URL leads is not looked at yet.
    pub fn read(body: &Map<String, Value>) -> Result<Self, ServiceError> {
        let errors = Errors::default();
        let fields = Fields::new(body, &errors);
        let url = fields.required_text("url", URL_CHARS);
        let parsed = url.and_then(|text| match parse_url(text) {
            Ok(parsed) => Some(parsed),
            Err((code, message)) => {
                fields.error("url", code, message);
                None
            }
        });
        let events = fields.strings("events");
        let events = events.map_or_else(
            || WebhookEvent::ALL.to_vec(),
            |names| read_events(&fields, &names),
        );
        fields.finish();
        match (url.zip(parsed), errors.take()) {
            (Some((url, parsed)), errors) if errors.is_empty() => Ok(Self {
                url: url.to_owned(),
                parsed,
                events,
            }),
            (_, errors) => Err(ServiceError::Invalid(errors)),
        }
    }
}

fn parse_url(text: &str) -> Result<Url, (FieldCode, &'static str)> {
    let format = "must be a URL, such as https://example.com/hooks";
    // The parser would take these out silently.
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err((FieldCode::InvalidFormat, format));
    }
    let url = Url::parse(text).map_err(|_| (FieldCode::InvalidFormat, format))?;
    if !["http", "https"].contains(&url.scheme()) {
        return Err((FieldCode::NotAllowed, "must begin with https:// or http://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err((FieldCode::NotAllowed, "must not contain credentials"));
    }
    if url.fragment().is_some() {
        return Err((FieldCode::NotAllowed, "must not have a fragment (#)"));
    }
    Ok(url)
}

fn read_events(fields: &Fields<'_>, names: &[&str]) -> Vec<WebhookEvent> {
    let mut events = Vec::new();
    if names.is_empty() {
        let message = "must name at least one event";
        fields.error("events", FieldCode::NotAllowed, message);
    }
    for (at, name) in names.iter().enumerate() {
        let message = match WebhookEvent::parse(name) {
            None => {
                let known: Vec<_> = WebhookEvent::ALL.iter().map(|e| e.as_str()).collect();
                format!("must be one of {}", known.join(", "))
            }
            Some(event) if events.contains(&event) => "is named more than once".to_owned(),
            Some(event) => {
                events.push(event);
                continue;
            }
        };
        fields.error(&format!("events[{at}]"), FieldCode::NotAllowed, message);
    }
    events
}

fn refused(message: impl Into<String>) -> ServiceError {
    ServiceError::invalid(FieldError::new("url", FieldCode::NotAllowed, message))
}

impl Service {
    /// Makes a webhook; its secret is in this answer only.
    pub async fn create_webhook(
        &self,
        caller: &Caller,
        request: &WebhookRequest,
    ) -> Result<(WebhookRecord, SecretString), ServiceError> {
        let checked = self.0.sender.check(&request.parsed).await;
        checked.map_err(|refusal| match refusal {
            AddressRefusal::Private => refused("must lead to a public address"),
            AddressRefusal::Busy => ServiceError::Overloaded,
            AddressRefusal::Unresolvable => refused("must have a host that can be resolved"),
        })?;
        let secret = token::random::<SECRET_BYTES>();
        let secret = secret.map_err(|e| ServiceError::Internal(e.to_string()))?;
        let new = NewWebhook {
            account_id: caller.account_id,
            by: caller.credential,
            url: &request.url,
            events: &request.events,
            now: self.0.clock.now(),
        };
        match self.0.store.create_webhook(&new, &secret).await? {
            WebhookMade::Made(webhook) => {
                let secret = format!("{SECRET_PREFIX}{}", STANDARD.encode(secret));
                Ok((webhook, secret.into()))
            }
            WebhookMade::TooMany => Err(refused(format!(
                "would be one webhook too many: an account has at most {MAX_PER_ACCOUNT}; \
                 delete one first"
            ))),
            WebhookMade::CredentialEnded => Err(ServiceError::Token(match caller.credential {
                Credential::ApiKey(_) => TokenRefusal::Revoked,
                Credential::Session(_) => TokenRefusal::Invalid,
            })),
        }
    }

    /// One webhook of the caller's account.
    pub async fn webhook(
        &self,
        caller: &Caller,
        id: WebhookId,
    ) -> Result<WebhookRecord, ServiceError> {
        let webhook = self.0.store.webhook(caller.account_id, id).await?;
        webhook.ok_or(ServiceError::NotFound)
    }

    /// The webhooks of the caller's account.
    pub async fn webhooks(
        &self,
        caller: &Caller,
        page: &PageRequest,
    ) -> Result<Page<WebhookRecord>, ServiceError> {
        Ok(self.0.store.webhooks(caller.account_id, page).await?)
    }

    /// Deletes a webhook of the caller's account; what was not delivered yet is dropped.
    pub async fn delete_webhook(&self, caller: &Caller, id: WebhookId) -> Result<(), ServiceError> {
        let now = self.0.clock.now();
        let store = &self.0.store;
        if store.delete_webhook(caller.account_id, id, now).await? {
            Ok(())
        } else {
            Err(ServiceError::NotFound)
        }
    }

    /// The deliveries of a webhook of the caller's account.
    pub async fn deliveries(
        &self,
        caller: &Caller,
        id: WebhookId,
        page: &PageRequest,
    ) -> Result<Page<DeliveryRecord>, ServiceError> {
        self.webhook(caller, id).await?;
        let store = &self.0.store;
        Ok(store.deliveries(caller.account_id, id, page).await?)
    }

    /// Has a delivery sent again, however it ended before.
    pub async fn redeliver(
        &self,
        caller: &Caller,
        id: WebhookId,
        delivery: WebhookDeliveryId,
    ) -> Result<DeliveryRecord, ServiceError> {
        let now = self.0.clock.now();
        let (store, account) = (&self.0.store, caller.account_id);
        let delivery = store.redeliver(account, id, delivery, now).await?;
        delivery.ok_or(ServiceError::NotFound)
    }
}
