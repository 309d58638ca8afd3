//! Server processes and the work that they left behind.
//!
//! A process keeps one row fresh instead of one lease for each generation. The database's own
//! clock decides, so that replicas whose clocks differ agree.

use std::time::Duration;

use super::{Store, StoreError, bounded, exactly_one};
use crate::domain::ids::{GenerationId, InstanceId};

impl Store {
    /// Says that this process lives.
    pub async fn heartbeat(&self, instance: InstanceId) -> Result<(), StoreError> {
        let beat = sqlx::query!(
            "insert into instances (id, seen_at) values ($1, clock_timestamp())
             on conflict (id) do update set seen_at = excluded.seen_at",
            instance.0
        )
        .execute(&self.reserved);
        exactly_one("a heartbeat", bounded(beat).await?.rows_affected())
    }

    /// Takes this process off the list.
    pub async fn retire(&self, instance: InstanceId) -> Result<(), StoreError> {
        sqlx::query!("delete from instances where id = $1", instance.0)
            .execute(&self.reserved)
            .await?;
        Ok(())
    }

    /// Takes every other process off the list: right only where this one is known to be alone.
    pub async fn retire_others(&self, instance: InstanceId) -> Result<(), StoreError> {
        sqlx::query!("delete from instances where id <> $1", instance.0)
            .execute(&self.reserved)
            .await?;
        Ok(())
    }

    /// Takes processes off the list that have not been seen for `lease`.
    pub async fn retire_silent(&self, lease: Duration) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            "delete from instances
             where seen_at < clock_timestamp() - make_interval(secs => $1)",
            lease.as_secs_f64()
        )
        .execute(&self.reserved)
        .await?;
        Ok(done.rows_affected())
    }

    /// Unfinished generations whose process is gone, with the process's id.
    pub async fn abandoned(
        &self,
        limit: i64,
    ) -> Result<Vec<(GenerationId, InstanceId)>, StoreError> {
        let rows = sqlx::query!(
            r#"
            select g.id, g.lease_token as "lease_token!"
            from generations g
            where g.status in ('pending', 'processing') and g.lease_token is not null
              and not exists (select from instances i where i.id = g.lease_token)
            order by g.id limit $1
            "#,
            limit
        )
        .fetch_all(&self.reserved)
        .await?;
        Ok(rows
            .into_iter()
            .map(|r| (GenerationId(r.id), InstanceId(r.lease_token)))
            .collect())
    }

    /// Unfinished generations that are this process's to finish.
    pub async fn owned(&self, instance: InstanceId) -> Result<Vec<GenerationId>, StoreError> {
        let rows = sqlx::query_scalar!(
            "select id from generations
             where status in ('pending', 'processing') and lease_token = $1",
            instance.0
        )
        .fetch_all(&self.reserved)
        .await?;
        Ok(rows.into_iter().map(GenerationId).collect())
    }
}
