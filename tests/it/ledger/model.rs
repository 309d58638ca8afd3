//! An in-memory model of the ledger: the outcome of each step, and the state after it.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Datelike as _, NaiveDate, Utc};
use gensvc::domain::spend::SpendPeriod;

use super::steps::{By, Kind, Step, part_of};

/// Outcome of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Held,
    KeyBound,
    Ended,
    Suspended,
    TooMany,
    /// With limit and spent.
    Capped(i64, i64),
    /// With balance and held.
    Short(i64, i64),
    /// Whether a settlement took place.
    Finished(bool),
    /// Refused by the database: a charge above the hold.
    Impossible,
    /// A grant, an adjustment or a refund was carried out.
    Moved,
    /// It was carried out before, with this amount.
    Repeated(i64),
    /// The reference was used for another movement, of this amount.
    ReferenceUsed(i64),
    /// Another refund was carried out before, with this amount.
    Before(i64),
    TooMuch,
    NotCharged,
    /// No outcome, or no subject.
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    Kind(Kind),
    Refund(usize),
}

#[derive(Debug, Default, Clone)]
pub struct ModelAccount {
    pub balance: i64,
    pub held: i64,
    pub unfinished: i32,
    pub suspended: bool,
    bound: BTreeSet<u8>,
    /// By reference: the movement's amount, and its kind or the generation that it refunds.
    references: BTreeMap<u8, (i64, What)>,
}

#[derive(Debug, Clone)]
pub struct ModelKey {
    pub account: usize,
    pub limit: Option<i64>,
    pub period: Option<SpendPeriod>,
    pub expires_at: Option<DateTime<Utc>>,
    pub revoked: bool,
    /// By the first day of the period; the earliest date for the total.
    pub spent: BTreeMap<NaiveDate, i64>,
}

#[derive(Debug, Clone)]
pub struct ModelGeneration {
    pub account: usize,
    pub key: usize,
    pub hold: i64,
    pub created_at: DateTime<Utc>,
    /// `None` while it runs.
    pub charged: Option<i64>,
    refund: Option<i64>,
}

#[derive(Debug, Default, Clone)]
pub struct Model {
    pub accounts: Vec<ModelAccount>,
    pub keys: Vec<ModelKey>,
    pub generations: Vec<ModelGeneration>,
}

impl ModelAccount {
    /// One with that many objects.
    pub fn new(balance: i64) -> Self {
        Self {
            balance,
            ..Self::default()
        }
    }
}

impl ModelKey {
    /// Start of the period that a moment belongs to.
    pub fn period_start(&self, at: DateTime<Utc>) -> NaiveDate {
        let day = at.date_naive();
        match self.period {
            None => NaiveDate::MIN,
            Some(SpendPeriod::Day) => day,
            Some(SpendPeriod::Month) => day.with_day(1).unwrap(),
        }
    }

    pub fn spent_at(&self, at: DateTime<Utc>) -> i64 {
        *self.spent.get(&self.period_start(at)).unwrap_or(&0)
    }
}

impl Model {
    /// Performs a step and returns the expected outcome.
    pub fn apply(&mut self, step: &Step, most: i32, now: DateTime<Utc>) -> Verdict {
        match *step {
            Step::Open {
                key, amount, bind, ..
            } => {
                let verdict = self.admit(key, amount, bind, most, now);
                if verdict == Verdict::Held {
                    self.hold(key, amount, bind, now);
                }
                verdict
            }
            Step::Settle {
                which, charge, by, ..
            } => {
                let Some(n) = self.pick(which) else {
                    return Verdict::Nothing;
                };
                let generation = &self.generations[n];
                let charge = charge.map(|part| part_of(generation.hold, part));
                if generation.charged.is_some() || by == By::Stranger {
                    Verdict::Finished(false)
                } else if charge.is_some_and(|charge| charge > generation.hold) {
                    Verdict::Impossible
                } else {
                    self.settle(n, charge.unwrap_or(0));
                    Verdict::Finished(true)
                }
            }
            Step::Move {
                account,
                kind,
                amount,
                reference,
                ..
            } => self.moved(account, What::Kind(kind), amount, reference),
            Step::Refund {
                which,
                amount,
                reference,
                ..
            } => match self.pick(which) {
                Some(n) => self.refund(n, amount, reference),
                None => Verdict::Nothing,
            },
            Step::Revoke { key, .. } => {
                self.keys[key].revoked = true;
                Verdict::Nothing
            }
            Step::Suspend {
                account, suspended, ..
            } => {
                self.accounts[account].suspended = suspended;
                Verdict::Nothing
            }
            Step::Wait { .. } => Verdict::Nothing,
        }
    }

    /// The generation that a step refers to.
    pub fn pick(&self, which: u16) -> Option<usize> {
        let count = self.generations.len();
        (count > 0).then(|| usize::from(which) % count)
    }

