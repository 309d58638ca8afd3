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
    /// How the limit stands after the request; `None`: it was not counted, and will not be.
    settled: OnceLock<Option<RateState>>,
}

impl Presumed {
    /// `None`: the key was read dead.
    pub fn new(digest: TokenDigest, key: Arc<AuthenticatedKey>) -> Option<Self> {
        Some(Self {
            digest,
            limit: key.rate?.limit,
            key,
            settled: OnceLock::new(),
        })
    }

    /// Whether the key is still to be read, and the request to be counted.
    pub fn is_open(&self) -> bool {
        self.settled.get().is_none()
    }

    /// How the limit stands after the request, where it was counted.
    pub fn counted(&self) -> Option<RateState> {
        self.settled.get().copied().flatten()
    }

    /// The request was counted, or cannot be. Only the first time tells.
    pub fn settle(&self, counted: Option<RateState>) {
        let _ = self.settled.set(counted);
    }
}
