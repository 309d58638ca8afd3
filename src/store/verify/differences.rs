//! Compares ledger entries with each other, with accounts and with generations, and sums of usage
//! with generations.

use super::SPELLED_OUT;
use crate::store::{credits::ENTRY_KINDS, pool::Transaction};

/// Compares each entry with the previous one.
pub(super) async fn of_entries(
    tx: &mut Transaction,
    whole: bool,
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"
        with entries as (
            select e.id, e.account_id, e.kind, e.amount, e.balance, e.held, g.estimated as hold,
                   0::bigint as verified_balance, 0::bigint as verified_held
            from ledger_entries e
                left join finished_generations g on e.kind = 'charge'
                    and g.account_id = e.account_id and g.id = e.generation_id
            where $1
            union all
            select e.id, e.account_id, e.kind, e.amount, e.balance, e.held,
                   case e.kind when 'charge' then (
                       select estimated from finished_generations g
                       where g.account_id = e.account_id and g.id = e.generation_id) end,
                   e.verified_balance, e.verified_held
            from unverified_entries e where not $1
        ), moved as (
            select *, balance - lag(balance, 1, verified_balance) over w as to_balance,
                   held - lag(held, 1, verified_held) over w as to_held
            from entries window w as (partition by account_id order by id)
        )
        select format('entry %s of account %s, a %s of %s, changes the balance by %s to %s, what is held by %s to %s',
                      id, account_id, kind, amount, to_balance, balance, to_held, held) as "line!"
        from moved
        where to_balance <> case kind when 'charge' then -amount when 'hold' then 0
                                      when 'release' then 0 else amount end
            or to_held <> case kind when 'charge' then -coalesce(hold, 0) when 'hold' then amount
                                    when 'release' then -amount else 0 end
        limit $2
        "#,
        whole,
        SPELLED_OUT
    )
    .fetch_all(tx)
    .await
}

/// Compares accounts with their newest entry, the last verified one, and running generations.
pub(super) async fn of_accounts(
    tx: &mut Transaction,
    whole: bool,
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"
        with newest as materialized (
            select a.id as account_id, a.balance as has, a.held as holds, e.*
            from accounts a left join lateral (
                select e.id, e.balance, e.held
                from unnest($2::text[]) kinds (kind), lateral (
                    select id, balance, held from ledger_entries e
                    where e.account_id = a.id and e.kind = kinds.kind order by e.id desc limit 1
                ) e
                order by e.id desc limit 1
            ) e on true
        )
        select format('account %s has balance %s, held %s; its entries say %s, %s', account_id, has,
                      holds, coalesce(balance, 0), coalesce(held, 0)) as "line!"
        from newest where has <> coalesce(balance, 0) or holds <> coalesce(held, 0)
        union all
        select format('entry %s of account %s is gone or not as it was verified', p.entry_id,
                      p.account_id)
        from ledger_points p left join newest e using (account_id)
        where not $1 and (e.id is null or e.id < p.entry_id
            or e.id = p.entry_id and (e.balance <> p.balance or e.held <> p.held))
        union all
        select format('account %s holds %s and counts %s unfinished jobs; its unfinished generations say %s and %s',
                      a.id, a.held, a.jobs, coalesce(u.held, 0), coalesce(u.jobs, 0))
        from accounts a left join (
            select account_id, sum(estimated) as held, count(*) filter (where job) as jobs
            from running_generations group by account_id
        ) u on u.account_id = a.id
        where a.held <> coalesce(u.held, 0) or a.jobs <> coalesce(u.jobs, 0)
        limit $3
        "#,
        whole,
        &ENTRY_KINDS as _,
        SPELLED_OUT
    )
    .fetch_all(tx)
    .await
}

/// Compares generations with their hold, its one resolution and the refund.
pub(super) async fn of_generations(
    tx: &mut Transaction,
    whole: bool,
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"
        with made as not materialized (
            select id, account_id, estimated, charged,
                   case when failed then 'failed' else 'completed' end as status,
                   -- Of the candidate that served.
                   coalesce((route ->> 'ceiling')::bigint, estimated) as ceiling
            from finished_generations
            union all
            select id, account_id, estimated, null, status, estimated from running_generations
        ), moved as not materialized (
            select generation_id,
                count(*) filter (where kind = 'hold') as holds,
                sum(amount) filter (where kind = 'hold') as held,
                count(*) filter (where kind = 'charge') as charges,
                sum(amount) filter (where kind = 'charge') as debit,
                count(*) filter (where kind = 'release') as releases,
                sum(amount) filter (where kind = 'release') as released,
                count(*) filter (where kind = 'refund') as refunds,
                sum(amount) filter (where kind = 'refund') as refunded,
                min(account_id) as account, max(account_id) as other_account
            from ledger_entries where generation_id is not null group by generation_id
        ), unverified as (
            select account_id, id from finished_generations
            where settled >= (select upto from settled_cursors where name = 'verified') and not $1
            union
            select account_id, id from running_generations where not $1
            union
            select account_id, generation_id from unverified_entries
            where generation_id is not null and not $1
        ), compared as (
            select * from made full join moved on generation_id = id where $1
            union all
            -- By a look into an index for each of them.
            select g.*, e.*
            from unverified u
                left join lateral (
                    select * from made where made.account_id = u.account_id and made.id = u.id
                    offset 0
                ) g on true
                left join lateral (
                    select * from moved where generation_id = u.id
                    offset 0
                ) e on true
        )
        select case when id is null
            then format('generation %s is gone; it has entries', generation_id)
            else format('generation %s (%s, estimated %s, charged %s) has holds %s of %s, charges %s of %s, releases %s of %s, refunds %s of %s',
                        id, status, estimated,
                        case when charged > ceiling then charged || ' of at most ' || ceiling
                             else charged::text end,
                        coalesce(holds, 0), held,
                        coalesce(charges, 0), debit, coalesce(releases, 0), released,
                        coalesce(refunds, 0), refunded)
            end as "line!"
        from compared
        where id is null or not case
            when estimated = 0 then generation_id is null and coalesce(charged, 0) = 0
            else coalesce(holds = 1 and held = estimated
                and account = account_id and other_account = account_id
                and refunds <= 1 and coalesce(refunded, 0) <= coalesce(charged, 0)
                and case
                    when status in ('pending', 'processing') then charges = 0 and releases = 0
                    when charged > 0
                        then status = 'completed' and charges = 1 and debit = charged
                            and releases = 0 and charged <= ceiling
                    else charges = 0 and releases = 1 and released = estimated
                end, false)
        end
        limit $2
        "#,
        whole,
        SPELLED_OUT
    )
    .fetch_all(tx)
    .await
}

