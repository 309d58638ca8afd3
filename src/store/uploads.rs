//! Uploaded images. A file exists as long as its row. `media_trash` lists files that are being
//! written or whose row is deleted, so that a crash leaves no unreferenced file.

use chrono::{DateTime, Utc};
use sqlx::PgExecutor;
use uuid::Uuid;

use super::{Result, Store, exactly_one};
use crate::domain::{
    ids::{AccountId, GenerationId, UploadId},
    page::{Cursor, Page, PageRequest},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadRecord {
    pub id: UploadId,
    /// The folder of the file in the media store.
    pub file_id: Uuid,
    pub content_type: String,
    pub bytes: i64,
    /// Pixels, as displayed.
    pub width: i32,
    /// Pixels, as displayed.
    pub height: i32,
    pub sha256: Vec<u8>,
    pub created_at: DateTime<Utc>,
    /// When its owner stops seeing it.
    pub expires_at: DateTime<Utc>,
}

/// Minimum lifetime of an upload. Another use can only extend it.
#[derive(Debug, Clone, Copy)]
pub struct UploadLifetime {
    /// The owner can see it until then.
    pub expires_at: DateTime<Utc>,
    /// Accepted generations may read it until then.
    pub kept_until: DateTime<Utc>,
}

/// A file that `media verify` expects.
#[derive(Debug)]
pub struct UploadFile {
    pub account_id: AccountId,
    pub id: UploadId,
    pub file_id: Uuid,
    pub content_type: String,
    pub bytes: i64,
}

/// Total bytes of an account's uploads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadBytes {
    pub all: i64,
    /// The part that only accepted generations need.
    pub transient: i64,
}

#[derive(Debug, PartialEq, Eq)]
pub enum UploadStored {
    /// The row, with the file just written or that of an earlier upload.
    Stored(UploadRecord),
    /// The account would exceed its quota.
    OverQuota(UploadBytes),
    /// The row was not inserted in time and the file has been removed, or the account was deleted.
    TooLate,
}

impl Store {
    /// Adds a file that is about to be written to `media_trash`, so that it is removed unless
    /// [`Self::store_upload`] follows.
    pub async fn begin_upload(&self, file_id: Uuid, now: DateTime<Utc>) -> Result<()> {
        let done = sqlx::query!(
            "insert into media_trash (generation_id, created_at) values ($1, $2)",
            file_id,
            now
        )
        .execute(self.requests.named("begin an upload"))
        .await?;
        exactly_one("beginning an upload", done.rows_affected())
    }

