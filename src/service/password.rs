//! Passwords: argon2id, always the same work whether or not the email exists.

use std::sync::{Arc, LazyLock};

use argon2::{
    Argon2,
    password_hash::{PasswordHasher as _, PasswordVerifier as _, phc::PasswordHash},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ServiceError;

/// Characters of a password.
pub(super) const PASSWORD_CHARS: std::ops::RangeInclusive<usize> = 8..=1024;

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
        password: String,
        stored: Option<String>,
    ) -> Result<bool, ServiceError> {
        self.run(ticket, move || {
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
