//! Webhooks: where an account's events go. Their deliveries are in [`super::deliveries`].

use chrono::{DateTime, TimeDelta, Utc};

use super::{Store, StoreError, exactly_one, generations::Credential};
use crate::domain::{
    ids::{AccountId, WebhookId},
    page::{Cursor, Page, PageRequest},
    webhook::{MAX_PER_ACCOUNT, WebhookEvent},
};

/// The letter of the webhook list's cursors.
pub const WEBHOOKS_CURSOR: u8 = b'w';
/// How long a deleted webhook's row stays: no settlement that began before takes as long.
const SETTLEMENT_AT_MOST: TimeDelta = TimeDelta::hours(1);

/// A webhook to be stored.
#[derive(Debug)]
pub struct NewWebhook<'a> {
    pub account_id: AccountId,
    /// Who asks for it, and must still be a caller when it is stored.
    pub by: Credential,
    pub url: &'a str,
    pub events: &'a [WebhookEvent],
    /// When it is made.
    pub now: DateTime<Utc>,
}

/// How making a webhook ended.
#[derive(Debug)]
pub enum WebhookMade {
    Made(WebhookRecord),
    /// The account has as many as it may have.
    TooMany,
    /// The key or session has ended meanwhile.
    CredentialEnded,
}

/// A stored webhook, without its secret.
#[derive(Debug, Clone)]
pub struct WebhookRecord {
    pub id: WebhookId,
    pub url: String,
    pub events: Vec<WebhookEvent>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

struct WebhookRow {
    id: i64,
    url: String,
    events: Vec<String>,
    created_at: DateTime<Utc>,
}

impl Store {
    /// Stores a webhook with the secret that signs its deliveries, unless the account has as
    /// many as it may have. Deleted ones do not count.
    pub async fn create_webhook(
        &self,
        new: &NewWebhook<'_>,
        secret: &[u8],
    ) -> Result<WebhookMade, StoreError> {
        let mut tx = self.requests.named("create a webhook").begin().await?;
        // One at a time for an account. Not its row's lock, for which settlements would wait.
        sqlx::query!(
            "select pg_advisory_xact_lock(hashtextextended('webhooks of ' || $1::bigint, 0))",
            new.account_id.0
        )
        .execute(&mut tx)
        .await?;
        // A statement of its own, so that it sees what was stored while it waited.
        let count = sqlx::query_scalar!(
            r#"select count(*) as "count!" from webhooks
               where account_id = $1 and deleted_at is null"#,
            new.account_id.0
        )
        .fetch_one(&mut tx)
        .await?;
        if count >= MAX_PER_ACCOUNT {
            return Ok(WebhookMade::TooMany);
        }
        let (key, session) = new.by.ids();
        let events: Vec<String> = new.events.iter().map(ToString::to_string).collect();
        // The row of the asking token is locked, so that its revocation and this are in an
        // order.
        let row = sqlx::query_as!(
            WebhookRow,
            "with by_key as (
                 select 1 from api_keys
                 where id = $6 and revoked_at is null and (expires_at is null or expires_at > $5)
                 for share
             ), by_session as (
                 select 1 from sessions
                 where id = $7 and revoked_at is null and expires_at > $5
                 for share
             )
             insert into webhooks (account_id, url, events, secret, created_at)
             select $1, $2, $3, $4, $5
             where exists (select from by_key) or exists (select from by_session)
             returning id, url, events, created_at",
            new.account_id.0,
            new.url,
            &events,
            secret,
            new.now,
            key,
            session,
        )
        .fetch_optional(&mut tx)
        .await?;
        tx.commit().await?;
        match row {
            Some(row) => Ok(WebhookMade::Made(row.try_into()?)),
            None => Ok(WebhookMade::CredentialEnded),
        }
    }

    /// One webhook of an account, unless it was deleted.
    pub async fn webhook(
        &self,
        account: AccountId,
        id: WebhookId,
    ) -> Result<Option<WebhookRecord>, StoreError> {
        sqlx::query_as!(
            WebhookRow,
            "select id, url, events, created_at from webhooks
             where account_id = $1 and id = $2 and deleted_at is null",
            account.0,
            id.0,
        )
        .fetch_optional(self.requests.named("read a webhook"))
        .await?
        .map(TryInto::try_into)
        .transpose()
    }

    /// The account's webhooks, newest first.
    pub async fn webhooks(
        &self,
        account: AccountId,
        page: &PageRequest,
    ) -> Result<Page<WebhookRecord>, StoreError> {
        let rows = sqlx::query_as!(
            WebhookRow,
            "select id, url, events, created_at from webhooks
             where account_id = $1 and deleted_at is null and ($2::bigint is null or id < $2)
             order by id desc limit $3",
            account.0,
            page.after_number(),
            page.per_page + 1,
        )
        .fetch_all(self.requests.named("list webhooks"))
        .await?;
        let rows = rows
            .into_iter()
            .map(TryInto::try_into)
            .collect::<Result<_, _>>()?;
        Ok(Page::from_surplus(
            rows,
            page.per_page,
            |webhook: &WebhookRecord| Cursor::Number(WEBHOOKS_CURSOR, webhook.id.0),
        ))
    }

    /// Deletes a webhook: nothing is sent to it any more, but for what is on its way just now.
    /// Its secret is gone at once; its row and its deliveries go with the next purges. `false`:
    /// it is not there.
    pub async fn delete_webhook(
        &self,
        account: AccountId,
        id: WebhookId,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            "update webhooks set deleted_at = $3, secret = ''
             where account_id = $1 and id = $2 and deleted_at is null",
            account.0,
            id.0,
            now,
        )
        .execute(self.requests.named("delete a webhook"))
        .await?;
        match done.rows_affected() {
            0 => Ok(false),
            rows => exactly_one("deleting a webhook", rows).map(|()| true),
        }
    }

    /// Removes up to `batch` webhooks that were deleted long enough ago and have no delivery
    /// left.
    pub(super) async fn purge_webhooks(
        &self,
        now: DateTime<Utc>,
        batch: i64,
    ) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            "delete from webhooks where id in (
                 select id from webhooks w
                 where deleted_at < $1
                   and not exists (select from webhook_deliveries d where d.webhook_id = w.id)
                 limit $2)",
            now - SETTLEMENT_AT_MOST,
            batch
        )
        .execute(self.requests.named("purge webhooks").long())
        .await?;
        Ok(done.rows_affected())
    }
}

impl TryFrom<WebhookRow> for WebhookRecord {
    type Error = StoreError;

    fn try_from(row: WebhookRow) -> Result<Self, StoreError> {
        let events = row.events.iter().map(|name| {
            WebhookEvent::parse(name)
                .ok_or_else(|| StoreError::Corrupt(format!("events of webhook {}", row.id)))
        });
        Ok(Self {
            id: WebhookId(row.id),
            events: events.collect::<Result<_, _>>()?,
            url: row.url,
            created_at: row.created_at,
        })
    }
}
