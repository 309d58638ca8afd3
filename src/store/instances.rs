//! Server processes, and unfinished work of dead ones.
//!
//! A process updates one row instead of a lease per generation. Others measure with their own
//! monotonic clocks how long it has not changed, so that clocks are never compared.

use chrono::{DateTime, Utc};

use super::{Result, Store};
use crate::domain::ids::{AccountId, GenerationId, InstanceId};

impl Store {
    pub async fn time(&self) -> Result<DateTime<Utc>> {
        let reading = sqlx::query_scalar!(r#"select clock_timestamp() as "now!""#)
            .fetch_one(self.heartbeat.named("read the time"));
        Ok(reading.await?)
    }

    /// Writes this process's heartbeat. Returns the database's time.
    pub async fn heartbeat(&self, instance: InstanceId) -> Result<DateTime<Utc>> {
        let beat = sqlx::query_scalar!(
            "insert into instances (id, seen_at, knows_routes)
             values ($1, clock_timestamp(), true)
             on conflict (id) do update set seen_at = excluded.seen_at
             returning seen_at",
            instance.0
        )
        .fetch_one(self.heartbeat.named("heartbeat"));
        Ok(beat.await?)
    }

    /// Writes the heartbeat, and reads in the same statement whether there is work for a sweep.
    pub async fn survey(&self, instance: InstanceId) -> Result<Survey> {
        let reading = sqlx::query_as!(
            Survey,
            r#"
            with beat as (
                insert into instances (id, seen_at, knows_routes)
                values ($1, clock_timestamp(), true)
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
        Ok(reading.await?)
    }

    /// Removes this process.
    pub async fn deregister(&self, instance: InstanceId) -> Result<()> {
        sqlx::query!("delete from instances where id = $1", instance.0)
            .execute(self.heartbeat.named("deregister"))
            .await?;
        Ok(())
    }

    /// Removes all other processes. Only correct if no other one runs.
    pub async fn retire_others(&self, instance: InstanceId) -> Result<()> {
        sqlx::query!("delete from instances where id <> $1", instance.0)
            .execute(self.heartbeat.named("deregister all others"))
            .await?;
        Ok(())
    }

    /// Removes a process without a heartbeat after `seen_at`.
    pub async fn retire_silent(&self, instance: InstanceId, seen_at: DateTime<Utc>) -> Result<()> {
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
    pub async fn vacuum_running(&self) -> Result<()> {
        sqlx::raw_sql("vacuum (skip_locked, truncate false) running_generations")
            .execute(self.jobs.named("make room").long())
            .await?;
        Ok(())
    }

    /// Unfinished generations of removed processes.
    pub async fn abandoned(&self, limit: i64) -> Result<Vec<Abandoned>> {
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

    /// Unfinished generations of this process.
    pub async fn owned(&self, instance: InstanceId) -> Result<Vec<Abandoned>> {
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

/// Possible work of a sweep.
#[derive(Debug)]
pub struct Survey {
    /// The other processes.
    pub others: Vec<InstanceId>,
    /// Their last heartbeats, by the database's clock.
    pub heard: Vec<DateTime<Utc>>,
    /// Whether removed processes have unfinished generations.
    pub abandoned: bool,
    /// Whether this process has unfinished generations.
    pub owns: bool,
    /// First and last due time of jobs without a worker.
    pub first_step: Option<DateTime<Utc>>,
    pub last_step: Option<DateTime<Utc>>,
    /// First due time of webhook deliveries.
    pub next_attempt: Option<DateTime<Utc>>,
    /// Whether settled generations are missing in the sums of usage.
    pub uncounted: bool,
}

/// A generation whose worker may be dead.
#[derive(Debug, Clone)]
pub struct Abandoned {
    pub id: GenerationId,
    pub account_id: AccountId,
    pub owner: InstanceId,
    /// Whether another worker can continue: nothing was submitted yet, or the provider's task is
    /// known.
    pub resumable: bool,
}
