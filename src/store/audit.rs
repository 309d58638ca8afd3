//! The self-audit of a running server, and the counts for GET /metrics.
//!
//! The checks read only unfinished generations and a part of the accounts, so they stay cheap with
//! millions of generations. [`super::verify`] audits everything.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{Result, Store, StoreError, credits::ENTRY_KINDS, pool::Transaction};
use crate::{
    domain::ids::GenerationId,
    observe::{PoolState, Unfinished},
};

/// Maximum differences listed per check.
const NAMED: i64 = 1_000;
/// How many of the last settled generations have their accounts checked in each self-audit.
const RECENT_GENERATIONS: i64 = 5_000;
/// Time limit of a self-audit.
const AUDIT_LIMIT: Duration = Duration::from_mins(1);
/// Time limit of a scrape.
const SCRAPE_TIME: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct AuditScope<'a> {
    /// The comparison with the ledger begins after this account id.
    pub after: i64,
    /// Maximum accounts of the window. Accounts that moved recently or have holds are added.
    pub window: i64,
    /// Accounts that differed in the last run; compared too.
    pub suspects: &'a [i64],
    /// Jobs with an earlier deadline are overdue.
    pub deadline_before: DateTime<Utc>,
    /// Generations without a deadline that were created earlier are overdue.
    pub created_before: DateTime<Utc>,
    /// Heartbeats older than this mean a dead process.
    pub silence: Duration,
}

/// The result of a self-audit.
#[derive(Debug, Default)]
pub struct LiveAudit {
    /// Accounts whose balance or holds differ from their last ledger entry.
    pub balance: Vec<i64>,
    /// Accounts whose holds differ from the sum of their unfinished generations.
    pub holds: Vec<i64>,
    /// Accounts whose count of unfinished jobs is wrong.
    pub jobs: Vec<i64>,
    /// Unfinished generations past their deadline.
    pub overdue: Vec<GenerationId>,
    /// Unfinished generations that have no living process and that no worker will claim.
    pub ownerless: Vec<GenerationId>,
    /// All balances, in micro-credits.
    pub total_balance: f64,
    /// Start of the next window of accounts.
    pub next_after: i64,
}

impl Store {
    /// Runs one self-audit in one snapshot, so that it is exact under load.
    pub async fn live_audit(&self, scope: &AuditScope<'_>) -> Result<LiveAudit> {
        let call = self.requests.named("audit a part of the ledger");
        let mut tx = call.within(AUDIT_LIMIT).begin().await?;
        sqlx::query!("set transaction isolation level repeatable read, read only")
            .execute(&mut tx)
            .await?;
        let mut found = LiveAudit::default();
        accounts_against_ledger(&mut tx, scope, &mut found).await?;
        accounts_against_generations(&mut tx, &mut found).await?;
        found.overdue = overdue(&mut tx, scope).await?;
        found.ownerless = ownerless(&mut tx, scope).await?;
        tx.commit().await?;
        Ok(found)
    }

    /// Counts unfinished generations by type and status.
    pub async fn unfinished_now(&self, now: DateTime<Utc>) -> Result<Vec<Unfinished>> {
        let reading = sqlx::query_as!(
            Unfinished,
            r#"select type as "modality: _", status as "status: _", count(*) as "count!",
                      least(sum(estimated), 9e18)::bigint as "held!",
                      greatest(extract(epoch from $1 - min(created_at)), 0)::float8
                      as "oldest_seconds!"
               from running_generations g join models m on m.id = g.model_id
               group by type, status"#,
            now
        )
        .fetch_all(self.jobs.named("count unfinished generations"));
        let unfinished = tokio::time::timeout(SCRAPE_TIME, reading)
            .await
            .map_err(|_elapsed| StoreError::from(sqlx::Error::PoolTimedOut))??;
        Ok(unfinished)
    }

    pub fn pools(&self) -> [PoolState; 7] {
        self.pools.each_ref().map(|(name, pool)| {
            let (busy, idle) = pool.usage();
            (*name, busy, idle)
        })
    }
}

