//! Receipts of dialogues: what vendors have counted of them.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::postgres::PgQueryResult;
use uuid::Uuid;

use super::{Store, StoreError};
use crate::domain::{ids::AccountId, receipt::Receipt};

/// How long a dialogue may rest before it goes on.
const KEPT: TimeDelta = TimeDelta::days(2);

impl Store {
    /// The receipt of the first of these keys that has one.
    pub async fn receipt(
        &self,
        account: AccountId,
        keys: &[Uuid],
    ) -> Result<Option<Receipt>, StoreError> {
        let row = sqlx::query!(
            r#"select r.bound as "bound!", r.tokens as "tokens!"
               from unnest($2::uuid[]) with ordinality as wanted (key, place)
                   -- Row by row: a plan of the days of an empty table could read all of it.
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

    /// Keeps a receipt. Of the same input that was counted twice the larger count stays.
    pub async fn keep_receipt(
        &self,
        account: AccountId,
        key: Uuid,
        receipt: Receipt,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "insert into prefix_receipts as r (account_id, key, bound, tokens, counted_at)
             values ($1, $2, $3, $4, $5)
             on conflict (account_id, key) do update
                 set tokens = greatest(r.tokens, excluded.tokens), counted_at = excluded.counted_at",
            account.0,
            key,
            receipt.bound.cast_signed(),
            receipt.tokens.cast_signed(),
            now,
        )
        .execute(self.jobs.named("keep a receipt"))
        .await?;
        Ok(())
    }

    /// Removes up to `batch` of those that nobody has gone on from.
    pub(super) async fn purge_receipts(
        &self,
        now: DateTime<Utc>,
        batch: i64,
    ) -> Result<PgQueryResult, StoreError> {
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
