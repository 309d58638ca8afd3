//! Recounts sums.

use super::WHOLE_LIMIT;
use crate::store::{Result, Store, usage};

impl Store {
    /// Recounts the spending of keys and the sums of usage from the generations. Only needed after
    /// an older and a newer version ran at the same time. Requests that hold or settle get 503 if
    /// it takes longer than a few seconds.
    pub async fn recount(&self) -> Result<()> {
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
