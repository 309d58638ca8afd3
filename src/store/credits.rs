//! Balances, grants and the ledger.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgExecutor, QueryBuilder};
use uuid::Uuid;

use super::{Store, StoreError};
use crate::domain::{
    credits::Credits,
    ids::{AccountId, GenerationId, LedgerEntryId},
    page::{Cursor, Page, PageRequest},
};

/// The letter of the ledger's cursors.
pub const LEDGER_CURSOR: u8 = b'l';

/// How often a movement is tried again when the account changed between the refusal and its
/// explanation.
const MOVE_TRIES: usize = 5;

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

    /// Whether a movement of so much, in or out, leaves what is held.
    fn allows(&self, amount: Credits) -> bool {
        amount >= Credits::ZERO || self.available().micros() >= amount.micros().saturating_neg()
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
    /// Done, by this entry.
    Done(LedgerEntry),
    /// It would take more than is available.
    Short(Balance),
    /// The same reference moved credits of this account before, by this entry; nothing was
    /// moved again. Its amount may be another one.
    Repeated(LedgerEntry),
    /// There is no such account.
    NoAccount,
}

/// A movement to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewMove<'a> {
    /// Of whose credits.
    pub account: AccountId,
    /// Grant or adjustment.
    pub kind: MoveKind,
    /// Into the balance; an adjustment may take it out, down to what is held.
    pub amount: Credits,
    /// The operator's note. One moves credits once for each account and kind.
    pub reference: Option<&'a str>,
    /// When.
    pub now: DateTime<Utc>,
}

#[derive(FromRow)]
pub(super) struct EntryRow {
    pub(super) id: i64,
    pub(super) kind: String,
    pub(super) amount: i64,
    pub(super) balance: i64,
    pub(super) held: i64,
    pub(super) generation_id: Option<Uuid>,
    pub(super) reference: Option<String>,
    pub(super) created_at: DateTime<Utc>,
}

impl Store {
    /// How an account stands.
    pub async fn balance(&self, account: AccountId) -> Result<Balance, StoreError> {
        let reading = sqlx::query!(
            "select balance, held from accounts where id = $1",
            account.0
        )
        .fetch_one(self.requests.named("read a balance"));
        let row = reading.await?;
        Ok(Balance {
            balance: Credits::from_micros(row.balance),
            held: Credits::from_micros(row.held),
        })
    }

    /// How an account stands, and how many unfinished generations it has.
    pub async fn standing(&self, account: AccountId) -> Result<(Balance, i32), StoreError> {
        let reading = sqlx::query!(
            "select balance, held, unfinished from accounts where id = $1",
            account.0
        )
        .fetch_one(self.requests.named("read a balance and unfinished jobs"));
        let row = reading.await?;
        let balance = Balance {
            balance: Credits::from_micros(row.balance),
            held: Credits::from_micros(row.held),
        };
        Ok((balance, row.unfinished))
    }

    /// Moves credits and writes the entry, in one statement. A reference that was used before
    /// moves nothing, whatever the balance has become since.
    pub async fn move_credits(&self, new: &NewMove<'_>) -> Result<Moved, StoreError> {
        let mut tries = 1;
        loop {
            let moved = self.try_move(new).await?;
            match &moved {
                // Something was released between the refusal and its explanation: it fits now.
                Moved::Short(balance) if tries < MOVE_TRIES && balance.allows(new.amount) => {
                    tries += 1;
                }
                _ => return Ok(moved),
            }
        }
    }

    async fn try_move(&self, new: &NewMove<'_>) -> Result<Moved, StoreError> {
        if let Some(entry) = self.moved_before(new).await? {
            return Ok(Moved::Repeated(entry));
        }
        let refused = match move_once(self.requests.named("move credits"), new).await {
            Ok(Some(entry)) => return Ok(Moved::Done(entry)),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        // Another request with this reference may have got in between; this one then failed on
        // the unique reference, or on the balance that the other one left.
        let about_the_row = matches!(
            refused,
            None | Some(StoreError::OutOfRange(_) | StoreError::Constraint(..))
        );
        if about_the_row && let Some(entry) = self.moved_before(new).await? {
            return Ok(Moved::Repeated(entry));
        }
        if let Some(error) = refused {
            return Err(error);
        }
        Ok(match self.account(new.account).await? {
            Some(account) => Moved::Short(account.balance),
            None => Moved::NoAccount,
        })
    }

    /// The entry that the reference made.
    async fn moved_before(&self, new: &NewMove<'_>) -> Result<Option<LedgerEntry>, StoreError> {
        let Some(reference) = new.reference else {
            return Ok(None);
        };
        let row = sqlx::query_as!(
            EntryRow,
            "select id, kind, amount, balance, held, generation_id, reference, created_at
             from ledger_entries where account_id = $1 and kind = $2 and reference = $3",
            new.account.0,
            new.kind.as_str(),
            reference,
        )
        .fetch_optional(self.requests.named("find an entry by reference"))
        .await?;
        Ok(row.map(LedgerEntry::from))
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
            .fetch_all(self.requests.named("list ledger entries").long())
            .await?;
        let entries = rows.into_iter().map(LedgerEntry::from).collect();
        Ok(Page::from_surplus(
            entries,
            page.per_page,
            |entry: &LedgerEntry| Cursor::Number(LEDGER_CURSOR, entry.id.0),
        ))
    }
}

/// The one statement that moves credits by an operator's hand. `None`: no such account, or too
/// little that is available.
pub(super) async fn move_once(
    executor: impl PgExecutor<'_>,
    new: &NewMove<'_>,
) -> Result<Option<LedgerEntry>, StoreError> {
    // The account's row is locked before the entry gets its id, so that ids ascend in the order
    // in which the balance moved.
    let row = sqlx::query_as!(
        EntryRow,
        "with account as (
             update accounts set balance = balance + $2
             where id = $1 and balance + $2 >= held
             returning id, balance, held
         )
         insert into ledger_entries (account_id, kind, amount, balance, held, reference, created_at)
         select id, $3, $2, balance, held, $4, $5 from account
         returning id, kind, amount, balance, held, generation_id, reference, created_at",
        new.account.0,
        new.amount.micros(),
        new.kind.as_str(),
        new.reference,
        new.now,
    )
    .fetch_optional(executor)
    .await?;
    Ok(row.map(LedgerEntry::from))
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
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Grant, Self::Adjustment];

    /// The name in the ledger.
    pub const fn as_str(self) -> &'static str {
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
