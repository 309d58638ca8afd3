//! Server processes, and the unfinished work of dead ones.
//!
//! A process updates one row instead of a lease per generation. Others measure with their own
//! monotonic clocks how long the row has not changed, so clocks of different machines are never
//! compared.
//!
//! Servers notify each other with LISTEN and NOTIFY, on the channel `gensvc`. The statements that
//! make a change send the notification. A lost notification only delays work, because waiters also
//! poll.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{
    postgres::{PgListener, PgPoolOptions},
    raw_sql,
};
use tokio::time::timeout;
use uuid::Uuid;

use super::{
    Hosts, Result, Store,
    pool::{CONNECT_LIMIT, PROBE_LIMIT, SETTINGS, timed_out},
};
use crate::domain::ids::{AccountId, GenerationId, InstanceId};

const CHANNEL: &str = "gensvc";
/// A connection without notifications for longer is pinged: it may be dead, or lead to a standby,
/// which sends none.
const PROBE_AFTER: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A job was queued.
    Jobs,
    /// A job ended, or a text did that another server was asked to end.
    Ended(GenerationId),
    /// A text that another server may stream is to be ended.
    Cancel(GenerationId),
    /// Webhook deliveries became due.
    Deliveries,
    /// A catalogue reload was requested.
    Catalogue,
    /// The connection is new: any notification may have been missed.
    Missed,
}

/// Notifications of all servers, including this one.
#[derive(Debug)]
pub struct Notices {
    hosts: Hosts,
    listener: Option<PgListener>,
}

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

    /// Writes the heartbeat and reads, in the same statement, whether a sweep has work.
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

    /// Removes all other processes. Only correct if none of them is running.
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

    /// Vacuums the table of running generations, unless another process is doing so.
    pub async fn vacuum_running(&self) -> Result<()> {
        raw_sql("vacuum (skip_locked, truncate false) running_generations")
            .execute(self.jobs.named("make room").long())
            .await?;
        Ok(())
    }

    /// Returns unfinished generations of removed processes, except those of the accounts `except`.
    pub async fn abandoned(&self, limit: i64, except: &[AccountId]) -> Result<Vec<Abandoned>> {
        let except: Vec<i64> = except.iter().map(|account| account.0).collect();
        let reading = sqlx::query_as!(
            Abandoned,
            r#"
            select g.id as "id: _", g.account_id as "account_id: _", g.lease_token as "owner!: _",
                   deadline_at is not null and (submitted_at is null or remote_id is not null)
                   as "resumable!"
            from running_generations g
            where g.lease_token is not null
              and not exists (select from instances i where i.id = g.lease_token)
              and g.account_id <> all($2)
            order by g.id limit $1
            "#,
            limit,
            &except
        )
        .fetch_all(self.jobs.named("find abandoned generations"));
        Ok(reading.await?)
    }

    /// Returns unfinished generations of this process.
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

    /// Asks all servers to reload their catalogues.
    pub async fn request_catalogue_reload(&self) -> Result<()> {
        let request = sqlx::query!(
            r#"with requested as (
                   update catalogue_reloads set requested = requested + 1 returning requested
               )
               select pg_notify('gensvc', 'catalogue') from requested"#
        );
        request
            .fetch_one(self.requests.named("request catalogue reload"))
            .await?;
        Ok(())
    }

    /// Returns the number of reload requests so far.
    pub async fn requested_catalogue_reloads(&self) -> Result<i64> {
        let reading = sqlx::query_scalar!("select requested from catalogue_reloads")
            .fetch_one(self.requests.named("read catalogue reloads"));
        Ok(reading.await?)
    }

    pub fn notices(&self) -> Notices {
        Notices {
            hosts: self.hosts.clone(),
            listener: None,
        }
    }
}

/// Work that a sweep may have.
#[derive(Debug)]
pub struct Survey {
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
    /// Whether the sums of usage lack settled generations.
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

impl Notices {
    /// Waits for the next notification. Reconnects after an error.
    pub async fn next(&mut self) -> Result<Notice> {
        loop {
            let Some(listener) = &mut self.listener else {
                self.listener = Some(listen(&self.hosts).await?);
                return Ok(Notice::Missed);
            };
            match timeout(PROBE_AFTER, listener.try_recv()).await {
                Ok(Ok(Some(notification))) => match Notice::parse(notification.payload()) {
                    Some(notice) => return Ok(notice),
                    None => tracing::debug!("a notice of another version"),
                },
                Ok(Ok(None) | Err(_)) => self.listener = None,
                Err(_elapsed) => {
                    let probe = raw_sql(r#"LISTEN "gensvc""#).execute(listener);
                    if !matches!(timeout(PROBE_LIMIT, probe).await, Ok(Ok(_))) {
                        self.listener = None;
                    }
                }
            }
        }
    }
}

impl Notice {
    fn parse(payload: &str) -> Option<Self> {
        let (kind, id) = payload.split_once(' ').unwrap_or((payload, ""));
        let id = || Uuid::parse_str(id).ok().map(GenerationId);
        match kind {
            "jobs" => Some(Self::Jobs),
            "ended" => id().map(Self::Ended),
            "cancel" => id().map(Self::Cancel),
            "deliveries" => Some(Self::Deliveries),
            "catalogue" => Some(Self::Catalogue),
            _ => None,
        }
    }
}

/// Opens a listener with its own pool, which is dropped with it: a shared pool would wait for a
/// dead connection.
async fn listen(hosts: &Hosts) -> Result<PgListener, sqlx::Error> {
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .connect_lazy_with(hosts.last().clone());
    let listening = async {
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        raw_sql(SETTINGS).execute(&mut listener).await?;
        listener.listen(CHANNEL).await?;
        Ok(listener)
    };
    timeout(CONNECT_LIMIT, listening)
        .await
        .unwrap_or_else(|_elapsed| Err(timed_out("listen")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_of_another_version_is_none() {
        let id = Uuid::from_u128(7);
        let ended = Notice::parse(&format!("ended {id}"));
        assert_eq!(ended, Some(Notice::Ended(GenerationId(id))));
        let cancel = Notice::parse(&format!("cancel {id}"));
        assert_eq!(cancel, Some(Notice::Cancel(GenerationId(id))));
        assert_eq!(Notice::parse("jobs"), Some(Notice::Jobs));
        assert_eq!(Notice::parse("catalogue"), Some(Notice::Catalogue));
        assert_eq!(Notice::parse("deliveries"), Some(Notice::Deliveries));
        for unknown in ["", "job", "ended", "ended 7", "cancel ", "begun 7"] {
            assert_eq!(Notice::parse(unknown), None, "{unknown}");
        }
    }
}
