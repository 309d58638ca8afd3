//! Login, logout and passwords. Passwords are hashed with argon2id, with the same work whether or
//! not the email exists.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, LazyLock, Mutex},
};

use argon2::{
    Argon2,
    password_hash::{PasswordHasher as _, PasswordVerifier as _, phc::PasswordHash},
};
use chrono::{DateTime, TimeDelta, Utc};
use secrecy::{ExposeSecret as _, SecretString};

use super::{Result, Service, ServiceError, auth::Caller};
use crate::{
    domain::{
        ids::{AccountId, UserId},
        limiter::{Limiter, Permit},
        lock::lock,
        party::{Address, Party},
        token,
    },
    request::{Login, PasswordChange},
    resource::Refusals,
    store::{
        accounts::{Identity, UserRow},
        generations::Credential,
    },
};

#[derive(Debug)]
pub struct LoggedIn {
    pub token: SecretString,
    pub expires_at: DateTime<Utc>,
    /// Id, email and name.
    pub user: (UserId, String, Option<String>),
    pub account: (AccountId, String),
}

impl Service {
    /// Creates a session. A wrong email and a wrong password take the same time and get the same
    /// error.
    pub async fn login(&self, login: Login, address: Address) -> Result<LoggedIn> {
        let now = self.0.clock.now();
        let turn = self.0.passwords.turn(address, &login.email, now).await?;
        let service = self.clone();
        // Each attempt is counted, even if the caller disconnects.
        self.complete("a login", async move {
            service.attempt(login, address, turn).await
        })
        .await?
    }

    /// Returns the user of these credentials. Counts failures, and refuses after too many.
    async fn verified(
        &self,
        email: &str,
        password: SecretString,
        address: Address,
        turn: Turn,
    ) -> Result<(Option<UserRow>, Turn)> {
        let (store, now) = (&self.0.store, self.0.clock.now());
        let text = address.to_string();
        if let Err(wait) = store.begin_login(email, &text, now).await? {
            let millis = u64::try_from(wait.num_milliseconds()).unwrap_or(0);
            let seconds = millis.div_ceil(1000).max(1);
            return Err(ServiceError::TooManyLogins(seconds));
        }
        let user = store.user_by_email(email).await?;
        let stored = user.as_ref().map(|u| u.password_hash.clone());
        let passwords = &self.0.passwords;
        let (right, turn) = passwords.verify(turn, password, stored).await?;
        if !right {
            passwords.failed(address, now);
        }
        store.end_login(email, &text, now, !right).await?;
        Ok((user.filter(|_| right), turn))
    }

    async fn attempt(&self, login: Login, address: Address, turn: Turn) -> Result<LoggedIn> {
        let verified = self.verified(&login.email, login.password, address, turn);
        let (user, turn) = verified.await?;
        drop(turn);
        let user = user.ok_or(ServiceError::InvalidCredentials)?;
        let token =
            token::new_session_token().map_err(|e| ServiceError::Internal(e.to_string()))?;
        let (store, now) = (&self.0.store, self.0.clock.now());
        let expires_at = now + self.0.settings.session_period;
        let (hash, digest) = (&user.password_hash, token.digest);
        let making = store.create_session(user.id, hash, digest, expires_at, now);
        if !making.await? {
            return Err(ServiceError::InvalidCredentials);
        }
        Ok(LoggedIn {
            token: token.secret,
            expires_at,
            user: (user.id, user.email, user.name),
            account: (user.account_id, user.account_name),
        })
    }

    pub async fn logout(&self, caller: &Caller) -> Result<()> {
        match caller.credential {
            Credential::Session(id) => Ok(self.0.store.end_session(id, self.0.clock.now()).await?),
            Credential::ApiKey(_) => Err(ServiceError::SessionRequired),
        }
    }

