//! A key that was read a moment ago, presumed to be as it was. The statement that places the hold looks
//! at it again, and counts the request: what has been revoked meanwhile pays for nothing.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::AuthenticatedKey;
use crate::domain::{
    rate::{Gcra, RateState},
    token::TokenDigest,
};

/// A request by such a key.
#[derive(Debug)]
pub struct Presumed {
    pub digest: TokenDigest,
    /// As it was read.
    pub key: Arc<AuthenticatedKey>,
    /// Requests per minute.
    pub limit: u32,
    /// How the limit stands after the request; `None`: it was not counted, and will not be.
    settled: OnceLock<Option<RateState>>,
    /// Whether a statement that counts the request is under way.
    is_counting: AtomicBool,
}

impl Presumed {
    /// `None`: the key was read dead.
    pub fn new(digest: TokenDigest, key: Arc<AuthenticatedKey>) -> Option<Self> {
        Some(Self {
            digest,
            limit: key.rate?.limit,
            key,
            settled: OnceLock::new(),
            is_counting: AtomicBool::new(false),
        })
    }

    /// Whether the key is still to be read, and the request to be counted.
    pub fn is_open(&self) -> bool {
        self.settled.get().is_none()
    }

    /// Says that a statement counts the request, or that it has returned.
    pub fn set_counting(&self, is_counting: bool) {
        self.is_counting.store(is_counting, Ordering::Release);
    }

    /// Whether nothing has counted the request or is about to.
    pub fn is_uncounted(&self) -> bool {
        self.is_open() && !self.is_counting.load(Ordering::Acquire)
    }

    /// How the limit stands after the request, where it was counted.
    pub fn counted(&self) -> Option<RateState> {
        self.settled.get().copied().flatten()
    }

    /// The request was counted, or cannot be. Only the first time tells.
    pub fn settle(&self, counted: Option<RateState>) {
        let _ = self.settled.set(counted);
    }

    /// Settles a request of a group at its place. `counted`: the limit's state after all requests of
    /// the key, and how many were admitted.
    pub fn settle_at(&self, place: Option<i32>, counted: Option<(i64, i32)>, now: DateTime<Utc>) {
        let place = place.filter(|&place| place != CONFLICTING);
        let place = place.and_then(|place| usize::try_from(place).ok());
        if let Some((place, (tat, admitted))) = place.zip(counted) {
            let gcra = Gcra::per_minute(self.limit);
            self.settle(Some(gcra.counted(now, tat, admitted, place)));
        }
    }
}

/// The place of a request whose key another of its group presumes to be otherwise.
const CONFLICTING: i32 = i32::MAX;

/// What is presumed of the keys of a group, in the order of their ids, and their requests that are to
/// be counted.
#[derive(Default)]
pub struct Presumptions<'a> {
    /// Of each hold its place among the requests of its key; `None`: there is nothing to count.
    pub places: Vec<Option<i32>>,
    pub ids: Vec<i64>,
    pub limits: Vec<i32>,
    pub counts: Vec<i32>,
    pub defaults: Vec<&'a Value>,
    pub versions: Vec<i32>,
}

impl<'a> Presumptions<'a> {
    /// Of each hold the presumed key whose request is still to be counted.
    pub fn of(uncounted: impl Iterator<Item = Option<&'a Presumed>>) -> Self {
        let mut all = Self::default();
        // By key, what the first request presumes, and how many are counted.
        let mut keys: BTreeMap<i64, (&'a Presumed, i32)> = BTreeMap::new();
        for presumed in uncounted {
            let place = presumed.map(|presumed| {
                let (first, n) = keys.entry(presumed.key.id.0).or_insert((presumed, 0));
                let (first, one) = (&first.key, &presumed.key);
                if first.version != one.version || first.defaults != one.defaults {
                    // One of them is wrong: it is read again.
                    return CONFLICTING;
                }
                *n += 1;
                *n - 1
            });
            all.places.push(place);
        }
        for (id, (presumed, count)) in keys {
            all.ids.push(id);
            let limit = i32::try_from(presumed.limit);
            all.limits.push(limit.unwrap_or(i32::MAX));
            all.counts.push(count);
            all.defaults.push(&presumed.key.defaults);
            all.versions.push(presumed.key.version);
        }
        all
    }
}
