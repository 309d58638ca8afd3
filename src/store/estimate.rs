//! Reads what an estimate needs, as [`super::generations`] checks it for a hold.

use chrono::{DateTime, Utc};

use super::{
    Result, Store,
    credits::Balance,
    generations::{Credential, SpendLimit},
};
use crate::domain::{credits::Credits, ids::AccountId};

impl Store {
    /// The account's credits, and the spend limit of the key.
    pub async fn spendable_balance(
        &self,
        account: AccountId,
        credential: Credential,
        now: DateTime<Utc>,
    ) -> Result<(Balance, Option<SpendLimit>)> {
        let (key, _) = credential.ids();
        let reading = sqlx::query!(
            r#"
            select a.balance as "balance: Credits", a.held as "held: Credits",
                   k.spend_limit as "spend_limit?: Credits",
                   coalesce(s.spent, 0) as "spent!: Credits",
                   case when k.spend_limit is not null then (
                       select coalesce(sum(g.estimated), 0)::bigint from running_generations g
                       where g.account_id = $1 and g.api_key_id = k.id
                         and g.spend_period = spend_period_start(k.spend_period, $3))
                   else 0 end as "on_hold!: Credits"
            from accounts a
            left join api_keys k on k.id = $2
            left join key_spend s
                on s.api_key_id = k.id and s.period = spend_period_start(k.spend_period, $3)
            where a.id = $1
            "#,
            account.0,
            key,
            now,
        )
        .fetch_one(self.requests.named("read what a key may spend"));
        let row = reading.await?;
        let (balance, held, spent) = (row.balance, row.held, row.spent);
        let cap = row.spend_limit.map(|limit| SpendLimit {
            limit,
            spent,
            held: row.on_hold,
        });
        Ok((Balance { balance, held }, cap))
    }
}
