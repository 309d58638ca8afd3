//! What makes two calls look or sound different: a digest of everything that may change them.

use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;
use uuid::Builder;

use crate::providers::{ProviderError, ProviderErrorKind};

/// A digest to draw choices from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seed([u8; 32]);

impl Seed {
    /// The digest of `fields`; their lengths keep them apart.
    pub(super) fn of(fields: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for field in fields {
            hash.update(field.len().to_le_bytes());
            hash.update(field);
        }
        Self(hash.finalize().into())
    }

    /// A choice below `bound`, the `index`-th of 32; `bound` is at least 1.
    pub(super) fn choice(&self, index: usize, bound: u8) -> u8 {
        self.0[index % self.0.len()] % bound.max(1)
    }

    /// Four bytes from the `index`-th on.
    pub(super) fn word(&self, index: usize) -> u32 {
        u32::from_le_bytes([0, 1, 2, 3].map(|step| self.choice(index + step, u8::MAX)))
    }

    /// A uuid (version 8, as RFC 9562 names the self-made ones).
    pub(super) fn request_id(&self) -> String {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.0[16..]);
        Builder::from_custom_bytes(bytes).into_uuid().to_string()
    }
}

/// Runs `work`, which keeps a processor busy, where no other task waits behind it. Its token is
/// cancelled once nobody waits for the result: a thread cannot be stopped from outside, and a
/// cancelled generation or a stop must not leave it computing.
pub(super) async fn away<T: Send + 'static>(
    work: impl FnOnce(&CancellationToken) -> Result<T, ProviderError> + Send + 'static,
) -> Result<T, ProviderError> {
    let abandoned = CancellationToken::new();
    let _guard = abandoned.clone().drop_guard();
    tokio::task::spawn_blocking(move || work(&abandoned))
        .await
        .unwrap_or_else(|error| Err(broken(&error)))
}

/// What should not happen: a library that refuses what the sandbox gives it.
pub(super) fn broken(error: &dyn std::error::Error) -> ProviderError {
    ProviderError::new(ProviderErrorKind::Failed, format!("sandbox: {error}"))
}
