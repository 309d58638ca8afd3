//! Finds earlier equal requests: by the caller's idempotency key, or as attempts of an SDK.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use super::Submitted;
use crate::{
    domain::{ids::GenerationId, json::fingerprint},
    jobs::UndecidedAttempt,
    service::{Result, Service, ServiceError, auth::Caller},
    store::generations::{Attempt, Credential, Idempotency, retry_key},
};

#[derive(Debug, Clone)]
pub struct IdempotentRequest {
    key: String,
    fingerprint: [u8; 32],
    by: By,
}

/// Why two requests count as the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// The caller gave both the same key.
    Key,
    /// An SDK sends the request for the first time.
    FirstAttempt { arrived: DateTime<Utc> },
    /// An SDK repeats the request.
    Retry { arrived: DateTime<Utc>, count: u32 },
}

/// Attempts to claim a generation to join before answering `idempotency_in_progress`.
const MAX_JOIN_ATTEMPTS: usize = 8;

impl IdempotentRequest {
    /// Creates the key of a request. Equal requests have the same route and body without `stream`.
    pub fn new(key: String, route: &str, body: &Map<String, Value>) -> Self {
        Self {
            key,
            fingerprint: fingerprint(route, body),
            by: By::Key,
        }
    }

    /// Creates the attempt of an SDK that has made `count` attempts before. Attempts at the same
    /// request have the same API key, route and body. `digest`: SHA-256 of the body.
    pub fn attempt(
        count: u32,
        caller: &Caller,
        arrived: DateTime<Utc>,
        route: &str,
        digest: [u8; 32],
    ) -> Self {
        let credential = match caller.credential {
            Credential::ApiKey(id) => format!("key {id}"),
            Credential::Session(id) => format!("session {id}"),
        };
        let mut hash = Sha256::new();
        hash.update(format!("{route}\n{credential}\n"));
        hash.update(digest);
        let fingerprint: [u8; 32] = hash.finalize().into();
        Self {
            key: retry_key(&fingerprint),
            fingerprint,
            by: if count == 0 {
                By::FirstAttempt { arrived }
            } else {
                By::Retry { arrived, count }
            },
        }
    }
}

impl Service {
    /// Whether the request is compared with others.
    pub(super) fn is_deduplicated(&self, request: &IdempotentRequest) -> bool {
        request.by == By::Key || self.0.settings.join_period > TimeDelta::zero()
    }

    /// Registers a first attempt, so that retries in this process wait until it is decided.
    pub(super) fn begin_attempt(
        &self,
        caller: &Caller,
        request: &IdempotentRequest,
    ) -> Option<UndecidedAttempt> {
        let is_first = matches!(request.by, By::FirstAttempt { .. });
        let (runner, account) = (&self.0.runner, caller.account_id);
        is_first.then(|| runner.begin_attempt(account, request.fingerprint))
    }

    /// Lets a retry wait for the first attempts in this process. `waiting` is called before it
    /// waits.
    pub(super) async fn wait_for_first_attempts(
        &self,
        caller: &Caller,
        request: &IdempotentRequest,
        waiting: impl Fn() + Send,
    ) -> Result<()> {
        let By::Retry { .. } = request.by else {
            return Ok(());
        };
        let (runner, account) = (&self.0.runner, caller.account_id);
        let Some(decided) = runner.undecided_attempts(account, request.fingerprint) else {
            return Ok(());
        };
        let Some(_place) = self.0.waits.try_acquire(account) else {
            return Err(ServiceError::IdempotencyInProgress);
        };
        waiting();
        let decided = timeout(self.0.settings.idempotency_wait, decided);
        match runner.stopping().run_until_cancelled(decided).await {
            Some(Ok(())) => Ok(()),
            Some(Err(_elapsed)) => Err(ServiceError::IdempotencyInProgress),
            None => Err(ServiceError::ShuttingDown),
        }
    }

    /// Finds the generation that the same request created before.
    pub(super) async fn submitted_before(
        &self,
        caller: &Caller,
        idempotent: Option<&IdempotentRequest>,
    ) -> Result<Option<Submitted>> {
        let Some(request) = idempotent else {
            return Ok(None);
        };
        if let By::Retry { count, .. } = request.by
            && let Some(joined) = self.joined(caller, request, count).await?
        {
            return Ok(Some(Submitted::Joined(joined)));
        }
        if let By::FirstAttempt { .. } = request.by {
            return Ok(None);
        }
        let (store, account) = (&self.0.store, caller.account_id);
        let bound = store.bound_key(account, &request.key, self.0.clock.now());
        let Some(bound) = bound.await? else {
            return Ok(None);
        };
        if bound.fingerprint != request.fingerprint {
            return Err(ServiceError::IdempotencyKeyReused);
        }
        if request.by == By::Key {
            return Ok(Some(Submitted::Replay(bound.generation)));
        }
        // An earlier retry's generation that failed since must not block another one.
        if !bound.answers {
            let unbinding = store.unbind_key(account, &request.key, bound.generation);
            unbinding.await?;
        }
        Ok(None)
    }

    /// Finds the retry that replaced a first attempt: it arrived later and was placed before it.
    pub(super) async fn replaced_by(
        &self,
        caller: &Caller,
        request: &IdempotentRequest,
    ) -> Result<Option<Submitted>> {
        let (store, account) = (&self.0.store, caller.account_id);
        let bound = store.bound_key(account, &request.key, self.0.clock.now());
        let bound = bound.await?.filter(|bound| bound.answers);
        Ok(bound.map(|bound| Submitted::Joined(bound.generation)))
    }

    /// Finds the attempt that answers a retry. The same request may have been sent several times
    /// concurrently, and each may be retried: each retry gets a separate attempt if there is one.
    async fn joined(
        &self,
        caller: &Caller,
        request: &IdempotentRequest,
        count: u32,
    ) -> Result<Option<GenerationId>> {
        let (store, account) = (&self.0.store, caller.account_id);
        let before = i32::try_from(count).unwrap_or(i32::MAX).saturating_sub(1);
        for _ in 0..MAX_JOIN_ATTEMPTS {
            let now = self.0.clock.now();
            let found = store.joinable(account, &request.fingerprint, before, now);
            let Some(found) = found.await? else {
                return Ok(None);
            };
            if store.join(account, &found).await? {
                return Ok(Some(found.generation));
            }
        }
        Err(ServiceError::IdempotencyInProgress)
    }

    /// Returns the binding by which a generation that is created now is found.
    pub(super) fn binding(&self, request: &IdempotentRequest, id: GenerationId) -> Idempotency {
        let settings = &self.0.settings;
        let (attempt, expires_at) = match request.by {
            By::Key => (None, id.created_at() + settings.idempotency_period),
            By::FirstAttempt { arrived } => (Some(Attempt::First), arrived + settings.join_period),
            By::Retry { arrived, .. } => (Some(Attempt::Retry), arrived + settings.join_period),
        };
        Idempotency {
            key: match attempt {
                // Each first attempt has its own key, and is found by its fingerprint.
                Some(Attempt::First) => format!(" {}", id.0.simple()),
                Some(Attempt::Retry) | None => request.key.clone(),
            },
            fingerprint: request.fingerprint,
            expires_at,
            attempt,
        }
    }
}
