//! Webhooks: create, list, look up, delete; their deliveries, and sending one again.

use std::sync::Arc;

use axum::{Json, extract::State, response::Response};
use chrono::{DateTime, Utc};
use http::{StatusCode, Uri};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    ApiState, MediaLinks,
    body::{EmptyBody, JsonBody},
    error::ApiError,
    extract::{Authorized, Manage, NoQuery, PathId, PathIds, Query, SubmittedForm},
    record::{self, GenerationRecord, PageBody},
};
use crate::{
    domain::{
        clock::rfc3339,
        ids::{GenerationId, WebhookDeliveryId, WebhookId},
        page::PageOf,
        request::WebhookRequest,
        webhook::{DeliveryStatus, WebhookEvent},
    },
    jobs::webhooks::RenderRecord,
    store::{
        deliveries::{DELIVERIES_CURSOR, DeliveryRecord},
        webhooks::{WEBHOOKS_CURSOR, WebhookRecord},
    },
};

/// A webhook, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub struct WebhookBody {
    /// Its id.
    pub id: WebhookId,
    /// The URL that events are posted to.
    pub url: String,
    /// Which events.
    pub events: Vec<WebhookEvent>,
    /// When it was made.
    #[serde(serialize_with = "rfc3339")]
    pub created_at: DateTime<Utc>,
}

/// A webhook just made.
#[derive(Serialize, ToSchema)]
pub struct NewWebhookBody {
    /// Signs its deliveries: in this answer only.
    #[schema(example = "whsec_...")]
    pub secret: String,
    /// The record.
    #[serde(flatten)]
    pub record: WebhookBody,
}

/// One event on its way to one webhook.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeliveryBody {
    /// Its id.
    pub id: WebhookDeliveryId,
    /// The event.
    pub event: WebhookEvent,
    /// The generation of the event.
    #[schema(value_type = String, format = "uuid")]
    pub generation: GenerationId,
    /// The state of the delivery.
    pub status: DeliveryStatus,
    /// Attempts so far, one that is under way included.
    pub attempts: i32,
    /// The last status of the receiver; null if it did not answer.
    #[schema(required, nullable)]
    pub response_status: Option<u16>,
    /// Why the last attempt failed.
    #[schema(required, nullable)]
    pub error: Option<String>,
    /// When it is tried next; null unless pending.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub next_attempt_at: Option<DateTime<Utc>>,
    /// When the last attempt began.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub last_attempt_at: Option<DateTime<Utc>>,
    /// When the event happened.
    #[serde(serialize_with = "rfc3339")]
    pub created_at: DateTime<Utc>,
    /// When it was last delivered.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub delivered_at: Option<DateTime<Utc>>,
}

impl From<WebhookRecord> for WebhookBody {
    fn from(webhook: WebhookRecord) -> Self {
        Self {
            id: webhook.id,
            url: webhook.url,
            events: webhook.events,
            created_at: webhook.created_at,
        }
    }
}

impl NewWebhookBody {
    fn new(record: WebhookRecord, secret: &SecretString) -> Self {
        Self {
            secret: secret.expose_secret().to_owned(),
            record: record.into(),
        }
    }
}

impl From<DeliveryRecord> for DeliveryBody {
    fn from(delivery: DeliveryRecord) -> Self {
        Self {
            id: delivery.id,
            event: delivery.event,
            generation: delivery.generation,
            status: delivery.status,
            attempts: delivery.attempts,
            response_status: delivery.response_status.and_then(|s| s.try_into().ok()),
            error: delivery.error,
            next_attempt_at: delivery.next_attempt_at,
            last_attempt_at: delivery.last_attempt_at,
            created_at: delivery.created_at,
            delivered_at: delivery.delivered_at,
        }
    }
}

/// Renders the record of an event as a lookup would, with newly signed links.
pub fn renderer(links: MediaLinks) -> RenderRecord {
    Arc::new(move |generation| {
        serde_json::to_value(GenerationRecord::of(generation.clone(), &links))
    })
}

