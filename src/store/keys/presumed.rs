//! Requests authenticated from the key cache. The statement that places the hold checks the key
//! again and counts the request, so a key that was revoked meanwhile cannot pay.

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

/// A request with a cached key.
#[derive(Debug)]
pub struct Presumed {
    pub digest: TokenDigest,
    /// The key as it was cached.
    pub key: Arc<AuthenticatedKey>,
    /// Requests per minute.
    pub limit: u32,
    /// State of the rate limit after the request; `None`: it was not counted and will not be.
    settled: OnceLock<Option<RateState>>,
    /// Whether a running statement counts the request.
    is_counting: AtomicBool,
}

impl Presumed {
    /// Returns `None` if the key was already revoked or expired when it was cached.
    pub fn new(digest: TokenDigest, key: Arc<AuthenticatedKey>) -> Option<Self> {
        Some(Self {
            digest,
            limit: key.rate?.limit,
            key,
            settled: OnceLock::new(),
            is_counting: AtomicBool::new(false),
        })
    }

    /// Whether the key is still to be checked and the request to be counted.
    pub fn is_open(&self) -> bool {
        self.settled.get().is_none()
    }

    /// Sets whether a running statement counts the request.
    pub fn set_counting(&self, is_counting: bool) {
        self.is_counting.store(is_counting, Ordering::Release);
    }

    /// Whether no statement has counted the request or is doing so.
    pub fn is_uncounted(&self) -> bool {
        self.is_open() && !self.is_counting.load(Ordering::Acquire)
    }

    /// Returns the state of the rate limit after the request, if it was counted.
    pub fn counted(&self) -> Option<RateState> {
        self.settled.get().copied().flatten()
    }

    /// Stores the count, or `None` if the request cannot be counted. Later calls have no effect.
    pub fn settle(&self, counted: Option<RateState>) {
        let _ = self.settled.set(counted);
    }

    /// Settles a request by its place in a group. `counted`: the limit's state after all requests
    /// of the key, and how many were admitted.
    pub fn settle_at(&self, place: Option<i32>, counted: Option<(i64, i32)>, now: DateTime<Utc>) {
        let place = place.filter(|&place| place != CONFLICTING);
        let place = place.and_then(|place| usize::try_from(place).ok());
        if let Some((place, (tat, admitted))) = place.zip(counted) {
            let gcra = Gcra::per_minute(self.limit);
            self.settle(Some(gcra.counted(now, tat, admitted, place)));
        }
    }
}

/// Place of a request whose cached key differs from that of another request in its group.
const CONFLICTING: i32 = i32::MAX;

/// The cached keys of a group of holds, by id, and the number of their requests to count.
#[derive(Default)]
pub struct Presumptions<'a> {
    /// For each hold, its place among the requests of its key; `None`: nothing to count.
    pub places: Vec<Option<i32>>,
    pub ids: Vec<i64>,
    pub limits: Vec<i32>,
    pub counts: Vec<i32>,
    pub defaults: Vec<&'a Value>,
    pub versions: Vec<i32>,
}

impl<'a> Presumptions<'a> {
    /// Groups the cached keys of holds. `uncounted` has an item for each hold: its cached key, if
    /// its request is still to be counted.
    pub fn of(uncounted: impl Iterator<Item = Option<&'a Presumed>>) -> Self {
        let mut all = Self::default();
        // By key id: the first request's cached key, and the number of requests to count.
        let mut keys: BTreeMap<i64, (&'a Presumed, i32)> = BTreeMap::new();
        for presumed in uncounted {
            let place = presumed.map(|presumed| {
                let (first, n) = keys.entry(presumed.key.id.0).or_insert((presumed, 0));
                let (first, one) = (&first.key, &presumed.key);
                if first.version != one.version || first.defaults != one.defaults {
                    // One of the two is outdated, so this request's key is read again.
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
