//! Passwords: argon2id, always the same work whether or not the email exists.

use std::sync::{Arc, LazyLock};

use argon2::{
    Argon2,
    password_hash::{PasswordHasher as _, PasswordVerifier as _, phc::PasswordHash},
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ServiceError;

/// What an unknown email's password is compared with, so that it takes the same time.
static NOBODY: LazyLock<Option<String>> = LazyLock::new(|| hash("nobody has this password").ok());

/// Hashes and verifies off the async threads, a few at a time, while no more than a bounded
/// number waits.
#[derive(Debug, Clone)]
pub(super) struct Hasher {
    running: Arc<Semaphore>,
    /// Those that run and those that wait.
    tickets: Arc<Semaphore>,
}

/// The right to wait for a check. Given back when dropped.
#[derive(Debug)]
pub(super) struct Ticket(#[expect(dead_code, reason = "held, not read")] OwnedSemaphorePermit);

impl Hasher {
    /// Lets at most `waiting` wait beside those that run.
    pub(super) fn new(waiting: usize) -> Self {
        // Each takes some 20 MiB and a core for tens of milliseconds: half of the cores are
        // left to everybody else.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let running = (cores / 2).max(1);
        let tickets = running.saturating_add(waiting).min(Semaphore::MAX_PERMITS);
        Self {
            running: Arc::new(Semaphore::new(running)),
            tickets: Arc::new(Semaphore::new(tickets)),
        }
    }

    /// A ticket, at once or not at all.
    pub(super) fn ticket(&self) -> Result<Ticket, ServiceError> {
        let ticket = Arc::clone(&self.tickets).try_acquire_owned();
        ticket.map(Ticket).map_err(|_| ServiceError::Overloaded)
    }

    pub(super) async fn hash(&self, password: String) -> Result<String, ServiceError> {
        let ticket = self.ticket()?;
        self.run(ticket, move || hash(&password)).await?
    }

    /// Whether the password is the stored one; `None` stands for an unknown email.
    pub(super) async fn verify(
        &self,
        ticket: Ticket,
        password: SecretString,
        stored: Option<String>,
    ) -> Result<bool, ServiceError> {
        self.run(ticket, move || {
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
        ticket: Ticket,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ServiceError> {
        let internal = |e: &dyn std::fmt::Display| ServiceError::Internal(format!("password: {e}"));
        let permit = Arc::clone(&self.running)
            .acquire_owned()
            .await
            .map_err(|e| internal(&e))?;
        tokio::task::spawn_blocking(move || {
            let result = work();
            drop((permit, ticket));
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

    /// Even who guesses the stand-in's password is nobody, and gets no other answer.
    #[tokio::test]
    async fn the_stand_in_is_computed_and_opens_nothing() {
        let hasher = Hasher::new(1);
        let verify = async |password: &str, stored: Option<String>| {
            let ticket = hasher.ticket().unwrap();
            hasher
                .verify(ticket, password.into(), stored)
                .await
                .unwrap()
        };
        assert!(!verify("nobody has this password", None).await);
        // It is a hash that would match, so that the whole comparison is made.
        assert!(verify("nobody has this password", NOBODY.clone()).await);
        assert!(!verify("another", NOBODY.clone()).await);
    }
}
