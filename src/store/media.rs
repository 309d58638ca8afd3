//! What the database knows of files: the secret that links are signed with, and files that
//! are to be removed.

use chrono::{DateTime, Utc};

use super::{Store, StoreError, history::lowest_id};
use crate::domain::ids::GenerationId;

impl Store {
    /// A secret of this installation. The first replica to ask makes it from `fresh`.
    pub async fn secret(&self, name: &str, fresh: &[u8]) -> Result<Vec<u8>, StoreError> {
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

    /// Generations that ended before `before` and whose files are to be removed, oldest first.
    pub async fn media_trash(
        &self,
        before: DateTime<Utc>,
        limit: i64,
    ) -> Result<Vec<GenerationId>, StoreError> {
        let ids = sqlx::query_scalar!(
            r#"select generation_id as "id: GenerationId" from media_trash where created_at <= $1
               order by created_at limit $2"#,
            before,
            limit
        )
        .fetch_all(self.requests.named("find files to remove").long())
        .await?;
        Ok(ids)
    }

    /// Puts a removal that failed to the end of the queue.
    pub async fn postpone_removal(
        &self,
        id: GenerationId,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "update media_trash set created_at = $2 where generation_id = $1",
            id.0,
            now
        )
        .execute(self.requests.named("postpone a removal"))
        .await?;
        Ok(())
    }

    /// Notes that a generation's files are gone.
    pub async fn media_removed(&self, id: GenerationId) -> Result<(), StoreError> {
        sqlx::query!("delete from media_trash where generation_id = $1", id.0)
            .execute(self.requests.named("forget removed files"))
            .await?;
        Ok(())
    }

    /// Deletes finished generations made before `before`, as their owner would, at most
    /// `batch` of them. Answers how many.
    pub async fn delete_old_generations(
        &self,
        before: DateTime<Utc>,
        now: DateTime<Utc>,
        batch: i64,
    ) -> Result<i64, StoreError> {
        let deleted = sqlx::query_scalar!(
            r#"
            with generation as (
                update generations
                set deleted_at = $2, prompt = '', system_prompt = null, negative_prompt = null,
                    result = null, outputs = '[]', parameters = '{}', error_message = null
                where id in (
                    select id from generations
                    where deleted_at is null and status in ('completed', 'failed')
                      and created_at < $1 and id < $4
                    order by id limit $3
                    for update skip locked
                )
                returning id, type
            ), trash as (
                insert into media_trash (generation_id, created_at)
                select id, $2 from generation where type <> 'text' on conflict do nothing
            )
            select count(*) as "count!" from generation
            "#,
            before,
            now,
            batch,
            lowest_id(before),
        )
        .fetch_one(self.requests.named("delete old generations").long())
        .await?;
        Ok(deleted)
    }
}