    /// Changes the password of the caller's user and ends the user's other sessions.
    pub async fn change_password(
        &self,
        caller: &Caller,
        change: PasswordChange,
        address: Address,
    ) -> Result<()> {
        let Credential::Session(session) = caller.credential else {
            return Err(ServiceError::SessionRequired);
        };
        let user = self.identity(caller).await?.user;
        let (_, email, _) = user.ok_or(ServiceError::SessionRequired)?;
        let now = self.0.clock.now();
        let turn = self.0.passwords.turn(address, &email, now).await?;
        let service = self.clone();
        self.complete("a login", async move {
            let wrong = || {
                let message = "is not the current password";
                ServiceError::not_allowed("current_password", message)
            };
            let verified = service.verified(&email, change.current, address, turn);
            let (user, turn) = verified.await?;
            let user = user.ok_or_else(wrong)?;
            let hash = service.0.passwords.hash(turn, change.new).await?;
            let (store, now) = (&service.0.store, service.0.clock.now());
            let by = Some((user.password_hash.as_str(), session));
            let ended = store.set_password(user.id, &hash, by, now).await?;
            ended.map(|_| ()).ok_or_else(wrong)
        })
        .await?
    }

    pub async fn identity(&self, caller: &Caller) -> Result<Identity> {
        let store = &self.0.store;
        Ok(store.identity(caller.account_id, caller.user_id).await?)
    }
}

/// A hash to compare the password of an unknown email with, so that it takes the same time.
static DUMMY_HASH: LazyLock<Option<String>> =
    LazyLock::new(|| hash("the password of no user").ok());

/// Failed logins within [`FAILURE_PERIOD`] after which an address shares one queue with all such
/// addresses.
const MAX_FAILURES: u32 = 3;
const FAILURE_PERIOD: TimeDelta = TimeDelta::minutes(15);
/// Maximum addresses whose failures are stored.
const MAX_ADDRESSES: usize = 16_384;

/// Hashes and verifies passwords off the async threads, a few at a time, with a bounded queue.
#[derive(Debug, Clone)]
pub(super) struct Hasher {
    /// Running and queued checks by address. `None`: all addresses with failed logins.
    by_party: Limiter<Option<Party>>,
    /// The same by a hash of the email, so that guesses at one email leave room for others.
    by_email: Limiter<u64>,
    failures: Arc<Mutex<Failures>>,
    refusals: Arc<Refusals>,
}

/// Number of failed logins by address, and the time of the last.
type Failures = HashMap<Address, (u32, DateTime<Utc>)>;

/// Returns the failures of an address; 0 if the last one was too long ago.
fn recent(failures: &Failures, address: Address, now: DateTime<Utc>) -> u32 {
    let found = failures.get(&address);
    let recent = found.filter(|(_, at)| *at + FAILURE_PERIOD > now);
    recent.map_or(0, |(count, _)| *count)
}

/// A permit to check or hash a password.
#[derive(Debug)]
#[expect(dead_code, reason = "held, not read")]
pub(super) struct Turn {
    by_email: Option<Permit<u64>>,
    by_party: Permit<Option<Party>>,
}

impl Hasher {
    /// Creates a hasher with at most `waiting` queued checks, in addition to running ones.
    pub(super) fn new(waiting: usize) -> Self {
        // Each check takes about 20 MiB and a core for tens of milliseconds, so half of the cores
        // are left for other work.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let running = (cores / 2).max(1);
        Self {
            by_party: Limiter::shared(running, waiting),
            by_email: Limiter::shared(running.saturating_add(waiting), 0),
            failures: Arc::default(),
            refusals: Arc::new(Refusals::new("password checks")),
        }
    }

    /// Waits for a permit. Fails if the address's or the email's share of the queue is full. The
    /// email was not looked up yet, so a refusal does not reveal whether it exists.
    pub(super) async fn turn(
        &self,
        address: Address,
        email: &str,
        now: DateTime<Utc>,
    ) -> Result<Turn> {
        let failed = recent(&lock(&self.failures), address, now);
        let party = (failed < MAX_FAILURES).then(|| address.into());
        let mut key = DefaultHasher::new();
        email.to_lowercase().hash(&mut key);
        let turn = match self.by_email.try_acquire(key.finish()) {
            None => None,
            by_email => {
                let by_party = self.by_party.acquire(party, 1).await;
                by_party.map(|by_party| Turn { by_email, by_party })
            }
        };
        if turn.is_none() {
            self.refusals.log(address.into());
        }
        turn.ok_or(ServiceError::Overloaded)
    }

