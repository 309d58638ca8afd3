//! What a group of holds presumes of its keys.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::{domain::rate::Gcra, store::keys::Presumed};

/// The place of a request whose key another of its group presumes to be otherwise.
const CONFLICTING: i32 = i32::MAX;

/// What is presumed of the keys of a group, and their requests that are to be counted.
#[derive(Default)]
pub(super) struct Presumptions<'a> {
    /// By key, what the first request presumes, and how many are counted.
    keys: BTreeMap<i64, (&'a Presumed, i32)>,
    /// Of each hold its place among the requests of its key; `None`: there is nothing to count.
    pub places: Vec<Option<i32>>,
}

/// A row for each key, in the order of their ids.
pub(super) struct Columns<'a> {
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
        for presumed in uncounted {
            let place = presumed.map(|presumed| {
                let (first, n) = all.keys.entry(presumed.key.id.0).or_insert((presumed, 0));
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
        all
    }

    pub fn columns(&self) -> Columns<'a> {
        let keys = || self.keys.values();
        let limit = |key: &Presumed| i32::try_from(key.limit).unwrap_or(i32::MAX);
        Columns {
            ids: self.keys.keys().copied().collect(),
            limits: keys().map(|(key, _)| limit(key)).collect(),
            counts: keys().map(|&(_, n)| n).collect(),
            defaults: keys().map(|(key, _)| &key.key.defaults).collect(),
            versions: keys().map(|(key, _)| key.key.version).collect(),
        }
    }
}

/// Tells a request how it was counted at its place. `counted`: the limit's state after all requests
/// of the key, and how many were admitted.
pub(super) fn settle(
    presumed: &Presumed,
    place: Option<i32>,
    counted: Option<(i64, i32)>,
    now: DateTime<Utc>,
) {
    let place = place.filter(|&place| place != CONFLICTING);
    let place = place.and_then(|place| usize::try_from(place).ok());
    if let Some((place, (tat, admitted))) = place.zip(counted) {
        let gcra = Gcra::per_minute(presumed.limit);
        presumed.settle(Some(gcra.counted(now, tat, admitted, place)));
    }
}