/// Compares the spending of keys with the sums of usage and the generations after their cursor.
pub(super) async fn of_keys(tx: &mut Transaction) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"
        with recomputed as (
            select api_key_id, spend_period_start(spend_period, at) as period, sum(spent) as spent
            from (
                select u.account_id, u.api_key_id, u.start as at, u.charged as spent
                from usage_sums u where u.span = 'd'
                union all
                select account_id, api_key_id, created_at, charged from finished_generations
                where settled >= (select upto from settled_cursors where name = 'usage')
                union all
                select account_id, api_key_id, created_at, estimated from running_generations
            ) parts join api_keys k on k.id = api_key_id and k.account_id = parts.account_id
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

/// Compares hours with their generations, and days with their hours. An incremental audit starts on
/// the first day that has a new generation.
///
/// Does not compare the sums of the margin report: servers of the previous release count
/// generations without them, so these sums may be too low until a recount.
pub(super) async fn of_sums(tx: &mut Transaction, whole: bool) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"
        with counted as materialized (
            select upto from settled_cursors where name = 'usage'
        ), since as materialized (
            select account_id, date_trunc('day', min(created_at)) as day
            from finished_generations
            where settled >= (select upto from settled_cursors where name = 'verified')
                and settled < (select upto from counted) and not $1
            group by account_id
        ), generations as (
            -- "is not true" keeps the planner from the index of the settled.
            select account_id, created_at, model_id, api_key_id, failed, charged, usage
            from finished_generations
            where (settled >= (select upto from counted)) is not true and $1
            union all
            select g.account_id, g.created_at, g.model_id, g.api_key_id, g.failed, g.charged, g.usage
            from since cross join lateral (
                select * from finished_generations g
                where g.account_id = since.account_id
                    -- Ids begin with their millisecond.
                    and g.id >= rpad(lpad(to_hex((extract(epoch from day) * 1000)::bigint), 12, '0'),
                                     32, '0')::uuid
                    and g.created_at >= day
                    and (g.settled >= (select upto from counted)) is not true
                offset 0
            ) g
        ), sums as materialized (
            select u.* from usage_sums u where $1
            union all
            select u.* from since cross join (values ('d'::"char"), ('h')) spans (span)
                cross join lateral (
                    select * from usage_sums u
                    where u.account_id = since.account_id and u.span = spans.span and u.start >= day
                    offset 0
                ) u
        ), recomputed as (
            select account_id, 'h'::"char" as span, date_trunc('hour', created_at) as start,
                   model_id, coalesce(api_key_id, 0) as api_key_id,
                   count(*) filter (where not failed) as completed,
                   count(*) filter (where failed) as failed, sum(charged) as charged,
                   coalesce(sum((usage ->> 'input_tokens')::numeric), 0) as input_tokens,
                   coalesce(sum((usage ->> 'output_tokens')::numeric), 0) as output_tokens,
                   coalesce(sum((usage ->> 'images')::bigint), 0) as images,
                   coalesce(sum((usage ->> 'seconds')::bigint), 0) as seconds,
                   coalesce(sum((usage ->> 'characters')::bigint), 0) as characters
            from generations group by 1, 2, 3, 4, 5
            union all
            select account_id, 'd'::"char", date_trunc('day', start), model_id, api_key_id, sum(completed),
                   sum(failed), sum(charged), sum(input_tokens), sum(output_tokens), sum(images),
                   sum(seconds), sum(characters)
            from sums where span = 'h' group by 1, 2, 3, 4, 5
        )
        select format('usage of account %s in the span %s of %s (model %s, key %s) is counted as %s; its generations say %s',
                      account_id, span, start, model_id, api_key_id,
                      row (u.completed, u.failed, u.charged, u.input_tokens, u.output_tokens, u.images,
                           u.seconds, u.characters),
                      row (r.completed, r.failed, r.charged, r.input_tokens, r.output_tokens, r.images,
                           r.seconds, r.characters)) as "line!"
        from sums u
            full join recomputed r using (account_id, span, start, model_id, api_key_id)
        where (u.completed, u.failed, u.charged, u.input_tokens, u.output_tokens, u.images,
               u.seconds, u.characters)
            is distinct from
              (r.completed, r.failed, r.charged, r.input_tokens, r.output_tokens, r.images,
               r.seconds, r.characters)
        limit $2
        "#,
        whole,
        SPELLED_OUT
    )
    .fetch_all(tx)
    .await
}
