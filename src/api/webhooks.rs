//! Webhooks: create, list, look up, delete; list and resend their deliveries.

use std::sync::Arc;

use axum::{Json, response::Response};
use http::StatusCode;
use secrecy::ExposeSecret as _;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    MediaLinks,
    body::{EmptyBody, JsonBody},
    error::ApiError,
    extract::{Authorized, Manage, NoQuery, PathId, PathIds, Query},
    record::{self, GenerationRecord, PageBody},
};
use crate::{
    domain::{
        ids::{WebhookDeliveryId, WebhookId},
        page::PageOf,
    },
    jobs::webhooks::RenderRecord,
    request::WebhookRequest,
    store::{
        deliveries::{DELIVERIES_CURSOR, DeliveryRecord},
        webhooks::{WEBHOOKS_CURSOR, WebhookRecord},
    },
};

/// A new webhook.
#[derive(Serialize, ToSchema)]
pub struct NewWebhookBody {
    /// The secret that signs its deliveries. Only this response has it.
    #[schema(example = "whsec_...")]
    pub secret: String,
    /// The record.
    #[serde(flatten)]
    pub record: WebhookRecord,
}

/// Renders the record of an event as the API does, with newly signed links.
pub fn renderer(links: MediaLinks) -> RenderRecord {
    Arc::new(move |generation| {
        serde_json::to_value(GenerationRecord::of(generation.clone(), &links))
    })
}

/// Create a webhook
///
/// When a generation ends, `{"type", "timestamp", "data"}` is posted to the URL; `data` is its
/// record. Requests are signed according to Standard Webhooks, with the secret in this response:
/// they have the headers `webhook-id` (the same for every attempt), `webhook-timestamp` and
/// `webhook-signature`. A 2xx response within 15 s accepts the event; otherwise it is sent again,
/// first after 10 s and then at growing intervals for about a day. Redirects are not followed. An
/// account has at most 20 webhooks.
#[utoipa::path(
    post, path = "/v1/webhooks", tag = "webhooks",
    responses((status = 201, description = "The webhook", body = NewWebhookBody)),
)]
pub async fn create(
    auth: Authorized<Manage>,
    body: JsonBody<WebhookRequest>,
) -> Result<Response, ApiError> {
    let request = body.read()?;
    let service = &auth.service;
    let made = service.create_webhook(&auth.caller, &request, auth.form.as_ref());
    let (webhook, secret) = made.await?;
    let secret = secret.expose_secret().to_owned();
    let body = webhook.map(|record| NewWebhookBody { secret, record });
    Ok(record::created(body, StatusCode::CREATED))
}

/// List webhooks
#[utoipa::path(
    get, path = "/v1/webhooks", tag = "webhooks",
    responses((status = 200, description = "A page of webhooks, newest first", body = PageBody<WebhookRecord>)),
)]
pub async fn list(
    auth: Authorized<Manage>,
    Query(PageOf(page)): Query<PageOf<WEBHOOKS_CURSOR>>,
) -> Result<Response, ApiError> {
    let store = auth.service.store();
    let found = store.webhooks(auth.caller.account_id, &page).await?;
    Ok(record::page(found, &auth.uri, |webhook| webhook))
}

/// Look up a webhook
#[utoipa::path(
    get, path = "/v1/webhooks/{id}", tag = "webhooks",
    responses((status = 200, description = "The webhook", body = WebhookRecord)),
)]
pub async fn get(
    auth: Authorized<Manage>,
    PathId(id): PathId<WebhookId>,
    _query: NoQuery,
) -> Result<Json<WebhookRecord>, ApiError> {
    Ok(Json(auth.service.webhook(&auth.caller, id).await?))
}

/// Delete a webhook
///
/// Pending deliveries are dropped; one that is being sent may still arrive.
#[utoipa::path(
    delete, path = "/v1/webhooks/{id}", tag = "webhooks",
    responses((status = 204, description = "Deleted")),
)]
pub async fn delete(
    auth: Authorized<Manage>,
    PathId(id): PathId<WebhookId>,
    _query: NoQuery,
) -> Result<StatusCode, ApiError> {
    auth.service.delete_webhook(&auth.caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// List a webhook's deliveries
///
/// Finished deliveries are kept for 30 days, unless the server is configured otherwise.
#[utoipa::path(
    get, path = "/v1/webhooks/{id}/deliveries", tag = "webhooks",
    responses((status = 200, description = "A page of deliveries, newest first", body = PageBody<DeliveryRecord>)),
)]
pub async fn deliveries(
    auth: Authorized<Manage>,
    PathId(id): PathId<WebhookId>,
    Query(PageOf(page)): Query<PageOf<DELIVERIES_CURSOR>>,
) -> Result<Response, ApiError> {
    let found = auth.service.deliveries(&auth.caller, id, &page).await?;
    Ok(record::page(found, &auth.uri, |delivery| delivery))
}

/// Resend a delivery
///
/// Any delivery can be resent, also one that succeeded or was given up. A pending delivery becomes
/// due now. If it fails, it is retried like a new one.
#[utoipa::path(
    post, path = "/v1/webhooks/{id}/deliveries/{delivery}/redeliver", tag = "webhooks",
    responses((status = 202, description = "The delivery, pending", body = DeliveryRecord)),
)]
pub async fn redeliver(
    auth: Authorized<Manage>,
    PathIds(id, delivery): PathIds<WebhookId, WebhookDeliveryId>,
    _query: NoQuery,
    _body: EmptyBody,
) -> Result<(StatusCode, Json<DeliveryRecord>), ApiError> {
    let account = auth.caller.account_id;
    let found = auth.service.redeliver(account, Some(id), delivery).await?;
    Ok((StatusCode::ACCEPTED, Json(found)))
}
