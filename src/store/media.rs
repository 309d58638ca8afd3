//! The secret that signs links to files, and files to remove.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use sqlx::types::Json;
use uuid::Uuid;

use super::{Result, Store};
use crate::domain::{
    generation::Output,
    ids::{AccountId, GenerationId},
};

/// The files in a generation's record.
#[derive(Debug)]
pub struct StoredFiles {
    pub account_id: AccountId,
    pub id: GenerationId,
    pub outputs: Json<Vec<Output>>,
}

impl Store {
    /// Returns a secret of this installation. The first replica stores `fresh`.
    pub async fn secret(&self, name: &str, fresh: &[u8]) -> Result<Vec<u8>> {
        sqlx::query!(
            "insert into secrets (name, value) values ($1, $2) on conflict (name) do nothing",
            name,
            fresh
        )
        .execute(self.requests.named("create the signing secret"))
        .await?;
        let value = sqlx::query_scalar!("select value from secrets where name = $1", name)
            .fetch_one(self.requests.named("read the signing secret"))
            .await?;
        Ok(value)
    }

    /// Returns the next generations with files, ordered by account and id.
    pub async fn stored_files(
        &self,
        after: (AccountId, GenerationId),
        limit: i64,
    ) -> Result<Vec<StoredFiles>> {
        let reading = sqlx::query_as!(
            StoredFiles,
            r#"select account_id as "account_id: _", id as "id: _", outputs as "outputs!: _"
               from finished_generations
               where (account_id, id) > ($1, $2) and outputs is not null
               order by account_id, id limit $3"#,
            after.0.0,
            after.1.0,
            limit
        )
        .fetch_all(self.requests.named("read the names of files").long());
        Ok(reading.await?)
    }

    /// Returns all unfinished generations.
    pub async fn running_generations(&self) -> Result<HashSet<GenerationId>> {
        let found =
            sqlx::query_scalar!(r#"select id as "id: GenerationId" from running_generations"#)
                .fetch_all(self.requests.named("list unfinished generations"))
                .await?;
        Ok(found.into_iter().collect())
    }

    /// Returns which of these files are about to be removed or belong to an upload. Uses one
    /// statement, because an upload moves a file from `media_trash` to `uploads`.
    pub async fn trash_or_uploads_among(&self, ids: &[Uuid]) -> Result<HashSet<GenerationId>> {
        let found = sqlx::query_scalar!(
            r#"select generation_id as "id!: GenerationId" from media_trash
               where generation_id = any($1)
               union all select file_id from uploads where file_id = any($1)"#,
            ids
        )
        .fetch_all(self.requests.named("find files that are to be removed"))
        .await?;
        Ok(found.into_iter().collect())
    }

    /// Returns generations that ended before `before` and whose files are to be removed, oldest
    /// first.
    pub async fn media_trash(
        &self,
        before: DateTime<Utc>,
        limit: i64,
    ) -> Result<Vec<GenerationId>> {
        let reading = sqlx::query_scalar!(
            r#"select generation_id as "id: GenerationId" from media_trash where created_at <= $1
               order by created_at limit $2"#,
            before,
            limit
        )
        .fetch_all(self.requests.named("find files to remove").long());
        Ok(reading.await?)
    }

    /// Moves a failed removal to the end of the queue.
    pub async fn postpone_removal(&self, id: GenerationId, now: DateTime<Utc>) -> Result<()> {
        sqlx::query!(
            "update media_trash set created_at = $2 where generation_id = $1",
            id.0,
            now
        )
        .execute(self.requests.named("postpone a removal"))
        .await?;
        Ok(())
    }

    /// Records that a generation's files were removed.
    pub async fn media_removed(&self, id: GenerationId) -> Result<()> {
        sqlx::query!("delete from media_trash where generation_id = $1", id.0)
            .execute(self.requests.named("forget removed files"))
            .await?;
        Ok(())
    }

    /// Deletes about `batch` finished generations created before `before`, as their owner would, in
    /// the order of settlement. Returns `true` if there may be more.
    pub async fn delete_old_generations(
        &self,
        before: DateTime<Utc>,
        now: DateTime<Utc>,
        batch: i64,
    ) -> Result<bool> {
        let looked_at = sqlx::query_scalar!(
            r#"
            with cursor as materialized (
                select upto from settled_cursors where name = 'retention'
                for update skip locked
            ), next as materialized (
                -- Whole transactions, since the cursor counts those.
                select account_id, id, settled, created_at from finished_generations
                where settled >= (select upto from cursor)
                  and settled < pg_snapshot_xmin(pg_current_snapshot())
                order by settled fetch first $3 rows with ties
            ), part as materialized (
                select least(min(settled) filter (where created_at >= $1),
                             (max(settled)::text::bigint + 1)::text::xid8) as until
                from next
            ), generation as (
                update finished_generations g
                set deleted_at = $2, prompt = '', system_prompt = null, negative_prompt = null,
                    result = null, outputs = null, answer = null, parameters = '{}', error_message = null,
                    route = route - 'dropped'
                from next, part
                where g.account_id = next.account_id and g.id = next.id
                  and g.account_id = any(array(select account_id from next))
                  and g.id = any(array(select id from next))
                  and next.settled < part.until and g.deleted_at is null
                returning g.id, g.model_id
            ), attempts as (
                delete from generation_attempts
                where generation_id = any(array(select id from generation))
                  and outcome not in ('unknown', 'account_refused')
            ), reported_attempts as (
                -- Kept for the reports of operators.
                update generation_attempts set provider_request_id = null
                where generation_id = any(array(select id from generation))
                  and outcome in ('unknown', 'account_refused') and provider_request_id is not null
            ), trash as (
                insert into media_trash (generation_id, created_at)
                select g.id, $2 from generation g join models m on m.id = g.model_id
                where m.type <> 'text' on conflict do nothing
            ), moved as (
                update settled_cursors c set upto = part.until
                from part where c.name = 'retention' and part.until > c.upto
            )
            select count(*) as "count!" from next, part where next.settled < part.until
            "#,
            before,
            now,
            batch,
        )
        .fetch_one(self.walks.named("delete old generations").long())
        .await?;
        Ok(looked_at >= batch)
    }
}
