//! Random movements: sequential against an exact model, then concurrent on several connections
//! against their total.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicI64, Ordering},
};

use futures_util::future::join_all;
use gensvc::{domain::ids::GenerationId, store::credits::Move};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::mover::Mover;
use crate::common::TestApp;

/// Deterministic pseudo-random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 1).cast_signed() % end
    }

    /// An index into a list that is not empty.
    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(i64::try_from(length).unwrap())).unwrap()
    }
}

#[sqlx::test]
async fn one_after_the_other_they_do_as_the_model_says(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    for seed in 1..=4 {
        let account = app.account("0.0003").await;
        let mover = Mover::new(&app, &account).await;
        let mut random = Random(seed * 0x9E37_79B9);
        let (mut balance, mut held) = (300, 0);
        let mut open: Vec<(GenerationId, i64)> = Vec::new();
        for _ in 0..120 {
            let amount = random.below(120);
            match random.below(10) {
                0..=4 => {
                    let id = mover.hold(amount).await;
                    assert_eq!(id.is_some(), balance - held >= amount);
                    if let Some(id) = id {
                        held += amount;
                        open.push((id, amount));
                    }
                }
                5..=7 if !open.is_empty() => {
                    let (id, hold) = open.swap_remove(random.index(open.len()));
                    let charge = (amount % 3 > 0).then(|| random.below(hold + 1));
                    assert!(mover.finish(id, charge).await);
                    assert!(!mover.finish(id, charge.xor(Some(0))).await);
                    balance -= charge.unwrap_or(0);
                    held -= hold;
                }
                8 => {
                    let amount = amount - 80;
                    let done = amount != 0 && mover.adjust(Move::Adjustment, amount).await;
                    assert_eq!(done, amount != 0 && balance + amount >= held);
                    balance += if done { amount } else { 0 };
                }
                _ => {
                    assert!(mover.adjust(Move::Grant, 1 + amount / 4).await);
                    balance += 1 + amount / 4;
                }
            }
            assert_eq!(mover.balance_and_unfinished().await, (balance, held));
            assert!(0 <= held && held <= balance);
        }
        app.assert_verified().await;
    }
}

/// The balance suffices for one of them at a time: a refusal reports the other's hold, not a
/// balance that would suffice.
#[sqlx::test]
async fn a_refusal_never_says_that_it_would_fit(_: PgPoolOptions, options: PgConnectOptions) {
    let app = TestApp::new(options).await;
    let account = app.account("0.0001").await;
    let mover = Mover::new(&app, &account).await;
    let workers = (0..8).map(|_| {
        let mover = mover.clone();
        tokio::spawn(async move {
            for _ in 0..100 {
                // It asserts that a refusal follows from the balance that it reports.
                if let Some(id) = mover.hold(100).await {
                    assert!(mover.finish(id, None).await);
                }
            }
        })
    });
    for worker in join_all(workers).await {
        worker.unwrap();
    }
    assert_eq!(mover.balance_and_unfinished().await, (100, 0));
    app.assert_settled().await;
}

/// The combined results of several workers.
struct Sum {
    balance: AtomicI64,
    held: AtomicI64,
    /// Unfinished ones with their holds. Workers take copies, so that several try to end one.
    open: Mutex<Vec<(GenerationId, i64)>>,
    done: AtomicBool,
}

async fn work(mover: &Mover, sum: &Sum, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..80 {
        let amount = random.below(60);
        match random.below(10) {
            0..=3 => {
                if let Some(id) = mover.hold(amount).await {
                    sum.held.fetch_add(amount, Ordering::SeqCst);
                    sum.open.lock().unwrap().push((id, amount));
                }
            }
            4..=7 => {
                let picked = {
                    let open = sum.open.lock().unwrap();
                    if open.is_empty() {
                        continue;
                    }
                    // The oldest, so that the workers compete for the same ones.
                    open[random.index(open.len().min(3))]
                };
                let (id, hold) = picked;
                let charge = (amount % 3 > 0).then(|| random.below(hold + 1));
                if mover.finish(id, charge).await {
                    sum.balance.fetch_sub(charge.unwrap_or(0), Ordering::SeqCst);
                    sum.held.fetch_sub(hold, Ordering::SeqCst);
                }
                sum.open.lock().unwrap().retain(|(other, _)| *other != id);
            }
            8 => {
                let amount = amount - 45;
                if amount != 0 && mover.adjust(Move::Adjustment, amount).await {
                    sum.balance.fetch_add(amount, Ordering::SeqCst);
                }
            }
            _ => {
                assert!(mover.adjust(Move::Grant, 1 + amount / 3).await);
                sum.balance.fetch_add(1 + amount / 3, Ordering::SeqCst);
            }
        }
    }
}

#[sqlx::test]
async fn in_parallel_they_add_up_and_every_audit_meanwhile_is_clean(
    _: PgPoolOptions,
    options: PgConnectOptions,
) {
    let app = TestApp::new(options).await;
    let replica = app.replica().await;
    for seed in 1..=2_u64 {
        let account = app.account("0.0002").await;
        let here = Mover::new(&app, &account).await;
        let mut there = here.clone();
        there.store = replica.store.clone();
        let sum = Sum {
            balance: AtomicI64::new(200),
            held: AtomicI64::new(0),
            open: Mutex::default(),
            done: AtomicBool::new(false),
        };
        let workers = async {
            let all = (0..8_u64).map(|n| {
                let mover = if n % 2 == 0 { &here } else { &there };
                work(mover, &sum, (seed * 100 + n + 1) * 0x9E37_79B9)
            });
            join_all(all).await;
            sum.done.store(true, Ordering::SeqCst);
        };
        let auditor = async {
            let mut audits = 0;
            while !sum.done.load(Ordering::SeqCst) || audits == 0 {
                app.assert_verified().await;
                let (balance, held) = here.balance_and_unfinished().await;
                assert!(0 <= held && held <= balance, "{held} of {balance}");
                audits += 1;
            }
        };
        tokio::join!(workers, auditor);
        let expected = (sum.balance.into_inner(), sum.held.into_inner());
        assert_eq!(here.balance_and_unfinished().await, expected);
        for (id, _) in sum.open.into_inner().unwrap() {
            assert!(here.finish(id, None).await);
        }
        assert_eq!(here.balance_and_unfinished().await, (expected.0, 0));
    }
    app.assert_settled().await;
    // Entries got their ids in the order in which the balance moved.
    let jumps: i64 = sqlx::query_scalar(
        "select count(*) from (
             select kind, amount, balance - lag(balance) over w as moved
             from ledger_entries window w as (partition by account_id order by id)
         ) e where moved <> case kind when 'charge' then -amount
             when 'grant' then amount when 'adjustment' then amount else 0 end",
    )
    .fetch_one(&app.pool)
    .await
    .unwrap();
    assert_eq!(jumps, 0);
}
