//! Writes holds and settlements: many in one statement, or those of one account in a transaction
//! that waits for the lock of its row.
//!
//! A shared statement waits for each lock only as long as another server's commit takes
//! (`BRIEF_LOCKS`), so that a long lock of one account does not block others. It locks rows that
//! belong to accounts before the accounts' rows, a transaction after them. If the two cross, the
//! statement times out, long before Postgres looks for a deadlock.

use std::io;

use futures_util::future::BoxFuture;
use sqlx::PgExecutor;
use tokio::sync::oneshot;

use super::{HoldOutcome, SettledRow, hold::Hold, refusal::decide, settle::Settle};
use crate::{
    domain::ids::AccountId,
    store::{
        Result, StoreError, group_rows,
        groups::{Item, Writer},
        pool::Pool,
    },
};

/// A hold or settlement, and the channel for its result.
pub enum Write {
    Hold(Hold, Waiter<HoldOutcome>),
    Settle(Settle, Waiter<SettledRow>),
}

/// The sender of a write's result. `None`: it was not written, because of the row itself.
pub type Waiter<T> = oneshot::Sender<Result<Option<T>>>;

/// Writes holds and settlements. `lanes` holds one connection per lane.
pub struct CreditWriter {
    pub shared: Pool,
    pub lanes: Pool,
}

/// Results by row, in order. `None`: not written, because of the row itself.
pub(super) type Verdicts<'a, T> = BoxFuture<'a, Result<Vec<Option<T>>>>;

/// A row that one statement can write together with others of its kind.
pub(super) trait Grouped: Sized + Sync {
    const STATEMENT: &'static str;
    type Outcome: Send;

    fn account(&self) -> AccountId;

    fn write<'a>(
        items: &'a [&'a Self],
        executor: impl PgExecutor<'a> + 'a,
    ) -> Verdicts<'a, Self::Outcome>;

    /// Converts an error that this row alone has caused.
    fn outcome_of(error: StoreError) -> Result<Option<Self::Outcome>> {
        Err(error)
    }
}

impl Item for Write {
    type Key = AccountId;

    fn key(&self) -> AccountId {
        match self {
            Self::Hold(hold, _) => hold.account(),
            Self::Settle(settle, _) => settle.account(),
        }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Hold(..) => 0,
            Self::Settle(..) => 1,
        }
    }

    /// A hold whose caller has disconnected is not placed; settlements are always written.
    fn is_abandoned(&self) -> bool {
        matches!(self, Self::Hold(hold, waiter) if hold.is_abandoned() || waiter.is_closed())
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Hold(hold, _) => hold.bytes(),
            Self::Settle(settle, _) => settle.bytes(),
        }
    }
}

impl Writer for CreditWriter {
    type Item = Write;

    async fn together(&self, items: Vec<Write>) -> Vec<Write> {
        let (holds, settlements) = split(items);
        let mut holds = together(&self.shared, holds).await;
        // They would wait in the lane for nothing, since lanes count no requests.
        for (_, waiter) in holds.extract_if(.., |(hold, _)| hold.is_open()) {
            let _ = waiter.send(Ok(Some(HoldOutcome::NotAsPresumed)));
        }
        let settlements = together(&self.shared, settlements).await;
        join(holds, settlements)
    }

    async fn in_lane(&self, items: Vec<Write>) {
        let Err((error, items)) = self.lane(items).await else {
            return;
        };
        if items.len() == 1 || error.concerns_all() {
            return fail_all(items, &error);
        }
        // One row failed; write the others without it.
        let mut items = items.into_iter();
        while let Some(item) = items.next() {
            if let Err((error, mut failed)) = self.lane(vec![item]).await {
                if error.concerns_all() {
                    failed.extend(items.by_ref());
                }
                fail_all(failed, &error);
            }
        }
    }
}

impl CreditWriter {
    /// Writes items of one account in one transaction. Returns them with the error if it failed.
    async fn lane(&self, items: Vec<Write>) -> Result<(), (StoreError, Vec<Write>)> {
        let Some(account) = items.first().map(Item::key) else {
            return Ok(());
        };
        let (holds, settlements) = split(items);
        match self.under_lock(account, &holds, &settlements).await {
            Ok((outcomes, settled)) => {
                for ((_, waiter), outcome) in holds.into_iter().zip(outcomes) {
                    let _ = waiter.send(Ok(Some(outcome)));
                }
                for ((_, waiter), settled) in settlements.into_iter().zip(settled) {
                    let _ = waiter.send(Ok(settled));
                }
                Ok(())
            }
            Err(error) => Err((error, join(holds, settlements))),
        }
    }

    /// Settles, then places holds, under the lock of the account's row.
    async fn under_lock(
        &self,
        account: AccountId,
        holds: &Waiting<Hold>,
        settlements: &Waiting<Settle>,
    ) -> Result<(Vec<HoldOutcome>, Vec<Option<SettledRow>>)> {
        let mut tx = self.lanes.named("write in a lane").begin().await?;
        let retries_until = sqlx::query_scalar!(
            "select retries_until from accounts where id = $1 for no key update",
            account.0
        )
        .fetch_optional(&mut tx)
        .await?
        .flatten();
        let mut settled = Vec::new();
        if !settlements.is_empty() {
            settled = Settle::write(&rows(settlements), &mut tx).await?;
        }
        let outcomes = decide(&mut tx, &rows(holds), retries_until).await?;
        tx.commit().await?;
        Ok((outcomes, settled))
    }
}

