//! The log of webhook deliveries and its purge. Attempts are in [`super::outbox`].

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Result, Store};
use crate::domain::{
    clock::rfc3339,
    ids::{AccountId, GenerationId, WebhookDeliveryId, WebhookId},
    page::{Page, PageRequest},
    webhook::{DeliveryStatus, WebhookEvent},
};

/// Prefix of the delivery list's cursors.
pub const DELIVERIES_CURSOR: u8 = b'd';
/// A delivery is given up this long after it was due: its receiver was overloaded for longer than
/// the whole backoff.
const OVERDUE: TimeDelta = TimeDelta::days(7);
/// The same for a delivery without an attempt, since this service may have been down.
const NEVER_TRIED: TimeDelta = TimeDelta::days(30);

/// One event on its way to one webhook.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = DeliveryBody)]
pub struct DeliveryRecord {
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
    #[schema(required, nullable, value_type = Option<u16>)]
    pub response_status: Option<i32>,
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

impl Store {
    /// The deliveries of a webhook of the account, newest first.
    pub async fn deliveries(
        &self,
        account: AccountId,
        webhook: WebhookId,
        page: &PageRequest,
    ) -> Result<Page<DeliveryRecord>> {
        let rows = sqlx::query_as!(
            DeliveryRecord,
            r#"select id as "id: _", event as "event: _", generation_id as "generation: _",
                    status as "status: _", attempts, response_status, error, next_attempt_at, last_attempt_at, created_at, delivered_at
             from webhook_deliveries
             where webhook_id = $2 and account_id = $1 and ($3::bigint is null or id < $3)
             order by id desc limit $4"#,
            account.0,
            webhook.0,
            page.after_number(),
            page.per_page + 1,
        )
        .fetch_all(self.requests.named("list deliveries").long())
        .await?;
        Ok(page.numbered(DELIVERIES_CURSOR, rows, |row| row.id.0))
    }

    /// Makes a delivery due now, even after its end, and restarts its backoff. `None`: it or its
    /// webhook does not exist.
    pub async fn redeliver(
        &self,
        account: AccountId,
        webhook: Option<WebhookId>,
        id: WebhookDeliveryId,
        now: DateTime<Utc>,
    ) -> Result<Option<DeliveryRecord>> {
        let redelivering = sqlx::query_as!(
            DeliveryRecord,
            r#"with due as (
                 update webhook_deliveries d
                 set status = 'pending', next_attempt_at = $4, earlier_attempts = attempts
                 from webhooks w
                 where d.id = $3 and d.account_id = $1
                   and ($2::bigint is null or d.webhook_id = $2)
                   and w.id = d.webhook_id and w.deleted_at is null
                 returning d.*
             ), notified as materialized (select pg_notify('gensvc', 'deliveries') from due)
             select id as "id: _", event as "event: _", generation_id as "generation: _",
                    status as "status: _", attempts, response_status, error, next_attempt_at,
                    last_attempt_at, created_at, delivered_at
             from due, notified"#,
            account.0,
            webhook.map(|webhook| webhook.0),
            id.0,
            now,
        )
        .fetch_optional(self.requests.named("redeliver an event"));
        Ok(redelivering.await?)
    }

    /// Removes up to `batch` finished deliveries of events before `before`, and as many of deleted
    /// webhooks; gives up overdue ones. `true`: there may be more.
    pub async fn purge_deliveries(
        &self,
        before: DateTime<Utc>,
        now: DateTime<Utc>,
        batch: i64,
    ) -> Result<bool> {
        let old = sqlx::query!(
            "delete from webhook_deliveries where id in (
                 select id from webhook_deliveries
                 where status <> 'pending' and created_at < $1
                 order by created_at limit $2)
               and status <> 'pending'",
            before,
            batch
        )
        .execute(self.requests.named("purge deliveries").long())
        .await?;
        let orphans = sqlx::query!(
            "delete from webhook_deliveries where id in (
                 select d.id from webhooks w join webhook_deliveries d on d.webhook_id = w.id
                 where w.deleted_at is not null limit $1)",
            batch
        )
        .execute(self.requests.named("purge attempts").long())
        .await?;
        let overdue = sqlx::query!(
            "update webhook_deliveries
             set status = 'failed', next_attempt_at = null,
                 error = 'the receiver was too slow for all of its events'
             where id in (
                 select id from webhook_deliveries
                 where status = 'pending' and next_attempt_at < $1
                   and (attempts > 0 or next_attempt_at < $3)
                 order by next_attempt_at limit $2
                 for update skip locked)",
            now - OVERDUE,
            batch,
            now - NEVER_TRIED,
        )
        .execute(self.requests.named("purge events").long())
        .await?;
        let webhooks = self.purge_webhooks(now, batch).await?;
        let most = [&old, &orphans, &overdue]
            .map(sqlx::postgres::PgQueryResult::rows_affected)
            .into_iter()
            .fold(webhooks, u64::max);
        Ok(i64::try_from(most).is_ok_and(|rows| rows >= batch))
    }
}
