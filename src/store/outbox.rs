//! The outbox of webhooks: which deliveries are due, taking them for an attempt, and how it
//! ended. Each replica may take any; a death during an attempt only delays the next.

use chrono::{DateTime, Utc};
use secrecy::SecretSlice;

use super::{Store, StoreError};
use crate::domain::{
    ids::{AccountId, GenerationId, WebhookDeliveryId, WebhookId},
    webhook::{DeliveryStatus, WebhookEvent},
};

/// A webhook that has pending deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    pub webhook: WebhookId,
    /// Whose; `None`: nobody's any more.
    pub account: Option<AccountId>,
    /// Whether one of them is due.
    pub due: bool,
}

/// A delivery that was taken for one attempt.
#[derive(Debug)]
pub struct Attempt {
    pub id: WebhookDeliveryId,
    pub webhook: WebhookId,
    pub account: AccountId,
    pub event: WebhookEvent,
    pub generation: GenerationId,
    /// When the event happened.
    pub created_at: DateTime<Utc>,
    /// The number of this attempt, from 1.
    pub number: i32,
    /// The same, counted from when the owner last asked for the delivery.
    pub in_series: i32,
    pub began_at: DateTime<Utc>,
    pub url: String,
    pub secret: SecretSlice<u8>,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptEnd {
    /// Where the delivery stands now.
    pub status: DeliveryStatus,
    /// When it is tried again; `Some` exactly while pending.
    pub next_attempt_at: Option<DateTime<Utc>>,
    /// What the receiver answered.
    pub response_status: Option<u16>,
    /// Why it failed, in words that the owner may read.
    pub error: Option<String>,
    /// When it was delivered; `None` leaves what is stored.
    pub delivered_at: Option<DateTime<Utc>>,
}

impl Store {
    /// The next `limit` webhooks beyond `after` that have pending deliveries, by id. Steps over
    /// an index from one to the next, so that the cost is by webhooks and not by what waits in
    /// front of one of them.
    pub async fn queues(
        &self,
        after: WebhookId,
        now: DateTime<Utc>,
        limit: i32,
    ) -> Result<Vec<Queue>, StoreError> {
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

    /// Takes due deliveries, of each webhook at most the number beside it. They are due again
    /// at `lease_until`, unless their attempt has ended by then. Others' are skipped, not
    /// waited for.
    pub async fn take_deliveries(
        &self,
        wanted: &[(WebhookId, i64)],
        now: DateTime<Utc>,
        lease_until: DateTime<Utc>,
    ) -> Result<Vec<Attempt>, StoreError> {
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
                // A newer server's, for it to deliver; the others are taken all the same.
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
                began_at: now,
                url: row.url,
                secret: row.secret.into(),
            })
        });
        Ok(attempts.collect())
    }

    /// Records how an attempt ended. `false`: the delivery was taken anew since, or its owner
    /// has asked for it anew, and this attempt no longer counts.
    pub async fn record_attempt(
        &self,
        id: WebhookDeliveryId,
        number: i32,
        end: &AttemptEnd,
    ) -> Result<bool, StoreError> {
        let recording = sqlx::query!(
            "update webhook_deliveries
             set status = $3, next_attempt_at = $4, response_status = $5, error = $6,
                 delivered_at = coalesce($7, delivered_at)
             where id = $1 and attempts = $2 and status = 'pending'
               -- Not when the owner has asked for it anew meanwhile.
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
