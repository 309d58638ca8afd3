//! Webhooks. Their deliveries are in [`super::deliveries`].

use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Result, Store, exactly_one, generations::Credential};
use crate::{
    domain::{
        clock::rfc3339,
        ids::{AccountId, WebhookId},
        page::{Page, PageRequest},
        webhook::{MAX_PER_ACCOUNT, WebhookEvent},
    },
    request::WebhookRequest,
};

/// Prefix of the webhook list's cursors.
pub const WEBHOOKS_CURSOR: u8 = b'w';

#[derive(Debug)]
pub enum WebhookMade {
    Made(WebhookRecord),
    /// The account is at its limit.
    TooMany,
    /// The caller's key or session has ended.
    CredentialEnded,
}

/// A webhook, without its secret.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = WebhookBody)]
pub struct WebhookRecord {
    /// Its id.
    pub id: WebhookId,
    /// The URL that events are posted to.
    pub url: String,
    /// The events that are delivered.
    pub events: Vec<WebhookEvent>,
    /// When it was created.
    #[serde(serialize_with = "rfc3339")]
    pub created_at: DateTime<Utc>,
}

impl Store {
    /// Stores a webhook and its signing secret, unless the account is at its limit (deleted
    /// webhooks do not count). `by`: the caller, whose key or session is checked again. `form`: the
    /// unique digest of the form that creates it.
    pub async fn create_webhook(
        &self,
        account: AccountId,
        by: Credential,
        new: &WebhookRequest,
        secret: &[u8],
        form: Option<&[u8]>,
        now: DateTime<Utc>,
    ) -> Result<WebhookMade> {
        let mut tx = self.requests.named("create a webhook").begin().await?;
        // Serializes by account. Settlements wait for the account's row, so another lock is used.
        sqlx::query!(
            "select pg_advisory_xact_lock(hashtextextended('webhooks of ' || $1::bigint, 0))",
            account.0
        )
        .execute(&mut tx)
        .await?;
        // A second statement, which sees webhooks stored while the first one waited.
        let count = sqlx::query_scalar!(
            r#"select count(*) as "count!" from webhooks
               where account_id = $1 and deleted_at is null"#,
            account.0
        )
        .fetch_one(&mut tx)
        .await?;
        if count >= MAX_PER_ACCOUNT {
            return Ok(WebhookMade::TooMany);
        }
        let (key, session) = by.ids();
        let events: Vec<String> = new.events.iter().map(ToString::to_string).collect();
        let webhook = sqlx::query_as!(
            WebhookRecord,
            r#"insert into webhooks (account_id, url, events, secret, created_at, form_digest)
               select $1, $2, $3, $4, $5, $8 where lock_live_caller($6, $7, $5)
               returning id as "id: _", url, events as "events: _", created_at"#,
            account.0,
            new.url.0,
            &events,
            secret,
            now,
            key,
            session,
            form,
        )
        .fetch_optional(&mut tx)
        .await?;
        tx.commit().await?;
        Ok(webhook.map_or(WebhookMade::CredentialEnded, WebhookMade::Made))
    }

    /// Finds the webhook created by the form with this digest. It may be deleted.
    pub async fn webhook_of_form(
        &self,
        account: AccountId,
        form: &[u8],
    ) -> Result<Option<WebhookId>> {
        let reading = sqlx::query_scalar!(
            r#"select id as "id: WebhookId" from webhooks
               where account_id = $1 and form_digest = $2"#,
            account.0,
            form,
        );
        let reading = reading.fetch_optional(self.requests.named("find a webhook by its form"));
        Ok(reading.await?)
    }

    /// Returns a webhook of an account, unless it was deleted.
    pub async fn webhook(
        &self,
        account: AccountId,
        id: WebhookId,
    ) -> Result<Option<WebhookRecord>> {
        let reading = sqlx::query_as!(
            WebhookRecord,
            r#"select id as "id: _", url, events as "events: _", created_at from webhooks
             where account_id = $1 and id = $2 and deleted_at is null"#,
            account.0,
            id.0,
        )
        .fetch_optional(self.requests.named("read a webhook"));
        Ok(reading.await?)
    }

    /// Returns the account's webhooks, newest first.
    pub async fn webhooks(
        &self,
        account: AccountId,
        page: &PageRequest,
    ) -> Result<Page<WebhookRecord>> {
        let rows = sqlx::query_as!(
            WebhookRecord,
            r#"select id as "id: _", url, events as "events: _", created_at from webhooks
             where account_id = $1 and deleted_at is null and ($2::bigint is null or id < $2)
             order by id desc limit $3"#,
            account.0,
            page.after_number(),
            page.per_page + 1,
        )
        .fetch_all(self.requests.named("list webhooks"))
        .await?;
        Ok(page.numbered(WEBHOOKS_CURSOR, rows, |row| row.id.0))
    }

    /// Deletes a webhook and its secret; an attempt in progress is still sent. Its row and its
    /// deliveries are purged later. Returns `false` if not found.
    pub async fn delete_webhook(
        &self,
        account: AccountId,
        id: WebhookId,
        now: DateTime<Utc>,
    ) -> Result<bool> {
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
}
