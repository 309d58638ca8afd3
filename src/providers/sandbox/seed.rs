//! Derives pseudo-random choices from a digest of a call, so that equal calls get equal answers.

use std::fmt::Display;

use sha2::{Digest, Sha256};
use uuid::Builder;

use crate::{offload::offload, providers::ProviderError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seed([u8; 32]);

impl Seed {
    /// Digests `fields`, each prefixed by its length.
    pub(super) fn of(fields: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for field in fields {
            hash.update(field.len().to_le_bytes());
            hash.update(field);
        }
        Self(hash.finalize().into())
    }

    /// Returns choice number `index` (modulo 32), from 0 to `bound` - 1.
    pub(super) fn choice(&self, index: usize, bound: u8) -> u8 {
        self.0[index % self.0.len()] % bound
    }

    /// Combines four choices into one number.
    pub(super) fn word(&self, index: usize) -> u32 {
        u32::from_le_bytes([0, 1, 2, 3].map(|step| self.choice(index + step, u8::MAX)))
    }

    /// Returns a version 8 UUID (RFC 9562: custom).
    pub(super) fn request_id(&self) -> String {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.0[16..]);
        Builder::from_custom_bytes(bytes).into_uuid().to_string()
    }
}

/// Runs CPU-bound work on a blocking thread.
pub(super) async fn offloaded<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ProviderError> {
    offload(work).await.ok_or_else(|| failed("a panic"))
}

/// The error if a library refuses the sandbox's input, which should not happen.
pub(super) fn failed(error: impl Display) -> ProviderError {
    ProviderError::failed(&format!("sandbox: {error}"))
}