    /// Inserts the row of a written file. If the account already has the same bytes, the file stays
    /// in `media_trash` and the earlier upload is extended instead.
    pub async fn store_upload(
        &self,
        account: AccountId,
        new: &UploadRecord,
        term: UploadLifetime,
        quota: i64,
    ) -> Result<UploadStored> {
        let mut tx = self.requests.named("store an upload").begin().await?;
        // Serializes the uploads of an account. Locking its row would block settlements.
        sqlx::query!(
            "select pg_advisory_xact_lock(hashtextextended('uploads of ' || $1::bigint, 0))",
            account.0
        )
        .execute(&mut tx)
        .await?;
        let (id, now) = (new.id, new.created_at);
        if let Some(before) = extend(&mut tx, account, id, term, false, now).await? {
            tx.commit().await?;
            return Ok(UploadStored::Stored(before));
        }
        let used = sqlx::query_as!(
            UploadBytes,
            r#"select coalesce(sum(bytes), 0)::bigint as "all!",
                      coalesce(sum(bytes) filter (where expires_at <= $2), 0)::bigint
                          as "transient!"
               from uploads where account_id = $1 and greatest(expires_at, kept_until) > $2"#,
            account.0,
            new.created_at,
        )
        .fetch_one(&mut tx)
        .await?;
        if used.all.saturating_add(new.bytes) > quota {
            return Ok(UploadStored::OverQuota(used));
        }
        // Replaces an expired upload of the same bytes that the purge has not deleted yet.
        sqlx::query!(
            "with gone as (
                 delete from uploads where account_id = $1 and id = $2 returning file_id
             )
             insert into media_trash (generation_id, created_at) select file_id, $3 from gone",
            account.0,
            new.id.0,
            new.created_at,
        )
        .execute(&mut tx)
        .await?;
        let stored = sqlx::query_as!(
            UploadRecord,
            r#"with file as (
                   delete from media_trash where generation_id = $3 returning generation_id
               )
               insert into uploads (account_id, id, file_id, content_type, bytes, width, height,
                                    sha256, created_at, expires_at, kept_until)
               select $1, $2, generation_id, $4, $5, $6, $7, $8, $9, $10, $11 from file
               where exists (select from accounts where id = $1 and deleted_at is null)
               returning id as "id: _", file_id, content_type, bytes, width, height, sha256,
                         created_at, expires_at"#,
            account.0,
            new.id.0,
            new.file_id,
            new.content_type,
            new.bytes,
            new.width,
            new.height,
            new.sha256,
            new.created_at,
            term.expires_at,
            term.kept_until,
        )
        .fetch_optional(&mut tx)
        .await?;
        let Some(stored) = stored else {
            // Rolled back, so that `media_trash` still names the file.
            return Ok(UploadStored::TooLate);
        };
        tx.commit().await?;
        Ok(UploadStored::Stored(stored))
    }

    /// Extends an upload that is still needed. `visible`: only if its owner can still see it.
    pub async fn extend_upload(
        &self,
        account: AccountId,
        id: UploadId,
        term: UploadLifetime,
        visible: bool,
        now: DateTime<Utc>,
    ) -> Result<Option<UploadRecord>> {
        let executor = self.requests.named("extend an upload");
        extend(executor, account, id, term, visible, now).await
    }

    /// Returns an upload of an account, unless it has expired or was deleted.
    pub async fn upload(
        &self,
        account: AccountId,
        id: UploadId,
        now: DateTime<Utc>,
    ) -> Result<Option<UploadRecord>> {
        let reading = sqlx::query_as!(
            UploadRecord,
            r#"select id as "id: _", file_id, content_type, bytes, width, height, sha256,
                      created_at, expires_at
               from uploads where account_id = $1 and id = $2 and expires_at > $3"#,
            account.0,
            id.0,
            now,
        )
        .fetch_optional(self.requests.named("read an upload"));
        Ok(reading.await?)
    }

    /// Lists the account's uploads, newest first.
    pub async fn uploads(
        &self,
        account: AccountId,
        page: &PageRequest,
        now: DateTime<Utc>,
    ) -> Result<Page<UploadRecord>> {
        let rows = sqlx::query_as!(
            UploadRecord,
            r#"select id as "id: _", file_id, content_type, bytes, width, height, sha256,
                      created_at, expires_at
               from uploads
               where account_id = $1 and expires_at > $4 and ($2::uuid is null or file_id < $2)
               order by file_id desc limit $3"#,
            account.0,
            page.after_generation(),
            page.per_page + 1,
            now,
        )
        .fetch_all(self.requests.named("list uploads"))
        .await?;
        Ok(Page::from_surplus(
            rows,
            page.per_page,
            |upload: &UploadRecord| Cursor::Generation(upload.file_id),
        ))
    }

    /// Hides an upload from its owner. Returns `false` if there is none. A use that began earlier
    /// does not make it visible again.
    pub async fn hide_upload(
        &self,
        account: AccountId,
        id: UploadId,
        now: DateTime<Utc>,
    ) -> Result<bool> {
        let hidden = sqlx::query!(
            "update uploads set expires_at = 'epoch'
             where account_id = $1 and id = $2 and expires_at > $3",
            account.0,
            id.0,
            now,
        )
        .execute(self.requests.named("hide an upload"))
        .await?;
        Ok(hidden.rows_affected() > 0)
    }

    /// Deletes an account's uploads that are neither visible to the owner nor read by a running
    /// generation, and returns their files, which the caller must remove. `kept_until`: only
    /// uploads that are not kept for longer; every later use has extended them.
    pub async fn delete_unused_uploads(
        &self,
        account: AccountId,
        ids: &[UploadId],
        kept_until: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) -> Result<Vec<GenerationId>> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let reading = sqlx::query_scalar!(
            r#"with gone as (
                   delete from uploads u
                   where account_id = $1 and id = any($2) and expires_at <= $4
                     and ($3::timestamptz is null or kept_until <= $3)
                     and not exists (
                         select from running_generations r
                         where r.account_id = $1
                           and strpos((r.parameters -> 'inputs')::text, u.file_id::text) > 0)
                   returning file_id
               )
               insert into media_trash (generation_id, created_at) select file_id, $4 from gone
               returning generation_id as "id: GenerationId""#,
            account.0,
            &ids,
            kept_until,
            now,
        )
        .fetch_all(self.requests.named("delete unused uploads"));
        Ok(reading.await?)
    }

    /// Whether a file still belongs to an upload.
    pub async fn has_upload_file(&self, account: AccountId, file_id: Uuid) -> Result<bool> {
        let reading = sqlx::query_scalar!(
            r#"select exists (select from uploads where account_id = $1 and file_id = $2)
               as "found!""#,
            account.0,
            file_id
        )
        .fetch_one(self.requests.named("find the upload of a file"));
        Ok(reading.await?)
    }

    /// Returns the next uploads, ordered by account and id.
    pub async fn upload_files(
        &self,
        after: (AccountId, UploadId),
        limit: i64,
    ) -> Result<Vec<UploadFile>> {
        let reading = sqlx::query_as!(
            UploadFile,
            r#"select account_id as "account_id: _", id as "id: _", file_id, content_type, bytes
               from uploads where (account_id, id) > ($1, $2)
               order by account_id, id limit $3"#,
            after.0.0,
            after.1.0,
            limit
        )
        .fetch_all(self.requests.named("read the names of uploads").long());
        Ok(reading.await?)
    }
}

async fn extend(
    executor: impl PgExecutor<'_>,
    account: AccountId,
    id: UploadId,
    term: UploadLifetime,
    visible: bool,
    now: DateTime<Utc>,
) -> Result<Option<UploadRecord>> {
    let reading = sqlx::query_as!(
        UploadRecord,
        r#"update uploads
           -- Later than any term: see delete_unused_uploads.
           set expires_at = greatest(expires_at, $3),
               kept_until = greatest(kept_until, $4) + interval '1 microsecond'
           where account_id = $1 and id = $2 and greatest(expires_at, kept_until) > $6
             and (not $5 or expires_at > $6)
           returning id as "id: _", file_id, content_type, bytes, width, height, sha256,
                     created_at, expires_at"#,
        account.0,
        id.0,
        term.expires_at,
        term.kept_until,
        visible,
        now,
    )
    .fetch_optional(executor);
    Ok(reading.await?)
}
