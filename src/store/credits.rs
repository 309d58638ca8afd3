//! Balances, grants and the ledger.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, QueryBuilder};
use uuid::Uuid;

use super::{Store, StoreError};
use crate::domain::{
    credits::Credits,
    ids::{AccountId, GenerationId, LedgerEntryId},
    page::{Cursor, Page, PageRequest},
};

/// The letter of the ledger's cursors.
pub const LEDGER_CURSOR: u8 = b'l';

/// What an account owns and what of it is on hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Balance {
    /// What is owned.
    pub balance: Credits,
    /// What running work may cost at most.
    pub held: Credits,
}

impl Balance {
    /// What can be spent now.
    pub fn available(&self) -> Credits {
        self.balance.minus_or_zero(self.held)
    }
}

/// One movement of credits.
#[derive(Debug, Clone)]
pub struct LedgerEntry {
    /// Its id; ascends within an account.
    pub id: LedgerEntryId,
    /// grant, hold, charge, release or adjustment.
    pub kind: String,
    /// What was moved.
    pub amount: Credits,
    /// The balance after it.
    pub balance: Credits,
    /// What was held after it.
    pub held: Credits,
    /// The generation that it belongs to.
    pub generation: Option<GenerationId>,
    /// The operator's note.
    pub reference: Option<String>,
    /// When.
    pub created_at: DateTime<Utc>,
}

/// How a grant or an adjustment ended.
#[derive(Debug)]
pub enum Moved {
    /// Done; how the account stands after it.
    Done(Balance),
    /// It would take more than is available.
    Short(Balance),
    /// The same reference moved credits of this account before; nothing was moved again.
    Repeated(Balance),
}

#[derive(FromRow)]
struct EntryRow {
    id: i64,
    kind: String,
    amount: i64,
    balance: i64,
    held: i64,
    generation_id: Option<Uuid>,
    reference: Option<String>,
    created_at: DateTime<Utc>,
}

impl Store {
    /// How an account stands.
    pub async fn balance(&self, account: AccountId) -> Result<Balance, StoreError> {
        let row = sqlx::query!(
            "select balance, held from accounts where id = $1",
            account.0
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(Balance {
            balance: Credits::from_micros(row.balance),
            held: Credits::from_micros(row.held),
        })
    }

    /// How an account stands, and how many unfinished generations it has.
    pub async fn standing(&self, account: AccountId) -> Result<(Balance, i32), StoreError> {
        let row = sqlx::query!(
            "select balance, held, unfinished from accounts where id = $1",
            account.0
        )
        .fetch_one(&self.pool)
        .await?;
        let balance = Balance {
            balance: Credits::from_micros(row.balance),
            held: Credits::from_micros(row.held),
        };
        Ok((balance, row.unfinished))
    }

    /// Moves `amount` into the balance (an adjustment may take it out, down to what is held)
    /// and writes the entry, in one statement.
    pub async fn move_credits(
        &self,
        account: AccountId,
        kind: MoveKind,
        amount: Credits,
        reference: Option<&str>,
        now: DateTime<Utc>,
    ) -> Result<Moved, StoreError> {
        let row = sqlx::query!(
            r#"
            with account as (
                update accounts set balance = balance + $2
                where id = $1 and balance + $2 >= held
                returning id, balance, held
            ), entry as (
                insert into ledger_entries (account_id, kind, amount, balance, held, reference, created_at)
                select id, $3, $2, balance, held, $4, $5 from account
            )
            select balance, held from account
            "#,
            account.0,
            amount.micros(),
            kind.as_str(),
            reference,
            now,
        )
        .fetch_optional(&self.pool)
        .await;
        let row = match row.map_err(StoreError::from) {
            Err(error) if error.is_constraint("ledger_entries_reference_once") => {
                return Ok(Moved::Repeated(self.balance(account).await?));
            }
            row => row?,
        };
        Ok(match row {
            Some(row) => Moved::Done(Balance {
                balance: Credits::from_micros(row.balance),
                held: Credits::from_micros(row.held),
            }),
            None => Moved::Short(self.balance(account).await?),
        })
    }

    /// The account's movements, newest first.
    pub async fn ledger(
        &self,
        account: AccountId,
        kind: Option<&str>,
        generation: Option<GenerationId>,
        page: &PageRequest,
    ) -> Result<Page<LedgerEntry>, StoreError> {
        let mut query = QueryBuilder::new(
            "select id, kind, amount, balance, held, generation_id, reference, created_at \
             from ledger_entries where account_id = ",
        );
        query.push_bind(account.0);
        if let Some(kind) = kind {
            query.push(" and kind = ").push_bind(kind.to_owned());
        }
        if let Some(generation) = generation {
            query.push(" and generation_id = ").push_bind(generation.0);
        }
        if let Some(after) = page.after_number() {
            query.push(" and id < ").push_bind(after);
        }
        query
            .push(" order by id desc limit ")
            .push_bind(page.per_page + 1);
        let rows: Vec<EntryRow> = query
            .build_query_as()
            .persistent(false)
            .fetch_all(&self.pool)
            .await?;
        let entries = rows.into_iter().map(LedgerEntry::from).collect();
        Ok(Page::from_surplus(
            entries,
            page.per_page,
            |entry: &LedgerEntry| Cursor::Number(LEDGER_CURSOR, entry.id.0),
        ))
    }
}

/// A movement that an operator makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveKind {
    /// Bought or given credits; positive.
    Grant,
    /// A correction; may be negative.
    Adjustment,
}

impl MoveKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Grant => "grant",
            Self::Adjustment => "adjustment",
        }
    }
}

impl From<EntryRow> for LedgerEntry {
    fn from(row: EntryRow) -> Self {
        Self {
            id: LedgerEntryId(row.id),
            kind: row.kind,
            amount: Credits::from_micros(row.amount),
            balance: Credits::from_micros(row.balance),
            held: Credits::from_micros(row.held),
            generation: row.generation_id.map(GenerationId),
            reference: row.reference,
            created_at: row.created_at,
        }
    }
}
