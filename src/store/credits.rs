//! Balances, the ledger, and movements by the operator: grants, adjustments and refunds.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, QueryBuilder};
use utoipa::ToSchema;

use super::{Result, Store, keys::Credential, pool::Transaction};
use crate::domain::{
    clock::rfc3339,
    credits::Credits,
    ids::{AccountId, GenerationId, LedgerEntryId},
    page::{Page, PageRequest},
};
pub use crate::request::Move;

/// The kinds of entries. The index begins with the kind, so the newest entry is looked up by kind.
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
    /// Credits charged and on hold in the period.
    pub spent: Credits,
    /// The part of `spent` that is on hold.
    pub held: Credits,
}

impl SpendLimit {
    /// Whether a hold would exceed the limit. A hold of zero does if the limit is exceeded already.
    pub fn is_exceeded_by(self, hold: Credits) -> bool {
        self.spent.micros().saturating_add(hold.micros()) > self.limit.micros()
    }

    /// Whether a hold would fit if nothing else were on hold.
    pub fn has_room_for(self, hold: Credits) -> bool {
        let spent = self.spent.minus_or_zero(self.held);
        !Self { spent, ..self }.is_exceeded_by(hold)
    }

    /// Returns the credits that may still be spent.
    pub fn left(self) -> Credits {
        self.limit.minus_or_zero(self.spent)
    }
}

/// One movement of credits.
#[derive(Debug, Clone, FromRow, Serialize, ToSchema)]
#[schema(as = LedgerEntryBody)]
pub struct LedgerEntry {
    /// Its id; ids ascend within the account.
    pub id: LedgerEntryId,
    /// grant, hold, charge, release, adjustment or refund.
    #[schema(example = "charge")]
    pub kind: String,
    /// The amount moved; negative only in adjustments.
    pub amount: Credits,
    /// The account's balance after the entry.
    pub balance: Credits,
    /// The account's credits on hold after the entry.
    pub held: Credits,
    /// The generation it belongs to.
    #[schema(required, nullable)]
    pub generation: Option<GenerationId>,
    /// The operator's note.
    #[schema(required, nullable)]
    pub reference: Option<String>,
    /// When it was recorded.
    #[serde(serialize_with = "rfc3339")]
    pub created_at: DateTime<Utc>,
}

#[derive(Debug, Clone, Copy)]
pub struct NewMove<'a> {
    pub account: AccountId,
    pub what: Move,
    /// The operator's note, an idempotency key within the account.
    pub reference: Option<&'a str>,
    pub now: DateTime<Utc>,
}

/// The result of a movement. Only [`Self::Done`] has moved credits.
#[derive(Debug)]
pub enum Moved {
    Done(LedgerEntry),
    /// The reference already made the same movement, with this entry.
    Repeated(LedgerEntry),
    /// The reference already made another movement, with this entry.
    ReferenceUsed(LedgerEntry),
    Short(Balance),
    NoAccount,
    /// The generation belongs to another account.
    NoGeneration,
    /// The generation was free, or is not finished.
    NotCharged,
    /// The refund is above the generation's charge, which is given.
    AboveCharge(Credits),
    /// The generation was already refunded, with this entry.
    Refunded(LedgerEntry),
}

impl Move {
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Grant(_) => "grant",
            Self::Adjustment(_) => "adjustment",
            Self::Refund { .. } => "refund",
        }
    }

    const fn generation(&self) -> Option<GenerationId> {
        match self {
            Self::Refund { generation, .. } => Some(*generation),
            Self::Grant(_) | Self::Adjustment(_) => None,
        }
    }
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

    /// Reads the credits and the number of unfinished jobs.
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

    /// Returns the account's ledger entries, newest first.
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

    /// Reads the account's credits and the key's spend limit.
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

    /// Moves credits and writes the ledger entry.
    pub async fn move_credits(&self, new: &NewMove<'_>) -> Result<Moved> {
        let mut tx = self.requests.named("move credits").begin().await?;
        let moved = moved(&mut tx, new).await?;
        // Also after a refusal, to release the lock of the account's row.
        tx.commit().await?;
        Ok(moved)
    }

    /// Finds the account of a generation.
    pub async fn account_of(&self, id: GenerationId) -> Result<Option<AccountId>> {
        let reading = sqlx::query_scalar!(
            // Uses an index of the ledger; free generations have no entries and need a search.
            r#"select coalesce(
                   (select account_id from ledger_entries where generation_id = $1 limit 1),
                   (select account_id from generations where id = $1)
               ) as "id: AccountId""#,
            id.0
        )
        .fetch_one(self.requests.named("find a generation's account").long());
        Ok(reading.await?)
    }
}

