//! Server processes and the work that they left behind.
//!
//! A process keeps one row fresh instead of one lease for each generation. The database's own
//! clock decides, so that replicas whose clocks differ agree.

use std::time::Duration;

use uuid::Uuid;

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
        let retiring = sqlx::query!(
            "delete from instances
             where seen_at < clock_timestamp() - make_interval(secs => $1)",
            lease.as_secs_f64()
        )
        .execute(&self.reserved);
        Ok(bounded(retiring).await?.rows_affected())
    }

    /// Unfinished generations whose process is gone.
    pub async fn abandoned(&self, limit: i64) -> Result<Vec<Abandoned>, StoreError> {
        let reading = sqlx::query_as!(
            AbandonedRow,
            r#"
            select g.id, g.lease_token as "lease_token!",
                   type in ('video', 'audio') and (submitted_at is null or remote_id is not null)
                   as "resumable!"
            from generations g
            where g.status in ('pending', 'processing') and g.lease_token is not null
              and not exists (select from instances i where i.id = g.lease_token)
            order by g.id limit $1
            "#,
            limit
        )
        .fetch_all(&self.reserved);
        let rows = bounded(reading).await?;
        Ok(rows.into_iter().map(Abandoned::from).collect())
    }

    /// Unfinished generations that are this process's to finish.
    pub async fn owned(&self, instance: InstanceId) -> Result<Vec<Abandoned>, StoreError> {
        let reading = sqlx::query_as!(
            AbandonedRow,
            r#"select id, lease_token as "lease_token!",
                   type in ('video', 'audio') and (submitted_at is null or remote_id is not null)
                   as "resumable!"
             from generations
             where status in ('pending', 'processing') and lease_token = $1"#,
            instance.0
        )
        .fetch_all(&self.reserved);
        let rows = bounded(reading).await?;
        Ok(rows.into_iter().map(Abandoned::from).collect())
    }
}

/// A generation whose worker is, or may be, gone.
#[derive(Debug, Clone, Copy)]
pub struct Abandoned {
    /// Which.
    pub id: GenerationId,
    /// Whose it was.
    pub owner: InstanceId,
    /// Whether another worker can go on: nothing was submitted yet, or the provider's task is
    /// known.
    pub resumable: bool,
}

struct AbandonedRow {
    id: Uuid,
    lease_token: Uuid,
    resumable: bool,
}

impl From<AbandonedRow> for Abandoned {
    fn from(row: AbandonedRow) -> Self {
        Self {
            id: GenerationId(row.id),
            owner: InstanceId(row.lease_token),
            resumable: row.resumable,
        }
    }
}
