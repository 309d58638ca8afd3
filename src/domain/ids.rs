//! Typed identifiers.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::{ContextV7, Timestamp, Uuid};

macro_rules! numeric_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

numeric_id!(
    /// An account: the owner of a balance.
    AccountId
);
numeric_id!(
    /// A person who logs in to an account.
    UserId
);
numeric_id!(ApiKeyId);
numeric_id!(SessionId);
numeric_id!(
    /// A ledger entry.
    LedgerEntryId
);
numeric_id!(TemplateId);
numeric_id!(WebhookId);
numeric_id!(
    /// The delivery of one event to one webhook.
    WebhookDeliveryId
);
numeric_id!(
    /// A token for the operator's own systems.
    AdminTokenId
);

/// UUID version 7, so that newer ones sort higher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema)]
#[serde(transparent)]
pub struct GenerationId(pub Uuid);

/// How far the clock may step back while ids keep ascending. After a larger step ids follow the
/// clock, or their timestamps would stay ahead of those of other replicas.
const LARGEST_STEP_BACK: TimeDelta = TimeDelta::seconds(1);

/// Generates ascending ids, also within one millisecond and when the clock steps back a little.
#[derive(Debug, Default)]
pub struct GenerationIds(Mutex<LastId>);

#[derive(Debug, Default)]
struct LastId {
    context: ContextV7,
    now: DateTime<Utc>,
}

impl GenerationIds {
    /// The timestamp of the id is `now` in milliseconds, or slightly later after the clock has
    /// stepped back.
    pub fn next(&self, now: DateTime<Utc>) -> GenerationId {
        let seconds = u64::try_from(now.timestamp()).unwrap_or(0);
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now + LARGEST_STEP_BACK < last.now {
            *last = LastId::default();
        }
        last.now = last.now.max(now);
        GenerationId(Uuid::new_v7(Timestamp::from_unix(
            &last.context,
            seconds,
            now.timestamp_subsec_nanos(),
        )))
    }
}

impl GenerationId {
    /// The creation time in the id, in milliseconds.
    pub fn created_at(self) -> DateTime<Utc> {
        let (seconds, nanos) = self.0.get_timestamp().map_or((0, 0), |t| t.to_unix());
        DateTime::from_timestamp(i64::try_from(seconds).unwrap_or(0), nanos).unwrap_or_default()
    }

    /// Parses a UUID in either case.
    pub fn parse(text: &str) -> Option<Self> {
        // Only the hyphenated form is accepted, not braces or `urn:uuid:`.
        (text.len() == 36)
            .then(|| Uuid::try_parse(text).ok())
            .flatten()
            .map(Self)
    }
}

impl fmt::Display for GenerationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// A running server process, which owns the rows that carry its id (their lease).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InstanceId(pub Uuid);

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_ascend_and_follow_a_clock_that_is_set_back() {
        let ids = GenerationIds::default();
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let first = ids.next(now);
        // A reading of the database's clock may move the time back.
        let second = ids.next(now - TimeDelta::milliseconds(200));
        assert!(first < second);
        assert!(second.created_at() >= now);
        let hour_ago = now - TimeDelta::hours(1);
        assert_eq!(ids.next(hour_ago).created_at(), hour_ago);
        assert!(ids.next(hour_ago) < first);
    }
}