/// Create a webhook
///
/// When a generation ends, `{"type", "timestamp", "data"}` is posted to the URL, `data` being
/// its record. Signed as Standard Webhooks has it: `webhook-id` (the same for every attempt),
/// `webhook-timestamp` and `webhook-signature`, with the secret of this answer. An answer of
/// 2xx within 15 s takes the event; otherwise it is sent again, after 10 s at first and then
/// more and more slowly for about a day. Redirects are not followed. An account has at most 20.
#[utoipa::path(
    post, path = "/v1/webhooks", tag = "webhooks",
    responses((status = 201, description = "The webhook", body = NewWebhookBody)),
)]
pub async fn create(
    State(state): State<ApiState>,
    auth: Authorized<Manage>,
    SubmittedForm(form): SubmittedForm,
    body: JsonBody<WebhookRequest>,
) -> Result<Response, ApiError> {
    let request = body.read()?;
    let service = &state.service;
    let made = service.create_webhook(&auth.caller, &request, form.as_ref());
    let (webhook, secret) = made.await?;
    let body = webhook.map(|webhook| NewWebhookBody::new(webhook, &secret));
    Ok(record::created(body, StatusCode::CREATED))
}

/// List webhooks
#[utoipa::path(
    get, path = "/v1/webhooks", tag = "webhooks",
    responses((status = 200, description = "A page of webhooks, newest first", body = PageBody<WebhookBody>)),
)]
pub async fn list(
    State(state): State<ApiState>,
    auth: Authorized<Manage>,
    query: Query<PageOf<WEBHOOKS_CURSOR>>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let PageOf(page) = query.read()?;
    let found = state.service.webhooks(&auth.caller, &page).await?;
    Ok(record::page(found, &uri, WebhookBody::from))
}

/// Look up a webhook
#[utoipa::path(
    get, path = "/v1/webhooks/{id}", tag = "webhooks",
    params(("id" = i64, Path, description = "The webhook's id")),
    responses((status = 200, description = "The webhook", body = WebhookBody)),
)]
pub async fn get(
    State(state): State<ApiState>,
    auth: Authorized<Manage>,
    PathId(id): PathId<WebhookId>,
    _query: NoQuery,
) -> Result<Json<WebhookBody>, ApiError> {
    Ok(Json(state.service.webhook(&auth.caller, id).await?.into()))
}

/// Delete a webhook
///
/// Deliveries that wait are dropped; one that is being sent may still arrive.
#[utoipa::path(
    delete, path = "/v1/webhooks/{id}", tag = "webhooks",
    params(("id" = i64, Path, description = "The webhook's id")),
    responses((status = 204, description = "Deleted")),
)]
pub async fn delete(
    State(state): State<ApiState>,
    auth: Authorized<Manage>,
    PathId(id): PathId<WebhookId>,
    _query: NoQuery,
) -> Result<StatusCode, ApiError> {
    state.service.delete_webhook(&auth.caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List a webhook's deliveries
///
/// Finished ones are kept for 30 days, unless the server is set otherwise.
#[utoipa::path(
    get, path = "/v1/webhooks/{id}/deliveries", tag = "webhooks",
    params(
        ("id" = i64, Path, description = "The webhook's id"),
    ),
    responses((status = 200, description = "A page of deliveries, newest first", body = PageBody<DeliveryBody>)),
)]
pub async fn deliveries(
    State(state): State<ApiState>,
    auth: Authorized<Manage>,
    PathId(id): PathId<WebhookId>,
    query: Query<PageOf<DELIVERIES_CURSOR>>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let PageOf(page) = query.read()?;
    let found = state.service.deliveries(&auth.caller, id, &page).await?;
    Ok(record::page(found, &uri, DeliveryBody::from))
}

/// Send a delivery again
///
/// Also one that was delivered or given up; a pending one becomes due now. If it fails, it is
/// tried again for as long as a new one.
#[utoipa::path(
    post, path = "/v1/webhooks/{id}/deliveries/{delivery}/redeliver", tag = "webhooks",
    params(
        ("id" = i64, Path, description = "The webhook's id"),
        ("delivery" = i64, Path, description = "The delivery's id"),
    ),
    responses((status = 202, description = "The delivery, pending", body = DeliveryBody)),
)]
pub async fn redeliver(
    State(state): State<ApiState>,
    auth: Authorized<Manage>,
    PathIds(id, delivery): PathIds<WebhookId, WebhookDeliveryId>,
    _query: NoQuery,
    _body: EmptyBody,
) -> Result<(StatusCode, Json<DeliveryBody>), ApiError> {
    let account = auth.caller.account_id;
    let found = state.service.redeliver(account, Some(id), delivery).await?;
    Ok((StatusCode::ACCEPTED, Json(found.into())))
}
