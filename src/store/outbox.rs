//! The outbox of webhooks: finds due deliveries, claims them for an attempt and records its
//! outcome. Any replica may claim any; a crash during an attempt only delays the next.

use chrono::{DateTime, Utc};
use secrecy::SecretSlice;

use super::{Result, Store};
use crate::domain::{
    ids::{AccountId, GenerationId, WebhookDeliveryId, WebhookId},
    webhook::{DeliveryStatus, WebhookEvent},
};

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
    pub event: WebhookEvent,
    pub generation: GenerationId,
    pub created_at: DateTime<Utc>,
    /// Number of this attempt, from 1.
    pub number: i32,
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
    /// The next `limit` webhooks after `after` with pending deliveries, by id. A loose index scan,
    /// so that the cost depends on webhooks and not on their queues.
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

    /// Claims due deliveries, at most the given number of each webhook. They are due again at
    /// `lease_until`, unless their attempt has ended by then. Locked ones are skipped.
    pub async fn take_deliveries(
        &self,
        wanted: &[(WebhookId, i64)],
        now: DateTime<Utc>,
        lease_until: DateTime<Utc>,
    ) -> Result<Vec<Attempt>> {
        let (webhooks, most): (Vec<i64>, Vec<i64>) =
            wanted.iter().map(|&(id, most)| (id.0, most)).unzip();
        let taking = sqlx::query!(
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
        let rows = taking.await?;
        let attempts = rows.into_iter().filter_map(|row| {
            let Some(event) = WebhookEvent::parse(&row.event) else {
                // A newer server must deliver it.
                tracing::error!(delivery = %row.id, event = row.event, "an unknown event");
                return None;
            };
            Some(Attempt {
                id: row.id,
                webhook: row.webhook,
                account: row.account,
                event,
                generation: row.generation,
                created_at: row.created_at,
                number: row.attempts,
                in_series: row.in_series,
                url: row.url,
                secret: row.secret.into(),
            })
        });
        Ok(attempts.collect())
    }

    /// Records the outcome of an attempt. `false`: the delivery was claimed or requested again
    /// since, so this attempt does not count.
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
