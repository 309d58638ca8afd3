//! The usage report: sums of days and hours, and the single generations at the edges of its range.
//!
//! [`Store::count_usage`] adds settled generations to the sums, up to a cursor; the report adds the
//! generations after the cursor.

use super::{Result, Store, history::lowest_id};
use crate::domain::{
    credits::Credits,
    ids::{AccountId, ApiKeyId},
    report::{Span, UsageGroup, UsageKey, UsageRow, UsageTotals},
};
use chrono::TimeDelta;
use sqlx::PgExecutor;

/// Maximum generations added to the sums by one statement.
const AT_ONCE: i64 = 20_000;

impl Store {
    /// Returns the usage of an account in a range of creation times, by group; at most `limit`
    /// groups, ascending. One statement reads one snapshot: sums of whole days and hours, finished
    /// generations of partial hours, and running ones.
    #[expect(clippy::too_many_lines, reason = "one statement")]
    pub async fn usage(
        &self,
        account: AccountId,
        span: Span,
        groups: &[UsageGroup],
        limit: i64,
    ) -> Result<Vec<UsageRow>> {
        let by = |group| groups.contains(&group);
        let parts = span.parts();
        let [before, after] = parts.edges;
        // Ids contain their creation time in milliseconds, so an index finds the range; the exact
        // comparison follows.
        let end = |time| lowest_id(time + TimeDelta::milliseconds(1));
        let rows = sqlx::query!(
            r#"
            with edges as (
                select model_id, api_key_id, created_at, failed, charged, usage
                from finished_generations
                where account_id = $1 and id >= $8 and id < $9
                  and created_at >= $10 and created_at < $11
                union all
                select model_id, api_key_id, created_at, failed, charged, usage
                from finished_generations
                where account_id = $1 and id >= $12 and id < $13
                  and created_at >= $14 and created_at < $15
                union all
                select model_id, api_key_id, created_at, failed, charged, usage
                from usage_tail($1)
                where created_at >= $22 and created_at < $23
                  and not (created_at >= $10 and created_at < $11)
                  and not (created_at >= $14 and created_at < $15)
            ), sums as (
                select * from usage_sums
                where account_id = $1 and span = 'd' and start >= $2 and start < $3
                union all
                select * from usage_sums
                where account_id = $1 and span = 'h' and start >= $4 and start < $5
                union all
                select * from usage_sums
                where account_id = $1 and span = 'h' and start >= $6 and start < $7
            ), parts as (
                select start as moment, model_id, api_key_id,
                       completed + failed as generations, completed, failed, charged,
                       input_tokens, output_tokens, images, seconds, characters
                from sums
                union all
                select created_at, model_id, coalesce(api_key_id, 0), 1, (not failed)::int,
                       failed::int, charged, coalesce((usage ->> 'input_tokens')::numeric, 0),
                       coalesce((usage ->> 'output_tokens')::numeric, 0),
                       coalesce((usage ->> 'images')::bigint, 0),
                       coalesce((usage ->> 'seconds')::bigint, 0),
                       coalesce((usage ->> 'characters')::bigint, 0)
                from edges
                union all
                select created_at, model_id, coalesce(api_key_id, 0), 1, 0, 0, 0, 0, 0, 0, 0, 0
                from running_generations
                where account_id = $1 and created_at >= $22 and created_at < $23
            )
            select case when $16 then (moment at time zone 'UTC')::date end as day,
                   case when $17 then m.type end as type,
                   case when $18 then m.provider end as provider,
                   case when $19 then m.name end as model,
                   case when $20 then api_key_id end as api_key,
                   sum(generations)::bigint as "generations!",
                   sum(completed)::bigint as "completed!", sum(failed)::bigint as "failed!",
                   sum(charged)::bigint as "charged!: Credits",
                   -- What every JSON reader keeps, whatever providers said.
                   least(sum(input_tokens), 9007199254740991)::bigint as "input_tokens!",
                   least(sum(output_tokens), 9007199254740991)::bigint as "output_tokens!",
                   sum(images)::bigint as "images!", sum(seconds)::bigint as "seconds!",
                   sum(characters)::bigint as "characters!"
            from parts join models m on m.id = model_id
            group by 1, 2, 3, 4, 5
            order by 1, 2, 3, 4, 5
            limit $21
            "#,
            account.0,
            parts.days.from,
            parts.days.to,
            parts.hours[0].from,
            parts.hours[0].to,
            parts.hours[1].from,
            parts.hours[1].to,
            lowest_id(before.from),
            end(before.to),
            before.from,
            before.to,
            lowest_id(after.from),
            end(after.to),
            after.from,
            after.to,
            by(UsageGroup::Day),
            by(UsageGroup::Type),
            by(UsageGroup::Provider),
            by(UsageGroup::Model),
            by(UsageGroup::ApiKey),
            limit,
            span.from,
            span.to,
        )
        .fetch_all(self.requests.named("report usage").long())
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| UsageRow {
                day: row.day,
                r#type: row.r#type,
                provider: row.provider,
                model: row.model,
                api_key: row
                    .api_key
                    .map(|id| UsageKey((id != 0).then_some(ApiKeyId(id)))),
                totals: UsageTotals {
                    generations: row.generations,
                    completed: row.completed,
                    failed: row.failed,
                    charged: row.charged,
                    input_tokens: row.input_tokens,
                    output_tokens: row.output_tokens,
                    images: row.images,
                    seconds: row.seconds,
                    characters: row.characters,
                },
            })
            .collect())
    }

    /// Adds newly settled generations to the sums, unless another server is doing so.
    pub async fn count_usage(&self) -> Result<()> {
        count(self.walks.named("count usage").long(), AT_ONCE).await
    }
}

