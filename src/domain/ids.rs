//! Typed identifiers.

use std::{fmt, sync::Mutex};

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;
use uuid::{ContextV7, Timestamp, Uuid};

use super::lock::lock;

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

/// A UUID of version 7, so that newer ids sort higher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema)]
#[serde(transparent)]
pub struct GenerationId(pub Uuid);

/// Maximum step back of the clock after which ids still ascend. After a larger step ids follow the
/// clock; otherwise their timestamps would stay ahead of other replicas.
const LARGEST_STEP_BACK: TimeDelta = TimeDelta::seconds(1);

/// Generates ascending ids, even within one millisecond and after a small step back of the clock.
#[derive(Debug, Default)]
pub struct GenerationIds(Mutex<LastId>);

#[derive(Debug, Default)]
struct LastId {
    context: ContextV7,
    now: DateTime<Utc>,
}

impl GenerationIds {
    /// Generates an id. Its timestamp is `now` in milliseconds, or slightly later after the clock
    /// has stepped back.
    pub fn next(&self, now: DateTime<Utc>) -> GenerationId {
        let seconds = u64::try_from(now.timestamp()).unwrap_or(0);
        let mut last = lock(&self.0);
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
    /// Returns the creation time in the id, in milliseconds.
    pub fn created_at(self) -> DateTime<Utc> {
        let (seconds, nanos) = self.0.get_timestamp().map_or((0, 0), |t| t.to_unix());
        DateTime::from_timestamp(i64::try_from(seconds).unwrap_or(0), nanos).unwrap_or_default()
    }

    /// Parses a UUID in either case.
    pub fn parse(text: &str) -> Option<Self> {
        // Only the hyphenated form is accepted, not braces or `urn:uuid:`.
        let id = Uuid::try_parse(text).ok();
        id.filter(|_| text.len() == 36).map(Self)
    }
}

impl fmt::Display for GenerationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// The id of an uploaded image, derived from its account and its bytes, so that equal bytes of an
/// account have the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UploadId(pub Uuid);

impl UploadId {
    const PREFIX: &str = "upl_";

    pub fn of(account: AccountId, sha256: &[u8; 32]) -> Self {
        let digest = Sha256::new()
            .chain_update(b"gensvc upload v1")
            .chain_update(account.0.to_be_bytes())
            .chain_update(sha256)
            .finalize();
        Self(Uuid::from_slice(&digest[..16]).unwrap_or_default())
    }

    /// Parses `upl_` and 32 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let id = Uuid::try_parse(text.strip_prefix(Self::PREFIX)?).ok()?;
        let id = Self(id);
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::PREFIX, self.0.simple())
    }
}

impl Serialize for UploadId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A running server process, which owns the rows with its id (their lease).
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
    fn upload_ids_follow_account_and_bytes() {
        let id = UploadId::of(AccountId(1), &[7; 32]);
        assert_eq!(id, UploadId::of(AccountId(1), &[7; 32]));
        assert_ne!(id, UploadId::of(AccountId(2), &[7; 32]));
        assert_ne!(id, UploadId::of(AccountId(1), &[8; 32]));
        let text = id.to_string();
        assert_eq!(UploadId::parse(&text), Some(id));
        for wrong in [&text[4..], &text.to_uppercase(), "upl_", "upl_x"] {
            assert_eq!(UploadId::parse(wrong), None, "{wrong}");
        }
    }

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
