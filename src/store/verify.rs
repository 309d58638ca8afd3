//! The audit: recomputes accounts and generations from the ledger, all or only new ones.

mod differences;

use std::time::Duration;

use super::{Result, Store, pool::Transaction, usage};

/// Time limit of a full audit.
const WHOLE_LIMIT: Duration = Duration::from_hours(4);
/// Maximum differences listed; the rest is only counted.
const SPELLED_OUT: i64 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Whole,
    /// Rows written since the last clean audit of this scope; all in the first audit.
    SinceLast,
}

#[derive(Debug)]
pub struct Audit {
    pub whole: bool,
    pub accounts: i64,
    pub entries: i64,
    pub generations: i64,
    /// One sentence per difference.
    pub differences: Vec<String>,
}

impl Store {
    /// Recomputes accounts and generations from their entries in one snapshot, so that it is exact
    /// under load.
    pub async fn verify_ledger(&self, scope: Scope) -> Result<Audit> {
        let call = self.requests.named("verify the ledger").within(WHOLE_LIMIT);
        let mut tx = call.begin().await?;
        sqlx::raw_sql(
            "set transaction isolation level repeatable read;
             -- It may read everything; that may take a while.
             set local statement_timeout = 0;
             -- It sorts and joins all entries, by plans for what the tables hold now.
             set local work_mem = '64MB';
             set local jit = off;
             set local parallel_setup_cost = 100;
             set local parallel_tuple_cost = 0.001;
             set local max_parallel_workers_per_gather = 4;
             set local plan_cache_mode = force_custom_plan;
             -- The hours and days of usage are those of UTC.
             set local timezone = 'UTC'",
        )
        .execute(&mut tx)
        .await?;
        sqlx::raw_sql(match scope {
            Scope::Whole => "set transaction read only",
            // Taken before the snapshot, so that the next audit continues where this one ends.
            Scope::SinceLast => {
                "set local lock_timeout = 0;
                 lock table ledger_points in share row exclusive mode"
            }
        })
        .execute(&mut tx)
        .await?;
        let mut whole = scope == Scope::Whole;
        if !whole {
            whole = sqlx::query_scalar!(
                r#"select upto = '0' as "never!" from settled_cursors where name = 'verified'"#
            )
            .fetch_one(&mut tx)
            .await?;
        }
        let mut audit = count(&mut tx, whole).await?;
        let found = &mut audit.differences;
        found.extend(differences::of_entries(&mut tx, whole).await?);
        found.extend(differences::of_accounts(&mut tx, whole).await?);
        found.extend(differences::of_generations(&mut tx, whole).await?);
        found.extend(differences::of_keys(&mut tx).await?);
        found.extend(differences::of_sums(&mut tx, whole).await?);
        if scope == Scope::SinceLast && found.is_empty() {
            move_points(&mut tx).await?;
        }
        tx.commit().await?;
        Ok(audit)
    }

    /// Recounts the spending of keys and the sums of usage from the generations. Needed only after
    /// an older and a newer version ran at the same time. Requests that hold or settle get 503 if
    /// it takes longer than a few seconds.
    pub async fn recount(&self) -> Result<()> {
        let call = self.requests.named("recount").within(WHOLE_LIMIT);
        let mut tx = call.begin().await?;
        sqlx::raw_sql(
            "set local statement_timeout = 0;
             set local lock_timeout = 0;
             -- Every hold and every settlement names this table, and all of its tables are
             -- locked before it begins: one lock keeps them all out, in one order.
             lock table key_spend in share row exclusive mode;
             delete from key_spend;
             insert into key_spend (api_key_id, period, spent)
             select k.id, spend_period_start(k.spend_period, g.created_at),
                    sum(coalesce(g.charged, g.estimated))
             from generations g join api_keys k on k.id = g.api_key_id
             where k.spend_limit is not null
             group by 1, 2;
             -- Separately, because a row above its limit must not name the limit.
             update key_spend s set spend_limit = k.spend_limit
             from api_keys k where k.id = s.api_key_id and s.spent <= k.spend_limit;
             -- No count is under way.
             select from settled_cursors for update;
             delete from usage_sums;
             -- Transaction ids start over in a database restored from a dump: its rows get lower
             -- ids, in the order of their creation.
             update finished_generations g set settled = numbered.settled
             from (select account_id, id,
                          ((row_number() over (order by created_at))
                           * pg_current_xact_id()::text::bigint / (count(*) over () + 1)
                          )::text::xid8 as settled
                   from finished_generations) numbered
             where numbered.account_id = g.account_id and numbered.id = g.id
               and exists (select from finished_generations
                           where settled > pg_current_xact_id());
             update settled_cursors set upto = '0'",
        )
        .execute(&mut tx)
        .await?;
        usage::count(&mut tx, i64::MAX).await?;
        tx.commit().await?;
        Ok(())
    }
}

async fn count(tx: &mut Transaction, whole: bool) -> Result<Audit, sqlx::Error> {
    let counts = sqlx::query!(
        r#"select (select count(*) from accounts) as "accounts!",
                  case when $1 then (select count(*) from ledger_entries)
                       else (select count(*) from unverified_entries) end as "entries!",
                  (select count(*) from running_generations)
                  + case when $1 then (select count(*) from finished_generations)
                         else (select count(*) from finished_generations where settled >= (
                             select upto from settled_cursors where name = 'verified')) end
                  as "generations!""#,
        whole
    )
    .fetch_one(tx)
    .await?;
    Ok(Audit {
        whole,
        accounts: counts.accounts,
        entries: counts.entries,
        generations: counts.generations,
        differences: Vec::new(),
    })
}

/// Stores where the next incremental audit starts: after the newest entry of each account, and
/// after the generations that are settled, visible and in the sums of usage.
async fn move_points(tx: &mut Transaction) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "insert into ledger_points (account_id, entry_id, balance, held)
         select distinct on (account_id) account_id, id, balance, held
         from unverified_entries order by account_id, id desc
         on conflict (account_id) do update
         set entry_id = excluded.entry_id, balance = excluded.balance, held = excluded.held"
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!(
        "update settled_cursors set upto = least(
             pg_snapshot_xmin(pg_current_snapshot()),
             (select upto from settled_cursors where name = 'usage'))
         where name = 'verified'"
    )
    .execute(tx)
    .await?;
    Ok(())
}
