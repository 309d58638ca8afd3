//! Server processes and the work that they left behind.
//!
//! A process keeps one row fresh instead of one lease for each generation. Others see by their
//! own monotonic clocks for how long it has not changed: no clock is compared with another.

use chrono::{DateTime, Utc};

use super::{Store, StoreError};
use crate::domain::ids::{AccountId, GenerationId, InstanceId};

impl Store {
    pub async fn time(&self) -> Result<DateTime<Utc>, StoreError> {
        let reading = sqlx::query_scalar!(r#"select clock_timestamp() as "now!""#)
            .fetch_one(self.heartbeat.named("read the time"));
        Ok(reading.await?)
    }

    /// Says that this process lives. Answers the database's time.
    pub async fn heartbeat(&self, instance: InstanceId) -> Result<DateTime<Utc>, StoreError> {
        let beat = sqlx::query_scalar!(
            "insert into instances (id, seen_at) values ($1, clock_timestamp())
             on conflict (id) do update set seen_at = excluded.seen_at
             returning seen_at",
            instance.0
        )
        .fetch_one(self.heartbeat.named("heartbeat"));
        Ok(beat.await?)
    }

    /// Says that this process lives, and reads in the same statement whether there is anything for
    /// a sweep to do.
    pub async fn survey(&self, instance: InstanceId) -> Result<Survey, StoreError> {
        let reading = sqlx::query!(
            r#"
            with beat as (
                insert into instances (id, seen_at) values ($1, clock_timestamp())
                on conflict (id) do update set seen_at = excluded.seen_at
            )
            select array(select id from instances where id <> $1 order by id)
                   as "others!: Vec<InstanceId>",
                   array(select seen_at from instances where id <> $1 order by id)
                   as "heard!: Vec<DateTime<Utc>>",
                   exists (select from running_generations g
                           where g.lease_token is not null
                             and not exists (select from instances i where i.id = g.lease_token))
                   as "abandoned!",
                   exists (select from running_generations where lease_token = $1) as "owns!",
                   (select min(next_step_at) from running_generations where lease_token is null)
                   as first_step,
                   (select max(next_step_at) from running_generations where lease_token is null)
                   as last_step,
                   (select min(next_attempt_at) from webhook_deliveries where status = 'pending')
                   as next_attempt,
                   coalesce((select settled from finished_generations order by settled desc limit 1)
                            >= (select upto from settled_cursors where name = 'usage'), false)
                   as "uncounted!"
            "#,
            instance.0
        )
        .fetch_one(self.jobs.named("survey"));
        let row = reading.await?;
        Ok(Survey {
            others: row.others.into_iter().zip(row.heard).collect(),
            abandoned: row.abandoned,
            owns: row.owns,
            first_step: row.first_step,
            last_step: row.last_step,
            next_attempt: row.next_attempt,
            uncounted: row.uncounted,
        })
    }

    /// Takes this process off the list.
    pub async fn deregister(&self, instance: InstanceId) -> Result<(), StoreError> {
        sqlx::query!("delete from instances where id = $1", instance.0)
            .execute(self.heartbeat.named("deregister"))
            .await?;
        Ok(())
    }

    /// Takes every other process off the list: right only where this one is known to be alone.
    pub async fn retire_others(&self, instance: InstanceId) -> Result<(), StoreError> {
        sqlx::query!("delete from instances where id <> $1", instance.0)
            .execute(self.heartbeat.named("deregister all others"))
            .await?;
        Ok(())
    }

    /// Takes a process off the list, unless it has been heard after `seen_at`.
    pub async fn retire_silent(
        &self,
        instance: InstanceId,
        seen_at: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let retiring = sqlx::query!(
            "delete from instances where id = $1 and seen_at = $2",
            instance.0,
            seen_at
        )
        .execute(self.heartbeat.named("deregister a silent instance"));
        retiring.await?;
        Ok(())
    }

    /// Makes the room of ended rows free, unless another process does so now.
    pub async fn vacuum_running(&self) -> Result<(), StoreError> {
        sqlx::raw_sql("vacuum (skip_locked, truncate false) running_generations")
            .execute(self.jobs.named("make room").long())
            .await?;
        Ok(())
    }

    /// Unfinished generations whose process is gone.
    pub async fn abandoned(&self, limit: i64) -> Result<Vec<Abandoned>, StoreError> {
        let reading = sqlx::query_as!(
            Abandoned,
            r#"
            select g.id as "id: _", g.account_id as "account_id: _", g.lease_token as "owner!: _",
                   deadline_at is not null and (submitted_at is null or remote_id is not null)
                   as "resumable!"
            from running_generations g
            where g.lease_token is not null
              and not exists (select from instances i where i.id = g.lease_token)
            order by g.id limit $1
            "#,
            limit
        )
        .fetch_all(self.jobs.named("find abandoned generations"));
        Ok(reading.await?)
    }

    /// Unfinished generations that are this process's to finish.
    pub async fn owned(&self, instance: InstanceId) -> Result<Vec<Abandoned>, StoreError> {
        let reading = sqlx::query_as!(
            Abandoned,
            r#"select id as "id: _", account_id as "account_id: _", lease_token as "owner!: _",
                   deadline_at is not null and (submitted_at is null or remote_id is not null)
                   as "resumable!"
             from running_generations where lease_token = $1"#,
            instance.0
        )
        .fetch_all(self.jobs.named("find own generations"));
        Ok(reading.await?)
    }
}

/// What a sweep may have to do.
#[derive(Debug)]
pub struct Survey {
    /// When the other processes were last heard, by the database's clock.
    pub others: Vec<(InstanceId, DateTime<Utc>)>,
    /// Whether there are unfinished generations whose process is gone.
    pub abandoned: bool,
    /// Whether there are unfinished generations of this process.
    pub owns: bool,
    /// When the first and the last job are due that nobody works on.
    pub first_step: Option<DateTime<Utc>>,
    pub last_step: Option<DateTime<Utc>>,
    /// When the first delivery to a webhook is due.
    pub next_attempt: Option<DateTime<Utc>>,
    /// Whether the sums of usage lack something.
    pub uncounted: bool,
}

/// A generation whose worker is, or may be, gone.
#[derive(Debug, Clone)]
pub struct Abandoned {
    pub id: GenerationId,
    pub account_id: AccountId,
    pub owner: InstanceId,
    /// Whether another worker can go on: nothing was submitted yet, or the provider's task is
    /// known.
    pub resumable: bool,
}
