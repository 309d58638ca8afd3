//! Replaces a key's name, abilities and limits.

use chrono::{DateTime, Utc};

use super::ApiKeyRecord;
use crate::{
    domain::{
        credits::Credits,
        ids::{AccountId, ApiKeyId},
        request::KeyRequest,
        spend::SpendPeriod,
    },
    store::{Result, Store, exactly_one, pool::Transaction},
};

impl Store {
    /// Replaces the name, abilities and limits of a key, including a revoked one. `None`: the
    /// account does not have the key.
    pub async fn replace_key(
        &self,
        account: AccountId,
        id: ApiKeyId,
        new: &KeyRequest,
        now: DateTime<Utc>,
    ) -> Result<Option<ApiKeyRecord>> {
        let mut tx = self.requests.named("replace a key").begin().await?;
        // One replacement of a key at a time. Not the lock of its row, for which authentication would
        // wait.
        sqlx::query!(
            "select pg_advisory_xact_lock(hashtextextended('limits of ' || $1::bigint, 0))",
            id.0
        )
        .execute(&mut tx)
        .await?;
        let old = sqlx::query!(
            r#"select spend_limit as "limit: Credits", spend_period as period from api_keys
               where account_id = $1 and id = $2"#,
            account.0,
            id.0,
        )
        .fetch_optional(&mut tx)
        .await?;
        let Some(old) = old else {
            return Ok(None);
        };
        let period = new.spend_period.map(SpendPeriod::as_str);
        let has_new_limit = (old.limit, old.period.as_deref()) != (new.spend_limit, period);
        if has_new_limit {
            // Every hold and settlement names this table and waits here before its snapshot is
            // taken, so none counts by the old limit once this is committed.
            sqlx::query!("lock table key_spend in share row exclusive mode")
                .execute(&mut tx)
                .await?;
        }
        let done = sqlx::query!(
            "update api_keys
             set name = $3, abilities = $4, rate_limit_per_minute = $5, expires_at = $6,
                 spend_limit = $7, spend_period = $8, version = version + 1
             where account_id = $1 and id = $2",
            account.0,
            id.0,
            new.name,
            &new.abilities.names(),
            i32::try_from(new.rate_limit_per_minute).unwrap_or(i32::MAX),
            new.expires_at,
            new.spend_limit.map(Credits::micros),
            period,
        )
        .execute(&mut tx)
        .await?;
        exactly_one("replacing a key", done.rows_affected())?;
        if has_new_limit {
            count_spend(&mut tx, account, id).await?;
        }
        tx.commit().await?;
        self.key(account, id, now).await
    }
}

/// Recomputes what a key has spent in each period of its limit, from its generations.
async fn count_spend(tx: &mut Transaction, account: AccountId, id: ApiKeyId) -> Result<()> {
    sqlx::query!("delete from key_spend where api_key_id = $1", id.0)
        .execute(&mut *tx)
        .await?;
    // The settlements of these generations return unused credits to this period.
    sqlx::query!(
        "update running_generations g
         set spend_period = case when k.spend_limit is not null
                                 then spend_period_start(k.spend_period, g.created_at) end
         from api_keys k
         where k.id = $2 and g.account_id = $1 and g.api_key_id = $2",
        account.0,
        id.0,
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!(
        "insert into key_spend (api_key_id, period, spent)
         select k.id, spend_period_start(k.spend_period, at), sum(amount)::bigint
         from api_keys k cross join (
             select start as at, charged as amount from usage_sums
             where account_id = $1 and span = 'd' and api_key_id = $2
             union all
             select created_at, charged from usage_tail($1) where api_key_id = $2
             union all
             select created_at, estimated from running_generations
             where account_id = $1 and api_key_id = $2
         ) spent
         where k.id = $2 and k.spend_limit is not null
         group by 1, 2",
        account.0,
        id.0,
    )
    .execute(&mut *tx)
    .await?;
    // A separate statement, because `key_spend_within_limit` forbids a limit below the spent
    // amount. The next hold of such a key sets the limit, and is refused.
    sqlx::query!(
        "update key_spend s set spend_limit = k.spend_limit
         from api_keys k where k.id = $1 and s.api_key_id = $1 and s.spent <= k.spend_limit",
        id.0,
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}