/// Compares balances and holds with the newest entry of each account, by one index lookup each.
async fn accounts_against_ledger(
    tx: &mut Transaction,
    scope: &AuditScope<'_>,
    found: &mut LiveAudit,
) -> Result<()> {
    let window = sqlx::query!(
        r#"select count(*) as "count!", coalesce(max(id), 0) as "last!"
           from (select id from accounts where id > $1 order by id limit $2) w"#,
        scope.after,
        scope.window,
    )
    .fetch_one(&mut *tx)
    .await?;
    // Starts over after the last account.
    let last = if window.count == scope.window {
        window.last
    } else {
        0
    };
    found.next_after = last;
    found.balance = sqlx::query_scalar!(
        r#"
        with chosen as (
            (select id from accounts where id > $1 order by id limit $2)
            union select id from accounts where held > 0
            union select account_id from (
                select account_id from finished_generations order by settled desc limit $3) recent
            union select unnest($4::bigint[])
        )
        select a.id from chosen join accounts a using (id)
            left join lateral (
                select e.balance, e.held
                from unnest($6::text[]) kinds (kind), lateral (
                    select id, balance, held from ledger_entries e
                    where e.account_id = a.id and e.kind = kinds.kind order by e.id desc limit 1
                ) e
                order by e.id desc limit 1
            ) entry on true
        where a.balance <> coalesce(entry.balance, 0) or a.held <> coalesce(entry.held, 0)
        order by a.id limit $5
        "#,
        scope.after,
        scope.window,
        RECENT_GENERATIONS,
        scope.suspects,
        NAMED,
        &ENTRY_KINDS as _,
    )
    .fetch_all(tx)
    .await?;
    Ok(())
}

/// Compares holds and job counts of all accounts with their unfinished generations.
async fn accounts_against_generations(tx: &mut Transaction, found: &mut LiveAudit) -> Result<()> {
    let total = sqlx::query_scalar!(
        r#"select coalesce(sum(balance), 0)::float8 as "total!" from accounts"#
    );
    found.total_balance = total.fetch_one(&mut *tx).await?;
    let rows = sqlx::query!(
        r#"
        with unfinished as (
            select account_id, sum(estimated) as held, count(*) filter (where job) as jobs
            from running_generations group by account_id
        )
        select a.id, a.held <> coalesce(u.held, 0) as "held!",
               a.jobs <> coalesce(u.jobs, 0) as "count!"
        from accounts a left join unfinished u on u.account_id = a.id
        where a.held <> coalesce(u.held, 0) or a.jobs <> coalesce(u.jobs, 0)
        order by a.id limit $1
        "#,
        NAMED,
    )
    .fetch_all(tx)
    .await?;
    let which = |wrong: fn(bool, bool) -> bool| {
        let wrong = rows.iter().filter(|row| wrong(row.held, row.count));
        wrong.map(|row| row.id).collect()
    };
    found.holds = which(|held, _| held);
    found.jobs = which(|_, count| count);
    Ok(())
}

async fn overdue(tx: &mut Transaction, scope: &AuditScope<'_>) -> Result<Vec<GenerationId>> {
    let reading = sqlx::query_scalar!(
        r#"select id as "id: GenerationId" from running_generations
         where case when deadline_at is null then created_at < $2 else deadline_at < $1 end
         order by id limit $3"#,
        scope.deadline_before,
        scope.created_before,
        NAMED,
    )
    .fetch_all(tx);
    Ok(reading.await?)
}

async fn ownerless(tx: &mut Transaction, scope: &AuditScope<'_>) -> Result<Vec<GenerationId>> {
    // Heartbeats use the database's clock. A job without a worker is fine if it has a next step.
    let reading = sqlx::query_scalar!(
        r#"select g.id as "id: GenerationId" from running_generations g
         where case when g.lease_token is null then g.next_step_at is null
                    else not exists (
                        select from instances i where i.id = g.lease_token
                        and i.seen_at > clock_timestamp() - make_interval(secs => $1))
               end
         order by g.id limit $2"#,
        scope.silence.as_secs_f64(),
        NAMED,
    )
    .fetch_all(tx);
    Ok(reading.await?)
}
