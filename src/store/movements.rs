//! Movements by the operator: grants, adjustments and refunds.

use super::{
    Result, Store,
    credits::{Balance, LedgerEntry},
    pool::Transaction,
};
use crate::domain::{
    credits::Credits,
    ids::{AccountId, GenerationId},
};
use chrono::{DateTime, Utc};

pub use crate::domain::request::Move;

#[derive(Debug, Clone, Copy)]
pub struct NewMove<'a> {
    pub account: AccountId,
    pub what: Move,
    /// The operator's note, an idempotency key within the account.
    pub reference: Option<&'a str>,
    pub now: DateTime<Utc>,
}

/// Only [`Self::Done`] has moved credits.
#[derive(Debug)]
pub enum Moved {
    Done(LedgerEntry),
    /// The reference already made the same movement, by this entry.
    Repeated(LedgerEntry),
    /// The reference already made another movement, by this entry.
    ReferenceUsed(LedgerEntry),
    Short(Balance),
    NoAccount,
    /// The generation belongs to another account.
    NoGeneration,
    /// The generation was free, or is not finished.
    NotCharged,
    /// The generation's charge, which is less.
    AboveCharge(Credits),
    /// The generation was refunded before, by this entry.
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
    /// Moves credits and writes the ledger entry.
    pub async fn move_credits(&self, new: &NewMove<'_>) -> Result<Moved> {
        let mut tx = self.requests.named("move credits").begin().await?;
        let moved = moved(&mut tx, new).await?;
        // After a refusal too, to release the lock of the account's row.
        tx.commit().await?;
        Ok(moved)
    }

    /// The account of a generation.
    pub async fn account_of(&self, id: GenerationId) -> Result<Option<AccountId>> {
        let reading = sqlx::query_scalar!(
            // By an index of the ledger; free generations have no entries and need a search.
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
    // All entries of an account are written under this lock, so that reads below stay valid.
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

/// The charge of a generation; zero while it runs, then constant.
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

/// The entry that the reference made.
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

/// The refund of a generation.
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

/// Moves the balance and writes the entry; `None`: too little is available.
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
