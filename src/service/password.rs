//! Passwords: argon2id, always the same work whether or not the email exists.

use std::sync::{Arc, LazyLock};

use argon2::{
    Argon2,
    password_hash::{PasswordHasher as _, PasswordVerifier as _, phc::PasswordHash},
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Semaphore;

use super::ServiceError;
use crate::domain::limiter::{Limiter, Permit};

/// What an unknown email's password is compared with, so that it takes the same time.
static NOBODY: LazyLock<Option<String>> = LazyLock::new(|| hash("nobody has this password").ok());

/// Hashes and verifies off the async threads, a few at a time, while no more than a bounded
/// number waits.
#[derive(Debug, Clone)]
pub(super) struct Hasher {
    running: Arc<Semaphore>,
    /// Those that run and those that wait.
    admitted: Limiter,
}

impl Hasher {
    /// Lets at most `waiting` wait beside those that run.
    pub(super) fn new(waiting: usize) -> Self {
        // Each takes some 20 MiB and a core for tens of milliseconds: half of the cores are
        // left to everybody else.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let running = (cores / 2).max(1);
        Self {
            running: Arc::new(Semaphore::new(running)),
            admitted: Limiter::of(running.saturating_add(waiting)),
        }
    }

    /// The right to wait for a check.
    pub(super) fn admit(&self) -> Result<Permit, ServiceError> {
        self.admitted
            .try_acquire(())
            .ok_or(ServiceError::Overloaded)
    }

    pub(super) async fn hash(&self, password: SecretString) -> Result<String, ServiceError> {
        let admitted = self.admit()?;
        self.run(admitted, move || hash(password.expose_secret()))
            .await?
    }

    /// Whether the password is the stored one; `None` stands for an unknown email.
    pub(super) async fn verify(
        &self,
        admitted: Permit,
        password: SecretString,
        stored: Option<String>,
    ) -> Result<bool, ServiceError> {
        self.run(admitted, move || {
            let known = stored.is_some();
            let phc = stored.or_else(|| NOBODY.clone()).unwrap_or_default();
            let matches = PasswordHash::new(&phc).is_ok_and(|parsed| {
                Argon2::default()
                    .verify_password(password.expose_secret().as_bytes(), &parsed)
                    .is_ok()
            });
            known && matches
        })
        .await
    }

    async fn run<T: Send + 'static>(
        &self,
        admitted: Permit,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ServiceError> {
        let internal = |e: &dyn std::fmt::Display| ServiceError::Internal(format!("password: {e}"));
        let permit = Arc::clone(&self.running)
            .acquire_owned()
            .await
            .map_err(|e| internal(&e))?;
        tokio::task::spawn_blocking(move || {
            let result = work();
            drop((permit, admitted));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The work for an unknown email is the work for a known one: the same function with the
    /// same parameters over a hash of the same shape. No clock is asked.
    #[test]
    fn an_unknown_email_costs_what_a_known_one_costs() {
        let nobody = NOBODY.clone().unwrap();
        let somebody = hash("correct horse battery").unwrap();
        let (nobody, somebody) = (
            PasswordHash::new(&nobody).unwrap(),
            PasswordHash::new(&somebody).unwrap(),
        );
        assert_eq!(nobody.algorithm.as_str(), "argon2id");
        assert_eq!(nobody.algorithm, somebody.algorithm);
        assert_eq!(nobody.version, somebody.version);
        assert_eq!(nobody.params, somebody.params);
        let lengths = |of: &PasswordHash| {
            let (salt, hash) = (of.salt.as_ref().unwrap(), of.hash.as_ref().unwrap());
            (salt.len(), hash.len())
        };
        assert_eq!(lengths(&nobody), lengths(&somebody));
    }

    /// Guessing the stand-in's password logs nobody in, and gets no other answer.
    #[tokio::test]
    async fn the_stand_in_is_computed_and_opens_nothing() {
        let hasher = Hasher::new(1);
        let verify = async |password: &str, stored: Option<String>| {
            let admitted = hasher.admit().unwrap();
            hasher
                .verify(admitted, password.into(), stored)
                .await
                .unwrap()
        };
        assert!(!verify("nobody has this password", None).await);
        // It is a hash that would match, so that the whole comparison is made.
        assert!(verify("nobody has this password", NOBODY.clone()).await);
        assert!(!verify("another", NOBODY.clone()).await);
    }
}
