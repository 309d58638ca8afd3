//! A key that was read a moment ago, presumed to be as it was. The statement that places the hold looks
//! at it again, and counts the request: what has been revoked meanwhile pays for nothing.

use std::sync::{Arc, OnceLock};

use super::AuthenticatedKey;
use crate::domain::{rate::RateState, token::TokenDigest};

/// A request by such a key.
#[derive(Debug)]
pub struct Presumed {
    pub digest: TokenDigest,
    /// As it was read.
    pub key: Arc<AuthenticatedKey>,
    /// Requests per minute.
    pub limit: u32,
    counted: OnceLock<RateState>,
}

impl Presumed {
    /// `None`: the key was read dead.
    pub fn new(digest: TokenDigest, key: Arc<AuthenticatedKey>) -> Option<Self> {
        Some(Self {
            digest,
            limit: key.rate?.limit,
            key,
            counted: OnceLock::new(),
        })
    }

    /// How the limit stands after the request; `None` while it is not counted.
    pub fn counted(&self) -> Option<RateState> {
        self.counted.get().copied()
    }

    /// The request was counted. Only the first time counts.
    pub fn count(&self, rate: RateState) {
        let _ = self.counted.set(rate);
    }
}
