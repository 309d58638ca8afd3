//! Refunds of a generation's charge: adjustments that name the generation.

use chrono::{DateTime, Utc};

use super::{
    Store, StoreError,
    credits::{EntryRow, LedgerEntry, MoveKind, NewMove, move_once},
};
use crate::domain::{
    credits::Credits,
    ids::{AccountId, GenerationId},
};

/// What the references of refunds, and of nothing else, begin with.
pub const REFUND_PREFIX: &str = "refund of ";

/// A refund to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewRefund<'a> {
    /// Of which generation.
    pub generation: GenerationId,
    /// How much; all of the charge when absent. Positive.
    pub amount: Option<Credits>,
    /// The operator's note.
    pub note: &'a str,
    /// When.
    pub now: DateTime<Utc>,
}

/// How a refund ended.
#[derive(Debug)]
pub enum Refunded {
    /// Done, by this entry of this account.
    Done(AccountId, LedgerEntry),
    /// The same refund was made before, by this entry of this account; nothing was moved again.
    Repeated(AccountId, LedgerEntry),
    /// Another refund was made before, by this entry.
    Before(LedgerEntry),
    /// More than was charged, which is this.
    TooMuch(Credits),
    /// It has cost nothing, or is not finished.
    NotCharged,
    /// There is no such generation.
    Unknown,
}

impl NewRefund<'_> {
    /// The reference of the entry.
    pub fn reference(&self) -> String {
        format!("{REFUND_PREFIX}{}: {}", self.generation, self.note)
    }
}

impl Store {
    /// Gives back a charge, whole or in part, once for each generation.
    pub async fn refund(&self, new: &NewRefund<'_>) -> Result<Refunded, StoreError> {
        // A charge never changes once it is there.
        let generation = sqlx::query!(
            "select account_id, coalesce(charged, 0) as \"charged!\" from generations where id = $1",
            new.generation.0
        )
        .fetch_optional(self.requests.named("read a charge"))
        .await?;
        let Some(generation) = generation else {
            return Ok(Refunded::Unknown);
        };
        let account = AccountId(generation.account_id);
        let charged = Credits::from_micros(generation.charged);
        if charged == Credits::ZERO {
            return Ok(Refunded::NotCharged);
        }
        let mut tx = self.requests.named("refund").begin().await?;
        // Every entry is written under this lock: a refund that came first is seen by the next
        // statement, and none can come in between.
        sqlx::query!(
            "select id from accounts where id = $1 for no key update",
            account.0
        )
        .fetch_one(&mut tx)
        .await?;
        let before = sqlx::query_as!(
            EntryRow,
            "select id, kind, amount, balance, held, generation_id, reference, created_at
             from ledger_entries
             where account_id = $1 and kind = 'adjustment' and starts_with(reference, $2)
             order by id limit 1",
            account.0,
            format!("{REFUND_PREFIX}{}", new.generation),
        )
        .fetch_optional(&mut tx)
        .await?;
        let amount = new.amount.unwrap_or(charged);
        let reference = new.reference();
        if let Some(entry) = before.map(LedgerEntry::from) {
            let same = entry.amount == amount && entry.reference.as_ref() == Some(&reference);
            return Ok(if same {
                Refunded::Repeated(account, entry)
            } else {
                Refunded::Before(entry)
            });
        }
        if amount > charged {
            return Ok(Refunded::TooMuch(charged));
        }
        let movement = NewMove {
            account,
            kind: MoveKind::Adjustment,
            amount,
            reference: Some(&reference),
            now: new.now,
        };
        let Some(entry) = move_once(&mut tx, &movement).await? else {
            return Err(StoreError::RowCount {
                statement: "refunding a charge",
                rows: 0,
            });
        };
        tx.commit().await?;
        Ok(Refunded::Done(account, entry))
    }
}
