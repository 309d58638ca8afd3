//! Webhook deliveries: their log, their purge, and the outbox, which finds due deliveries, claims
//! them for an attempt and records its outcome. Any replica may claim any delivery; a crash during
//! an attempt only delays the next one.

use chrono::{DateTime, Utc};
use secrecy::SecretSlice;
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

/// The delivery of one event to one webhook.
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
    /// Attempts so far, including one in progress.
    pub attempts: i32,
    /// The last status of the receiver; null if it did not answer.
    #[schema(required, nullable, value_type = Option<u16>)]
    pub response_status: Option<i32>,
    /// Why the last attempt failed.
    #[schema(required, nullable)]
    pub error: Option<String>,
    /// When the next attempt is due; null unless pending.
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

/// A webhook that has pending deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    pub webhook: WebhookId,
    /// `None`: the webhook was deleted.
    pub account: Option<AccountId>,
    pub due: bool,
}

/// A delivery claimed for one attempt.
#[derive(Debug)]
pub struct Attempt {
    pub id: WebhookDeliveryId,
    pub webhook: WebhookId,
    pub account: AccountId,
    /// The name of a [`WebhookEvent`].
    pub event: String,
    pub generation: GenerationId,
    pub created_at: DateTime<Utc>,
    /// Number of attempts, including this one.
    pub attempts: i32,
    /// Number of this attempt since the owner last requested the delivery.
    pub in_series: i32,
    pub url: String,
    pub secret: SecretSlice<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptEnd {
    pub status: DeliveryStatus,
    /// `Some` exactly while pending.
    pub next_attempt_at: Option<DateTime<Utc>>,
    pub response_status: Option<u16>,
    /// Shown to the owner.
    pub error: Option<String>,
    /// `None` keeps the stored time.
    pub delivered_at: Option<DateTime<Utc>>,
}

impl Store {
    /// Returns the deliveries of one of the account's webhooks, newest first.
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

    /// Makes a delivery due now, even after its end, and restarts its backoff. Returns `None` if it
    /// or its webhook does not exist.
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

    /// Returns the next `limit` webhooks after `after` with pending deliveries, by id. Uses a loose
    /// index scan, so that the cost depends on the number of webhooks, not of deliveries.
    pub async fn queues(
        &self,
        after: WebhookId,
        now: DateTime<Utc>,
        limit: i32,
    ) -> Result<Vec<Queue>> {
        let reading = sqlx::query_as!(
            Queue,
            r#"
            with recursive queue as (
                (select webhook_id, next_attempt_at, 1 as number from webhook_deliveries
                 where status = 'pending' and webhook_id > $1
                 order by webhook_id, next_attempt_at limit 1)
                union all
                select next.webhook_id, next.next_attempt_at, queue.number + 1
                from queue cross join lateral (
                    select d.webhook_id, d.next_attempt_at from webhook_deliveries d
                    where d.status = 'pending' and d.webhook_id > queue.webhook_id
                    order by d.webhook_id, d.next_attempt_at limit 1) next
                where queue.number < $3
            )
            select q.webhook_id as "webhook!: _", q.next_attempt_at <= $2 as "due!",
                   (select w.account_id from webhooks w
                    where w.id = q.webhook_id and w.deleted_at is null) as "account?: _"
            from queue q order by q.webhook_id
            "#,
            after.0,
            now,
            limit,
        )
        .fetch_all(self.requests.named("read webhook queues"));
        Ok(reading.await?)
    }

    /// Claims due deliveries, at most the given number for each webhook, and makes them due again
    /// at `lease_until` in case their attempt has no result by then. Skips locked rows.
    pub async fn take_deliveries(
        &self,
        wanted: &[(WebhookId, i64)],
        now: DateTime<Utc>,
        lease_until: DateTime<Utc>,
    ) -> Result<Vec<Attempt>> {
        let (webhooks, most): (Vec<i64>, Vec<i64>) =
            wanted.iter().map(|&(id, most)| (id.0, most)).unzip();
        let taking = sqlx::query_as!(
            Attempt,
            r#"
            with taken as materialized (
                select due.id
                from unnest($1::bigint[], $2::bigint[]) as wanted (webhook_id, most)
                join webhooks w on w.id = wanted.webhook_id and w.deleted_at is null
                cross join lateral (
                    select d.id from webhook_deliveries d
                    where d.webhook_id = wanted.webhook_id and d.status = 'pending'
                      and d.next_attempt_at <= $3
                    order by d.next_attempt_at limit wanted.most
                    for update skip locked) due
            )
            update webhook_deliveries d
            set attempts = d.attempts + 1, last_attempt_at = $3, next_attempt_at = $4
            from webhooks w
            -- An array, so that the plan goes by the few ids whatever it expects of their number.
            where d.id = any (array(select id from taken)) and w.id = d.webhook_id
            returning d.id as "id: WebhookDeliveryId", d.webhook_id as "webhook: WebhookId",
                      d.account_id as "account: AccountId", d.event, d.generation_id as "generation: GenerationId", d.created_at,
                      d.attempts, d.attempts - d.earlier_attempts as "in_series!",
                      w.url, w.secret
            "#,
            &webhooks,
            &most,
            now,
            lease_until,
        )
        .fetch_all(self.requests.named("take deliveries"));
        let mut attempts = taking.await?;
        attempts.retain(|attempt| {
            let is_known = WebhookEvent::parse(&attempt.event).is_some();
            if !is_known {
                // A newer server must deliver it.
                tracing::error!(delivery = %attempt.id, event = attempt.event, "an unknown event");
            }
            is_known
        });
        Ok(attempts)
    }

    /// Records the outcome of an attempt. Returns `false`, without recording it, if the delivery
    /// was claimed or requested again since.
    pub async fn record_attempt(
        &self,
        id: WebhookDeliveryId,
        number: i32,
        end: &AttemptEnd,
    ) -> Result<bool> {
        let recording = sqlx::query!(
            "update webhook_deliveries
             set status = $3, next_attempt_at = $4, response_status = $5, error = $6,
                 delivered_at = coalesce($7, delivered_at)
             where id = $1 and attempts = $2 and status = 'pending'
               -- Unless the owner has requested it again meanwhile.
               and earlier_attempts < attempts",
            id.0,
            number,
            end.status.as_str(),
            end.next_attempt_at,
            end.response_status.map(i32::from),
            end.error,
            end.delivered_at,
        )
        .execute(self.requests.named("record a delivery attempt"));
        Ok(recording.await?.rows_affected() == 1)
    }
}
