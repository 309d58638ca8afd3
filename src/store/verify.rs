//! The audit: every account and every generation recomputed from the ledger.

use std::time::Duration;

use super::{Store, StoreError, pool::Transaction, usage};

/// How long checking everything may take.
const WHOLE_LIMIT: Duration = Duration::from_hours(4);
/// Differences that are spelled out; the rest is counted.
const SPELLED_OUT: i64 = 1000;

/// What an audit found.
#[derive(Debug, Default)]
pub struct Audit {
    pub accounts: i64,
    pub entries: i64,
    pub generations: i64,
    /// What does not agree, one sentence each. Empty: all is well.
    pub differences: Vec<String>,
}

impl Store {
    /// Recomputes every account and every generation from its entries, in one snapshot, so
    /// that it is right under load too.
    pub async fn verify_ledger(&self) -> Result<Audit, StoreError> {
        let mut tx = self
            .requests
            .named("verify the ledger")
            .within(WHOLE_LIMIT)
            .begin()
            .await?;
        sqlx::query!("set transaction isolation level repeatable read, read only")
            .execute(&mut tx)
            .await?;
        // It reads everything; that may take a while.
        sqlx::raw_sql(
            "set local statement_timeout = 0;
             -- It sorts and joins all entries, by plans for what the tables hold now.
             set local work_mem = '64MB';
             set local plan_cache_mode = force_custom_plan",
        )
        .execute(&mut tx)
        .await?;
        let counts = sqlx::query!(
            r#"select (select count(*) from accounts) as "accounts!",
                      (select count(*) from ledger_entries) as "entries!",
                      (select count(*) from finished_generations)
                          + (select count(*) from running_generations) as "generations!""#
        )
        .fetch_one(&mut tx)
        .await?;
        let mut differences = account_differences(&mut tx).await?;
        differences.extend(generation_differences(&mut tx).await?);
        differences.extend(spend_differences(&mut tx).await?);
        differences.extend(usage_differences(&mut tx).await?);
        tx.commit().await?;
        Ok(Audit {
            accounts: counts.accounts,
            entries: counts.entries,
            generations: counts.generations,
            differences,
        })
    }
}

/// Accounts and entries against the running sums of the entries.
async fn account_differences(tx: &mut Transaction) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!(
            r#"
            with moved as (
                select e.id, e.account_id, e.balance, e.held,
                    case e.kind when 'grant' then e.amount when 'adjustment' then e.amount
                                when 'refund' then e.amount when 'charge' then -e.amount
                                else 0 end as to_balance,
                    case e.kind when 'hold' then e.amount when 'release' then -e.amount
                                when 'charge' then -coalesce(h.amount, 0) else 0 end as to_held
                from ledger_entries e
                    left join ledger_entries h on e.kind = 'charge' and h.kind = 'hold'
                        and h.generation_id = e.generation_id
            ), recomputed as (
                select *,
                    sum(to_balance) over w as balance_then,
                    sum(to_held) over w as held_then,
                    lead(id) over w is null as is_last
                from moved window w as (partition by account_id order by id)
            )
            select format('entry %s of account %s says balance %s, held %s; recomputed %s, %s',
                          id, account_id, balance, held, balance_then, held_then) as "line!"
            from recomputed where balance <> balance_then or held <> held_then
            union all
            select format('account %s has balance %s, held %s; its entries say %s, %s',
                          a.id, a.balance, a.held, coalesce(balance_then, 0), coalesce(held_then, 0))
            from accounts a left join recomputed r on r.account_id = a.id and r.is_last
            where a.balance <> coalesce(balance_then, 0) or a.held <> coalesce(held_then, 0)
            union all
            select format('account %s counts %s unfinished jobs; there are %s',
                          a.id, a.jobs, coalesce(u.n, 0))
            from accounts a left join (
                select account_id, count(*) as n from running_generations
                where job group by account_id
            ) u on u.account_id = a.id
            where a.jobs <> coalesce(u.n, 0)
            limit $1
            "#,
            SPELLED_OUT
        )
        .fetch_all(tx)
        .await
}

