//! Passwords: argon2id, always the same work whether or not the email exists.

use std::sync::{Arc, LazyLock};

use argon2::{
    Argon2,
    password_hash::{PasswordHasher as _, PasswordVerifier as _, phc::PasswordHash},
};
use tokio::sync::Semaphore;

use super::ServiceError;

/// Characters of a password.
pub(super) const PASSWORD_CHARS: std::ops::RangeInclusive<usize> = 8..=1024;

/// What an unknown email's password is compared with, so that it takes the same time.
static NOBODY: LazyLock<Option<String>> = LazyLock::new(|| hash("nobody has this password").ok());

/// Hashes and verifies off the async threads, a few at a time.
#[derive(Debug, Clone)]
pub(super) struct Hasher(Arc<Semaphore>);

impl Default for Hasher {
    fn default() -> Self {
        // Each takes some 20 MiB and a core for tens of milliseconds: half of the cores are
        // left to everybody else.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Semaphore::new((cores / 2).max(1))))
    }
}

impl Hasher {
    pub(super) async fn hash(&self, password: String) -> Result<String, ServiceError> {
        self.run(move || hash(&password)).await?
    }

    /// Whether the password is the stored one; `None` stands for an unknown email.
    pub(super) async fn verify(
        &self,
        password: String,
        stored: Option<String>,
    ) -> Result<bool, ServiceError> {
        self.run(move || {
            let known = stored.is_some();
            let phc = stored.or_else(|| NOBODY.clone()).unwrap_or_default();
            let matches = PasswordHash::new(&phc).is_ok_and(|parsed| {
                Argon2::default()
                    .verify_password(password.as_bytes(), &parsed)
                    .is_ok()
            });
            known && matches
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ServiceError> {
        let internal = |e: &dyn std::fmt::Display| ServiceError::Internal(format!("password: {e}"));
        let permit = Arc::clone(&self.0)
            .acquire_owned()
            .await
            .map_err(|e| internal(&e))?;
        tokio::task::spawn_blocking(move || {
            let result = work();
            drop(permit);
            result
        })
        .await
        .map_err(|e| internal(&e))
    }
}

fn hash(password: &str) -> Result<String, ServiceError> {
    Argon2::default()
        .hash_password(password.as_bytes())
        .map(|hash| hash.to_string())
        .map_err(|e| ServiceError::Internal(format!("password: {e}")))
}