/// Adds generations to the sums. The cursor is a transaction id: generations of later transactions
/// are not in the sums yet. It stops before the oldest running transaction and moves in the same
/// statement.
pub(super) async fn count(executor: impl PgExecutor<'_>, most: i64) -> Result<()> {
    sqlx::query!(
        r#"
        with cursor as materialized (
            select upto from settled_cursors where name = 'usage' for update skip locked
        ), part as materialized (
            -- Of a backlog a part, but a whole transaction at least.
            select upto, greatest(upto, least(
                pg_snapshot_xmin(pg_current_snapshot()),
                (select greatest(settled, (upto::text::bigint + 1)::text::xid8)
                 from finished_generations where settled >= upto
                 order by settled offset $1 limit 1))) as until
            from cursor
        ), hours as materialized (
            select account_id, start, model_id, api_key_id, sum(completed) as completed,
                   sum(failed) as failed, sum(charged) as charged,
                   sum(input_tokens) as input_tokens, sum(output_tokens) as output_tokens,
                   sum(images) as images, sum(seconds) as seconds,
                   sum(characters) as characters, sum(costed) as costed,
                   sum(costed_charged) as costed_charged, sum(list_cost) as list_cost,
                   sum(estimated_counts) as estimated_counts
            from usage_counted
            where span = 'h'
              and settled >= (select upto from part) and settled < (select until from part)
            group by account_id, start, model_id, api_key_id
        ), counted as (
            insert into usage_sums as u
                (account_id, span, start, model_id, api_key_id, completed, failed, charged,
                 input_tokens, output_tokens, images, seconds, characters, costed,
                 costed_charged, list_cost, estimated_counts)
            select account_id, 'h', start, model_id, api_key_id, completed, failed, charged,
                   input_tokens, output_tokens, images, seconds, characters, costed,
                   costed_charged, list_cost, estimated_counts
            from hours
            union all
            -- What reads each generation once costs a third less.
            select account_id, 'd', date_trunc('day', start at time zone 'UTC')
                       at time zone 'UTC', model_id, api_key_id, sum(completed), sum(failed),
                   sum(charged), sum(input_tokens), sum(output_tokens), sum(images),
                   sum(seconds), sum(characters), sum(costed), sum(costed_charged),
                   sum(list_cost), sum(estimated_counts)
            from hours
            group by 1, 2, 3, 4, 5
            order by 1, 2, 3, 4, 5
            on conflict (account_id, span, start, model_id, api_key_id) do update
            set completed = u.completed + excluded.completed,
                failed = u.failed + excluded.failed,
                charged = u.charged + excluded.charged,
                input_tokens = u.input_tokens + excluded.input_tokens,
                output_tokens = u.output_tokens + excluded.output_tokens,
                images = u.images + excluded.images,
                seconds = u.seconds + excluded.seconds,
                characters = u.characters + excluded.characters,
                costed = u.costed + excluded.costed,
                costed_charged = u.costed_charged + excluded.costed_charged,
                list_cost = u.list_cost + excluded.list_cost,
                estimated_counts = u.estimated_counts + excluded.estimated_counts
            returning 1
        )
        update settled_cursors c set upto = part.until
        from part
        where c.name = 'usage' and part.until > part.upto and (select count(*) from counted) >= 0
        "#,
        most,
    )
    .execute(executor)
    .await?;
    Ok(())
}