/// Generations against their hold, its one resolution and the refund.
async fn generation_differences(tx: &mut Transaction) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!(
                r#"
                with entries as (
                    select generation_id,
                        count(*) filter (where kind = 'hold') as holds,
                        sum(amount) filter (where kind = 'hold') as held,
                        count(*) filter (where kind = 'charge') as charges,
                        sum(amount) filter (where kind = 'charge') as charged,
                        count(*) filter (where kind = 'release') as releases,
                        sum(amount) filter (where kind = 'release') as released,
                        count(*) filter (where kind = 'refund') as refunds,
                        sum(amount) filter (where kind = 'refund') as refunded,
                        min(account_id) as account, max(account_id) as other_account
                    from ledger_entries where generation_id is not null group by generation_id
                )
                select case when g.id is null
                    then format('generation %s is gone; it has entries', e.generation_id)
                    else format('generation %s (%s, estimated %s, charged %s) has holds %s of %s, charges %s of %s, releases %s of %s, refunds %s of %s',
                                g.id, g.status, g.estimated, g.charged, coalesce(e.holds, 0), e.held,
                                coalesce(e.charges, 0), e.charged, coalesce(e.releases, 0), e.released,
                                coalesce(e.refunds, 0), e.refunded)
                    end as "line!"
                from generations g full join entries e on e.generation_id = g.id
                where g.id is null or not case
                    when g.estimated = 0 then e.generation_id is null and coalesce(g.charged, 0) = 0
                    else coalesce(e.holds = 1 and e.held = g.estimated
                        and e.account = g.account_id and e.other_account = g.account_id
                        and e.refunds <= 1 and coalesce(e.refunded, 0) <= coalesce(g.charged, 0)
                        and case
                            when g.status in ('pending', 'processing')
                                then e.charges = 0 and e.releases = 0
                            when g.charged > 0
                                then g.status = 'completed' and e.charges = 1
                                    and e.charged = g.charged and e.releases = 0
                            else e.charges = 0 and e.releases = 1 and e.released = g.estimated
                        end, false)
                end
                limit $1
                "#,
                SPELLED_OUT
            )
            .fetch_all(tx)
            .await
}

impl Store {
    /// Counts anew what keys have spent and what the usage report sums up, from the generations.
    /// Only needed where an older version ran beside a newer one. Requests that hold or settle
    /// get 503 if it takes longer than a few seconds.
    pub async fn recount(&self) -> Result<(), StoreError> {
        let mut tx = self
            .requests
            .named("recount")
            .within(WHOLE_LIMIT)
            .begin()
            .await?;
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
             -- Apart, because a key that has spent too much cannot name its limit.
             update key_spend s set spend_limit = k.spend_limit
             from api_keys k where k.id = s.api_key_id and s.spent <= k.spend_limit;
             -- No count is under way.
             select from settled_cursors for update;
             delete from usage_sums;
             -- Transactions are numbered anew in a database that was restored from a dump: its rows
             -- get numbers below them, in the order of their creation.
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

/// What keys have spent against the generations that they made.
async fn spend_differences(tx: &mut Transaction) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"
        with recomputed as (
            select g.api_key_id, spend_period_start(k.spend_period, g.created_at) as period,
                   sum(coalesce(g.charged, g.estimated)) as spent
            from generations g join api_keys k on k.id = g.api_key_id
            where k.spend_limit is not null
            group by 1, 2
        )
        select format('key %s has spent %s since %s; its generations say %s',
                      coalesce(s.api_key_id, r.api_key_id), coalesce(s.spent, 0),
                      coalesce(s.period, r.period), coalesce(r.spent, 0)) as "line!"
        from key_spend s full join recomputed r
            on r.api_key_id = s.api_key_id and r.period = s.period
        where coalesce(s.spent, 0) <> coalesce(r.spent, 0)
        union all
        select format('key %s may spend %s; %s says %s', k.id, k.spend_limit, s.period, s.spend_limit)
        from key_spend s join api_keys k on k.id = s.api_key_id
        where k.spend_limit is distinct from s.spend_limit
            and (k.spend_limit is null or s.spent <= k.spend_limit)
        limit $1
        "#,
        SPELLED_OUT
    )
    .fetch_all(tx)
    .await
}

/// The usage report's sums against the generations that they count.
async fn usage_differences(tx: &mut Transaction) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"
        with recomputed as (
            select account_id, span, start, model_id, api_key_id, sum(completed) as completed,
                   sum(failed) as failed, sum(charged) as charged,
                   sum(input_tokens) as input_tokens, sum(output_tokens) as output_tokens,
                   sum(images) as images, sum(seconds) as seconds, sum(characters) as characters
            from usage_counted
            where settled < (select upto from settled_cursors where name = 'usage')
            group by 1, 2, 3, 4, 5
        )
        select format('usage of account %s in the span %s of %s (model %s, key %s) is counted as %s; its generations say %s',
                      account_id, span, start, model_id, api_key_id,
                      row (u.completed, u.failed, u.charged, u.input_tokens, u.output_tokens, u.images,
                           u.seconds, u.characters),
                      row (r.completed, r.failed, r.charged, r.input_tokens, r.output_tokens, r.images,
                           r.seconds, r.characters)) as "line!"
        from usage_sums u
            full join recomputed r using (account_id, span, start, model_id, api_key_id)
        where (u.completed, u.failed, u.charged, u.input_tokens, u.output_tokens, u.images,
               u.seconds, u.characters)
            is distinct from
              (r.completed, r.failed, r.charged, r.input_tokens, r.output_tokens, r.images,
               r.seconds, r.characters)
        limit $1
        "#,
        SPELLED_OUT
    )
    .fetch_all(tx)
    .await
}
