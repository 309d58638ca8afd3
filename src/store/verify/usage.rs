//! Checks the spending of keys and the sums of usage.

use super::SPELLED_OUT;
use crate::store::pool::Transaction;

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

/// Compares hours with their generations, and days with their hours. An incremental audit begins
/// with the first day of a new generation.
///
/// Does not compare the sums of the margin report: servers of the previous release count generations
/// without them, so they may be too low until a recount.
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
