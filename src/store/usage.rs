//! The usage report: the sums of days and hours, and the generations at its edges.

use super::{Store, StoreError, history::lowest_id};
use crate::domain::{
    credits::Credits,
    ids::{AccountId, ApiKeyId},
    report::{Span, UsageGroup, UsageKey, UsageRow, UsageTotals},
};
use chrono::TimeDelta;

impl Store {
    /// What an account made in a span of creation times, grouped; at most `limit` groups, in
    /// ascending order. One statement, so one moment: the days and hours that lie within the
    /// span as they are counted, the finished generations of the hours that it cuts, and what
    /// runs.
    #[expect(clippy::too_many_lines, reason = "one statement")]
    pub async fn usage(
        &self,
        account: AccountId,
        span: Span,
        groups: &[UsageGroup],
        limit: i64,
    ) -> Result<Vec<UsageRow>, StoreError> {
        let by = |group| groups.contains(&group);
        let parts = span.parts();
        let [before, after] = parts.edges;
        // Ids carry their creation in milliseconds, and indexes are sorted by them; the exact
        // comparison of times decides.
        let end = |time| lowest_id(time + TimeDelta::milliseconds(1));
        let rows = sqlx::query!(
            r#"
            with edges as (
                select * from generations
                where account_id = $1 and deleted_at is null
                  and status in ('completed', 'failed')
                  and id >= $8 and id < $9 and created_at >= $10 and created_at < $11
                union all
                select * from generations
                where account_id = $1 and deleted_at is not null
                  and id >= $8 and id < $9 and created_at >= $10 and created_at < $11
                union all
                select * from generations
                where account_id = $1 and deleted_at is null
                  and status in ('completed', 'failed')
                  and id >= $12 and id < $13 and created_at >= $14 and created_at < $15
                union all
                select * from generations
                where account_id = $1 and deleted_at is not null
                  and id >= $12 and id < $13 and created_at >= $14 and created_at < $15
                union all
                select * from generations
                where account_id = $1 and status in ('pending', 'processing')
                  and created_at >= $22 and created_at < $23
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
                select start as moment, type, provider, model, api_key_id,
                       completed + failed as generations, completed, failed, charged,
                       input_tokens, output_tokens, images, seconds, characters
                from sums
                union all
                select created_at, type, provider, model, coalesce(api_key_id, 0), 1,
                       (status = 'completed')::int, (status = 'failed')::int,
                       coalesce(charged, 0), coalesce((usage ->> 'input_tokens')::numeric, 0),
                       coalesce((usage ->> 'output_tokens')::numeric, 0),
                       coalesce((usage ->> 'images')::bigint, 0),
                       coalesce((usage ->> 'seconds')::bigint, 0),
                       coalesce((usage ->> 'characters')::bigint, 0)
                from edges
            )
            select case when $16 then (moment at time zone 'UTC')::date end as day,
                   case when $17 then type end as type,
                   case when $18 then provider end as provider,
                   case when $19 then model end as model,
                   case when $20 then api_key_id end as api_key,
                   sum(generations)::bigint as "generations!",
                   sum(completed)::bigint as "completed!", sum(failed)::bigint as "failed!",
                   sum(charged)::bigint as "charged!: Credits",
                   -- What every JSON reader keeps, whatever providers said.
                   least(sum(input_tokens), 9007199254740991)::bigint as "input_tokens!",
                   least(sum(output_tokens), 9007199254740991)::bigint as "output_tokens!",
                   sum(images)::bigint as "images!", sum(seconds)::bigint as "seconds!",
                   sum(characters)::bigint as "characters!"
            from parts
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
}
