//! Receipts of dialogues: what vendors have counted of them.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::postgres::PgQueryResult;
use uuid::Uuid;

use super::{Result, Store};
use crate::domain::{ids::AccountId, receipt::Receipt};

/// Maximum pause between two turns of a dialogue.
const KEPT: TimeDelta = TimeDelta::days(2);

impl Store {
    /// The receipt of the first of these keys that has one.
    pub async fn receipt(&self, account: AccountId, keys: &[Uuid]) -> Result<Option<Receipt>> {
        let row = sqlx::query!(
            r#"select r.bound as "bound!", r.tokens as "tokens!"
               from unnest($2::uuid[]) with ordinality as wanted (key, place)
                   cross join lateral (
                       select bound, tokens from prefix_receipts
                       where account_id = $1 and key = wanted.key
                       offset 0
                   ) r
               order by place limit 1"#,
            account.0,
            keys,
        )
        .fetch_optional(self.requests.named("read a receipt"))
        .await?;
        Ok(row.map(|row| Receipt {
            bound: row.bound.cast_unsigned(),
            tokens: row.tokens.cast_unsigned(),
        }))
    }

    /// Removes up to `batch` of those whose dialogue did not continue.
    pub(super) async fn purge_receipts(
        &self,
        now: DateTime<Utc>,
        batch: i64,
    ) -> Result<PgQueryResult> {
        let purging = sqlx::query!(
            "delete from prefix_receipts where (account_id, key) in
                (select account_id, key from prefix_receipts
                 where counted_at <= $1 order by counted_at limit $2)
               and counted_at <= $1",
            now - KEPT,
            batch,
        )
        .execute(self.requests.named("purge receipts").long());
        Ok(purging.await?)
    }
}