/// Writes rows in one statement. If it fails, writes those of unlocked accounts again under their
/// locks and, if that fails, each alone. Returns those of locked accounts.
async fn together<G: Grouped>(pool: &Pool, items: Waiting<G>) -> Waiting<G> {
    let Err((error, items)) = write(pool, items).await else {
        return Vec::new();
    };
    if items.len() == 1 || error.is_unconfirmed() {
        return fail_unless_locked(items, &error);
    }
    match write_open(pool, &items).await {
        Ok((open, verdicts)) => {
            let is_open = |(item, _): &(G, _)| open.contains(&item.account().0);
            let (open, locked) = items.into_iter().partition(is_open);
            tell(open, verdicts);
            locked
        }
        Err(error) if error.is_unconfirmed() => fail_unless_locked(items, &error),
        // One row failed; write the others without it.
        Err(_) => each_alone(pool, items).await,
    }
}

/// Writes each row in its own statement. Returns those of locked accounts.
async fn each_alone<G: Grouped>(pool: &Pool, items: Waiting<G>) -> Waiting<G> {
    let mut locked = Vec::new();
    let mut items = items.into_iter();
    while let Some(item) = items.next() {
        if let Err((error, mut failed)) = write(pool, vec![item]).await {
            if error.is_unconfirmed() {
                failed.extend(items.by_ref());
            }
            locked.extend(fail_unless_locked(failed, &error));
        }
    }
    locked
}

/// Writes rows in one statement. Returns them with the error if it failed.
async fn write<G: Grouped>(pool: &Pool, items: Waiting<G>) -> Result<(), (StoreError, Waiting<G>)> {
    if items.is_empty() {
        return Ok(());
    }
    match G::write(&rows(&items), pool.named(G::STATEMENT)).await {
        Ok(verdicts) => tell(items, verdicts),
        Err(error) => return Err((error, items)),
    }
    Ok(())
}

/// Writes rows of accounts that are not locked, and returns these accounts with the results. Waits
/// longer for other locks, so that rows need not be written one by one under load.
async fn write_open<G: Grouped>(
    pool: &Pool,
    items: &Waiting<G>,
) -> Result<(Vec<i64>, Vec<Option<G::Outcome>>)> {
    let accounts = group_rows::ids(items.iter().map(|(item, _)| Some(item.account().0)));
    let mut tx = pool.named("write what is not locked").begin().await?;
    sqlx::query!("select set_config('lock_timeout', '500ms', true)")
        .fetch_one(&mut tx)
        .await?;
    let open = sqlx::query_scalar!(
        "select id from accounts where id = any($1) for no key update skip locked",
        &accounts
    )
    .fetch_all(&mut tx)
    .await?;
    let rows: Vec<&G> = rows(items)
        .into_iter()
        .filter(|item| open.contains(&item.account().0))
        .collect();
    let verdicts = if rows.is_empty() {
        Vec::new()
    } else {
        G::write(&rows, &mut tx).await?
    };
    // The counts of requests were sent already, so rows are not written again after an error.
    let committed = tx.commit().await;
    committed.map_err(|error| sqlx::Error::Io(io::Error::other(error)))?;
    Ok((open, verdicts))
}

fn rows<G: Grouped>(items: &Waiting<G>) -> Vec<&G> {
    items.iter().map(|(item, _)| item).collect()
}

/// Sends the results.
fn tell<G: Grouped>(items: Waiting<G>, verdicts: Vec<Option<G::Outcome>>) {
    for ((_, waiter), verdict) in items.into_iter().zip(verdicts) {
        let _ = waiter.send(Ok(verdict));
    }
}

/// Returns a row that failed alone if its account is locked.
fn fail_unless_locked<G: Grouped>(items: Waiting<G>, error: &StoreError) -> Waiting<G> {
    if error.is_of_a_lock() {
        return items;
    }
    fail(items, error);
    Vec::new()
}

fn fail_all(items: Vec<Write>, error: &StoreError) {
    let (holds, settlements) = split(items);
    fail(holds, error);
    fail(settlements, error);
}

/// Sends an error to all of one kind.
fn fail<G: Grouped>(items: Waiting<G>, error: &StoreError) {
    for (_, waiter) in items {
        let _ = waiter.send(G::outcome_of(error.clone()));
    }
}

type Waiting<G> = Vec<(G, Waiter<<G as Grouped>::Outcome>)>;

fn split(items: Vec<Write>) -> (Waiting<Hold>, Waiting<Settle>) {
    let (mut holds, mut settlements) = (Vec::new(), Vec::new());
    for item in items {
        match item {
            Write::Hold(hold, waiter) => holds.push((hold, waiter)),
            Write::Settle(settle, waiter) => settlements.push((settle, waiter)),
        }
    }
    (holds, settlements)
}

fn join(holds: Waiting<Hold>, settlements: Waiting<Settle>) -> Vec<Write> {
    let holds = holds
        .into_iter()
        .map(|(item, waiter)| Write::Hold(item, waiter));
    let settlements = settlements.into_iter();
    let settlements = settlements.map(|(item, waiter)| Write::Settle(item, waiter));
    holds.chain(settlements).collect()
}
