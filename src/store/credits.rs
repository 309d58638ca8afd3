//! Balances and the ledger.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, QueryBuilder};
use utoipa::ToSchema;

use super::{Result, Store, keys::Credential};
use crate::domain::{
    clock::rfc3339,
    credits::Credits,
    ids::{AccountId, GenerationId, LedgerEntryId},
    page::{Page, PageRequest},
};

/// The kinds of entries. The index begins with the kind, so the newest are looked up by kind.
pub(super) const ENTRY_KINDS: [&str; 6] =
    ["grant", "hold", "charge", "release", "adjustment", "refund"];

/// Prefix of the ledger's cursors.
pub const LEDGER_CURSOR: u8 = b'l';

/// The balance and holds of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Balance {
    pub balance: Credits,
    /// The maximum cost of running work.
    pub held: Credits,
}

impl Balance {
    pub fn available(&self) -> Credits {
        self.balance.minus_or_zero(self.held)
    }
}

/// The spend limit of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpendLimit {
    /// The limit of the current period.
    pub limit: Credits,
    /// Charged and on hold in it.
    pub spent: Credits,
    /// What of it is on hold.
    pub held: Credits,
}

impl SpendLimit {
    /// Whether a hold would exceed it; one of nothing does where it is exceeded already.
    pub fn is_exceeded_by(self, hold: Credits) -> bool {
        self.spent.micros().saturating_add(hold.micros()) > self.limit.micros()
    }

    /// Whether a hold would fit, were nothing else on hold.
    pub fn has_room_for(self, hold: Credits) -> bool {
        let spent = self.spent.minus_or_zero(self.held);
        !Self { spent, ..self }.is_exceeded_by(hold)
    }

    /// What may still be spent.
    pub fn left(self) -> Credits {
        self.limit.minus_or_zero(self.spent)
    }
}

/// One movement of credits.
#[derive(Debug, Clone, FromRow, Serialize, ToSchema)]
#[schema(as = LedgerEntryBody)]
pub struct LedgerEntry {
    /// Its id; ascends within the account.
    pub id: LedgerEntryId,
    /// grant, hold, charge, release, adjustment or refund.
    #[schema(example = "charge")]
    pub kind: String,
    /// The amount that was moved; negative only in adjustments.
    pub amount: Credits,
    /// The balance after it.
    pub balance: Credits,
    /// The credits on hold after it.
    pub held: Credits,
    /// The generation that it belongs to.
    #[schema(required, nullable)]
    pub generation: Option<GenerationId>,
    /// The operator's note.
    #[schema(required, nullable)]
    pub reference: Option<String>,
    /// When it was recorded.
    #[serde(serialize_with = "rfc3339")]
    pub created_at: DateTime<Utc>,
}

impl Store {
    pub async fn balance(&self, account: AccountId) -> Result<Balance> {
        let reading = sqlx::query_as!(
            Balance,
            r#"select balance as "balance: _", held as "held: _" from accounts where id = $1"#,
            account.0
        )
        .fetch_one(self.requests.named("read a balance"));
        Ok(reading.await?)
    }

    /// Credits and the number of unfinished jobs.
    pub async fn balance_and_jobs(&self, account: AccountId) -> Result<(Balance, i32)> {
        let reading = sqlx::query!(
            r#"select balance as "balance: Credits", held as "held: Credits", jobs
               from accounts where id = $1"#,
            account.0
        )
        .fetch_one(self.requests.named("read a balance and unfinished jobs"));
        let row = reading.await?;
        let (balance, held) = (row.balance, row.held);
        Ok((Balance { balance, held }, row.jobs))
    }

    /// The account's movements, newest first.
    pub async fn ledger(
        &self,
        account: AccountId,
        kind: Option<&str>,
        generation: Option<GenerationId>,
        page: &PageRequest,
    ) -> Result<Page<LedgerEntry>> {
        let kinds = kind.map_or_else(|| ENTRY_KINDS.to_vec(), |kind| vec![kind]);
        let most = page.per_page + 1;
        let mut query = QueryBuilder::new(
            "select e.id, e.kind, e.amount, e.balance, e.held, e.generation_id as generation, \
                    e.reference, e.created_at \
             from unnest(",
        );
        query.push_bind(kinds).push(
            "::text[]) kinds (kind) cross join lateral (\
             select * from ledger_entries e where e.kind = kinds.kind and e.account_id = ",
        );
        query.push_bind(account.0);
        if let Some(generation) = generation {
            query
                .push(" and e.generation_id = ")
                .push_bind(generation.0);
        }
        if let Some(after) = page.after_number() {
            query.push(" and e.id < ").push_bind(after);
        }
        query.push(" order by e.id desc limit ").push_bind(most);
        query.push(") e order by e.id desc limit ").push_bind(most);
        let entries: Vec<LedgerEntry> = query
            .build_query_as()
            .fetch_all(self.requests.named("list ledger entries").long())
            .await?;
        Ok(page.numbered(LEDGER_CURSOR, entries, |row| row.id.0))
    }

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