async fn moved(tx: &mut Transaction, new: &NewMove<'_>) -> Result<Moved> {
    // All entries of an account are written under this lock, so the reads below stay valid.
    let balance = sqlx::query_as!(
        Balance,
        r#"select balance as "balance: _", held as "held: _" from accounts
           where id = $1 for no key update"#,
        new.account.0
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(balance) = balance else {
        return Ok(Moved::NoAccount);
    };
    let (amount, charged) = match new.what {
        Move::Grant(amount) | Move::Adjustment(amount) => (amount, None),
        Move::Refund { generation, amount } => {
            match charge_of(tx, new.account, generation).await? {
                None => return Ok(Moved::NoGeneration),
                Some(Credits::ZERO) => return Ok(Moved::NotCharged),
                Some(charged) => (amount.unwrap_or(charged), Some(charged)),
            }
        }
    };
    if let Some(entry) = made_by_reference(tx, new).await? {
        let same = entry.kind == new.what.kind()
            && entry.amount == amount
            && entry.generation == new.what.generation();
        return Ok(if same {
            Moved::Repeated(entry)
        } else {
            Moved::ReferenceUsed(entry)
        });
    }
    if let Some(entry) = refund_of(tx, new.what.generation()).await? {
        return Ok(Moved::Refunded(entry));
    }
    if let Some(charged) = charged.filter(|charged| amount > *charged) {
        return Ok(Moved::AboveCharge(charged));
    }
    let Some(entry) = write(tx, new, amount).await? else {
        return Ok(Moved::Short(balance));
    };
    Ok(Moved::Done(entry))
}

/// Reads the charge of a generation: zero while it runs, then constant.
async fn charge_of(
    tx: &mut Transaction,
    account: AccountId,
    id: GenerationId,
) -> Result<Option<Credits>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"select coalesce(charged, 0) as "charged!: Credits" from generations
           where id = $1 and account_id = $2"#,
        id.0,
        account.0,
    )
    .fetch_optional(&mut *tx)
    .await
}

/// Finds the entry that a reference created.
async fn made_by_reference(
    tx: &mut Transaction,
    new: &NewMove<'_>,
) -> Result<Option<LedgerEntry>, sqlx::Error> {
    // Older versions accepted the same reference for a grant and an adjustment.
    sqlx::query_as!(
        LedgerEntry,
        r#"select id as "id: _", kind, amount as "amount: _", balance as "balance: _",
                  held as "held: _", generation_id as "generation: _", reference, created_at
         from ledger_entries where account_id = $1 and reference = $2
         order by kind = $3 desc limit 1"#,
        new.account.0,
        new.reference,
        new.what.kind(),
    )
    .fetch_optional(&mut *tx)
    .await
}

/// Finds the refund of a generation.
async fn refund_of(
    tx: &mut Transaction,
    id: Option<GenerationId>,
) -> Result<Option<LedgerEntry>, sqlx::Error> {
    sqlx::query_as!(
        LedgerEntry,
        r#"select id as "id: _", kind, amount as "amount: _", balance as "balance: _",
                  held as "held: _", generation_id as "generation: _", reference, created_at
         from ledger_entries where generation_id = $1 and kind = 'refund'"#,
        id.map(|id| id.0),
    )
    .fetch_optional(&mut *tx)
    .await
}

/// Moves the balance and writes the entry. Returns `None` if too little is available.
async fn write(
    tx: &mut Transaction,
    new: &NewMove<'_>,
    amount: Credits,
) -> Result<Option<LedgerEntry>, sqlx::Error> {
    sqlx::query_as!(
        LedgerEntry,
        r#"with account as (
             update accounts set balance = balance + $2
             where id = $1 and balance + $2 >= held
             returning id, balance, held
         )
         insert into ledger_entries
             (account_id, kind, amount, balance, held, generation_id, reference, created_at)
         select id, $3, $2, balance, held, $4, $5, $6 from account
         returning id as "id: _", kind, amount as "amount: _", balance as "balance: _",
                  held as "held: _", generation_id as "generation: _", reference, created_at"#,
        new.account.0,
        amount.micros(),
        new.what.kind(),
        new.what.generation().map(|id| id.0),
        new.reference,
        new.now,
    )
    .fetch_optional(&mut *tx)
    .await
}
