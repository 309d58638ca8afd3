//! A key that was read a moment ago, presumed to be as it was. The statement that places the hold looks
//! at it again, and counts the request: what has been revoked meanwhile pays for nothing.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

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
}
