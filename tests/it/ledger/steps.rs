//! The steps of random runs, and their generators.

use proptest::{option, prelude::*};

/// Accounts of a run, keys of each account, and servers.
pub const ACCOUNTS: usize = 2;
pub const KEYS: usize = 5;
pub const SERVERS: usize = 3;

/// A movement by the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Grant,
    Adjustment,
}

/// Who ends a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The server that owns it.
    Worker,
    /// A server that does not own it.
    Stranger,
    /// Anyone: a cancel.
    Anyone,
}

/// One step, performed through one of the servers.
#[derive(Debug, Clone)]
pub enum Step {
    Open {
        key: usize,
        server: usize,
        amount: i64,
        /// An idempotency key.
        bind: Option<u8>,
    },
    Settle {
        which: u16,
        server: usize,
        /// 250ths of the hold; `None`: a failure.
        charge: Option<u8>,
        by: By,
    },
    Move {
        account: usize,
        server: usize,
        kind: Kind,
        amount: i64,
        reference: Option<u8>,
    },
    Refund {
        which: u16,
        server: usize,
        amount: Option<i64>,
        reference: u8,
    },
    Revoke {
        key: usize,
        server: usize,
    },
    Suspend {
        account: usize,
        server: usize,
        suspended: bool,
    },
    /// The clock advances.
    Wait {
        hours: i64,
    },
}

fn server() -> std::ops::Range<usize> {
    0..SERVERS
}

fn open() -> impl Strategy<Value = Step> {
    let amount = prop_oneof![1 => Just(0_i64), 9 => 1..150_i64];
    let bind = option::weighted(0.3, 0..6_u8);
    (0..ACCOUNTS * KEYS, server(), amount, bind).prop_map(|(key, server, amount, bind)| {
        Step::Open {
            key,
            server,
            amount,
            bind,
        }
    })
}

fn finish() -> impl Strategy<Value = Step> {
    let by = prop_oneof![5 => Just(By::Worker), 1 => Just(By::Stranger), 2 => Just(By::Anyone)];
    // Sometimes more than was held.
    let charge = option::weighted(0.7, prop_oneof![20 => 0..=250_u8, 1 => Just(255_u8)]);
    (any::<u16>(), server(), charge, by).prop_map(|(which, server, charge, by)| Step::Settle {
        which,
        server,
        charge,
        by,
    })
}

fn moved() -> impl Strategy<Value = Step> {
    let amount = prop_oneof![
        (1..60_i64).prop_map(|amount| (Kind::Grant, amount)),
        (1..90_i64).prop_map(|amount| (Kind::Adjustment, amount)),
        (-90..0_i64).prop_map(|amount| (Kind::Adjustment, amount)),
    ];
    let reference = option::weighted(0.5, 0..5_u8);
    (0..ACCOUNTS, server(), amount, reference).prop_map(
        |(account, server, (kind, amount), reference)| Step::Move {
            account,
            server,
            kind,
            amount,
            reference,
        },
    )
}

fn refund() -> impl Strategy<Value = Step> {
    (any::<u16>(), server(), option::of(1..90_i64), 0..6_u8).prop_map(
        |(which, server, amount, reference)| Step::Refund {
            which,
            server,
            amount,
            reference,
        },
    )
}

/// Any step but a clock change.
pub fn step() -> impl Strategy<Value = Step> {
    let key = 0..ACCOUNTS * KEYS;
    prop_oneof![
        40 => open(),
        30 => finish(),
        10 => moved(),
        8 => refund(),
        1 => (key, server()).prop_map(|(key, server)| Step::Revoke { key, server }),
        2 => (0..ACCOUNTS, server(), prop::bool::weighted(0.3)).prop_map(
            |(account, server, suspended)| Step::Suspend { account, server, suspended }),
    ]
}

/// Any step.
pub fn timed_step() -> impl Strategy<Value = Step> {
    let wait = (1..40_i64).prop_map(|hours| Step::Wait { hours });
    prop_oneof![15 => step(), 1 => wait]
}

/// A charge: that many 250ths of the hold, rounded up.
pub fn part_of(hold: i64, part: u8) -> i64 {
    (hold * i64::from(part) + 249) / 250
}