    /// Waits for a permit with the operator's share.
    pub(super) async fn turn_of_operator(&self) -> Result<Turn> {
        let by_party = self.by_party.acquire(Some(Party::Operator), 1).await;
        Ok(Turn {
            by_email: None,
            by_party: by_party.ok_or(ServiceError::Overloaded)?,
        })
    }

    /// Stores a failed login of an address.
    pub(super) fn failed(&self, address: Address, now: DateTime<Utc>) {
        let mut failures = lock(&self.failures);
        if failures.len() >= MAX_ADDRESSES {
            failures.retain(|_, (_, at)| *at + FAILURE_PERIOD > now);
        }
        if failures.len() < MAX_ADDRESSES || failures.contains_key(&address) {
            let count = recent(&failures, address, now) + 1;
            failures.insert(address, (count, now));
        }
    }

    pub(super) async fn hash(&self, turn: Turn, password: SecretString) -> Result<String> {
        run(turn, move || hash(password.expose_secret())).await?.0
    }

    /// Checks a password against a stored hash (`None`: unknown email). Also returns the permit.
    pub(super) async fn verify(
        &self,
        turn: Turn,
        password: SecretString,
        stored: Option<String>,
    ) -> Result<(bool, Turn)> {
        run(turn, move || {
            let known = stored.is_some();
            let phc = stored.or_else(|| DUMMY_HASH.clone()).unwrap_or_default();
            let matches = PasswordHash::new(&phc).is_ok_and(|parsed| {
                Argon2::default()
                    .verify_password(password.expose_secret().as_bytes(), &parsed)
                    .is_ok()
            });
            known && matches
        })
        .await
    }
}

async fn run<T: Send + 'static>(
    turn: Turn,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<(T, Turn)> {
    let working = tokio::task::spawn_blocking(move || (work(), turn));
    let done = working.await;
    done.map_err(|e| ServiceError::Internal(format!("password: {e}")))
}

fn hash(password: &str) -> Result<String> {
    Argon2::default()
        .hash_password(password.as_bytes())
        .map(|hash| hash.to_string())
        .map_err(|e| ServiceError::Internal(format!("password: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The work is the same: the same function with the same parameters on a hash of the same
    /// format. Compares work instead of time.
    /// same parameters over a hash of the same shape. No clock is asked.
    #[test]
    fn an_unknown_email_costs_what_a_known_one_costs() {
        let dummy = DUMMY_HASH.clone().unwrap();
        let real = hash("correct horse battery").unwrap();
        let (dummy, real) = (
            PasswordHash::new(&dummy).unwrap(),
            PasswordHash::new(&real).unwrap(),
        );
        assert_eq!(dummy.algorithm.as_str(), "argon2id");
        assert_eq!(dummy.algorithm, real.algorithm);
        assert_eq!(dummy.version, real.version);
        assert_eq!(dummy.params, real.params);
        let lengths = |of: &PasswordHash| {
            let (salt, hash) = (of.salt.as_ref().unwrap(), of.hash.as_ref().unwrap());
            (salt.len(), hash.len())
        };
        assert_eq!(lengths(&dummy), lengths(&real));
    }

    /// Even the dummy hash's own password is refused.
    #[tokio::test]
    async fn the_stand_in_is_computed_and_opens_nothing() {
        let hasher = Hasher::new(1);
        let verify = async |password: &str, stored: Option<String>| {
            let turn = hasher.turn_of_operator().await.unwrap();
            let verified = hasher.verify(turn, password.into(), stored).await;
            verified.unwrap().0
        };
        assert!(!verify("the password of no user", None).await);
        // The hash matches, so the whole comparison is made.
        assert!(verify("the password of no user", DUMMY_HASH.clone()).await);
        assert!(!verify("another", DUMMY_HASH.clone()).await);
    }
}