    fn admit(
        &self,
        key: usize,
        amount: i64,
        bind: Option<u8>,
        most: i32,
        now: DateTime<Utc>,
    ) -> Verdict {
        let key = &self.keys[key];
        let account = &self.accounts[key.account];
        let spent = key.spent_at(now);
        if key.revoked || key.expires_at.is_some_and(|at| at <= now) {
            Verdict::Ended
        } else if account.suspended {
            Verdict::Suspended
        } else if bind.is_some_and(|bind| account.bound.contains(&bind)) {
            Verdict::KeyBound
        } else if account.unfinished >= most {
            Verdict::TooMany
        } else if let Some(limit) = key.limit.filter(|limit| limit - spent < amount) {
            Verdict::Capped(limit, spent)
        } else if account.balance - account.held < amount {
            Verdict::Short(account.balance, account.held)
        } else {
            Verdict::Held
        }
    }

    pub fn hold(&mut self, key: usize, amount: i64, bind: Option<u8>, now: DateTime<Utc>) {
        let start = self.keys[key].period_start(now);
        let account = self.keys[key].account;
        *self.keys[key].spent.entry(start).or_default() += amount;
        let paying = &mut self.accounts[account];
        paying.held += amount;
        paying.unfinished += 1;
        paying.bound.extend(bind);
        self.generations.push(ModelGeneration {
            account,
            key,
            hold: amount,
            created_at: now,
            charged: None,
            refund: None,
        });
    }

    pub fn settle(&mut self, n: usize, charge: i64) {
        let generation = &mut self.generations[n];
        assert_eq!(generation.charged, None, "settled twice");
        assert!(charge <= generation.hold, "charged more than was held");
        generation.charged = Some(charge);
        let account = &mut self.accounts[generation.account];
        account.balance -= charge;
        account.held -= generation.hold;
        account.unfinished -= 1;
        let key = &mut self.keys[generation.key];
        let start = key.period_start(generation.created_at);
        *key.spent.get_mut(&start).unwrap() -= generation.hold - charge;
    }

    /// Whether a key is bound already.
    pub fn is_bound(&self, account: usize, bind: Option<u8>) -> bool {
        bind.is_some_and(|bind| self.accounts[account].bound.contains(&bind))
    }

    /// The movement of a reference.
    pub fn moved_by(&self, account: usize, reference: Option<u8>) -> Option<(i64, What)> {
        self.accounts[account].references.get(&reference?).copied()
    }

    /// The amount refunded of a generation's charge.
    pub fn refunded(&self, n: usize) -> Option<i64> {
        self.generations[n].refund
    }

    /// A movement that was carried out, whatever the balance was then.
    pub fn note_move(&mut self, account: usize, what: What, amount: i64, reference: Option<u8>) {
        let account = &mut self.accounts[account];
        account.balance += amount;
        if let Some(reference) = reference {
            let before = account.references.insert(reference, (amount, what));
            assert_eq!(before, None, "a reference has moved credits twice");
        }
    }

    /// A refund that was carried out, whatever the balance was then.
    pub fn note_refund(&mut self, n: usize, amount: Option<i64>, reference: u8) {
        let generation = &mut self.generations[n];
        let charged = generation.charged.unwrap_or(0);
        let amount = amount.unwrap_or(charged);
        assert!(0 < amount && amount <= charged, "{amount} of {charged}");
        assert_eq!(generation.refund.replace(amount), None, "refunded twice");
        let account = generation.account;
        self.note_move(account, What::Refund(n), amount, Some(reference));
    }

    fn moved(&mut self, account: usize, what: What, amount: i64, reference: Option<u8>) -> Verdict {
        if let Some((before, what_before)) = self.moved_by(account, reference) {
            return if (before, what_before) == (amount, what) {
                Verdict::Repeated(before)
            } else {
                Verdict::ReferenceUsed(before)
            };
        }
        if let What::Refund(n) = what {
            let generation = &mut self.generations[n];
            if let Some(before) = generation.refund {
                return Verdict::Before(before);
            }
            if amount > generation.charged.unwrap_or(0) {
                return Verdict::TooMuch;
            }
            generation.refund = Some(amount);
        }
        let balance_and_unfinished = &self.accounts[account];
        if balance_and_unfinished.balance + amount < balance_and_unfinished.held {
            return Verdict::Short(balance_and_unfinished.balance, balance_and_unfinished.held);
        }
        self.note_move(account, what, amount, reference);
        Verdict::Moved
    }

    fn refund(&mut self, n: usize, amount: Option<i64>, reference: u8) -> Verdict {
        let generation = &self.generations[n];
        match generation.charged.unwrap_or(0) {
            0 => Verdict::NotCharged,
            charged => {
                let amount = amount.unwrap_or(charged);
                self.moved(generation.account, What::Refund(n), amount, Some(reference))
            }
        }
    }
}
