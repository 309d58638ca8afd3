//! The same request again: by the key that its caller gave it, or as a retry of an SDK.

use chrono::TimeDelta;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::Submitted;
use crate::{
    domain::{ids::GenerationId, json::fingerprint},
    service::{Service, ServiceError, auth::Caller},
    store::generations::{Credential, Idempotency},
};

#[derive(Debug, Clone)]
pub struct IdempotentRequest {
    key: String,
    fingerprint: [u8; 32],
    by: By,
}

/// Why it is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// Its caller says so.
    Key,
    /// It is not: retries of it will be.
    FirstTry,
    /// An SDK repeats what it sent before, so many times.
    Retry(u32),
}

/// How often a retry looks for a try that no other retry takes at the same time.
const LOOKS: usize = 8;

impl IdempotentRequest {
    /// A key for a request. The same request means the same route and body without `stream`.
    pub fn new(key: String, route: &str, body: &Map<String, Value>) -> Self {
        let mut body = body.clone();
        body.remove("stream");
        let fingerprint = fingerprint(route, &body);
        Self {
            key,
            fingerprint,
            by: By::Key,
        }
    }

    /// A request that an SDK sends for the first time, or after `retries` times before. The same
    /// means the same route, the same bytes, of which `digest` is the SHA-256, and the same key of
    /// the API.
    pub fn tried(retries: u32, caller: &Caller, route: &str, digest: [u8; 32]) -> Self {
        let credential = match caller.credential {
            Credential::ApiKey(id) => format!("key {id}"),
            Credential::Session(id) => format!("session {id}"),
        };
        let mut hash = Sha256::new();
        hash.update(format!("{route}\n{credential}\n"));
        hash.update(digest);
        let fingerprint: [u8; 32] = hash.finalize().into();
        let (first, _) = fingerprint.split_at(16);
        Self {
            // No key of a caller begins with a space.
            key: first
                .iter()
                .fold(" ".to_owned(), |key, byte| key + &format!("{byte:02x}")),
            fingerprint,
            by: if retries == 0 {
                By::FirstTry
            } else {
                By::Retry(retries)
            },
        }
    }
}

impl Service {
    /// Whether it matters that a request is the same as another.
    pub(super) fn heeds(&self, request: &IdempotentRequest) -> bool {
        request.by == By::Key || self.0.settings.join_period > TimeDelta::zero()
    }

    /// What the same request created before.
    pub(super) async fn submitted_before(
        &self,
        caller: &Caller,
        idempotent: Option<&IdempotentRequest>,
    ) -> Result<Option<Submitted>, ServiceError> {
        let Some(request) = idempotent else {
            return Ok(None);
        };
        if let By::Retry(retries) = request.by
            && let Some(joined) = self.joined(caller, request, retries).await?
        {
            return Ok(Some(Submitted::Joined(joined)));
        }
        if request.by == By::FirstTry {
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
        // What an earlier retry made, and what has failed since, is in the way of another.
        if !bound.answers {
            let unbinding = store.unbind_key(account, &request.key, bound.generation);
            unbinding.await?;
        }
        Ok(None)
    }

    /// The try that a retry is answered with. Requests that are the same may have been sent side by
    /// side, and each may be retried: each retry gets one of its own, as long as there is one.
    async fn joined(
        &self,
        caller: &Caller,
        request: &IdempotentRequest,
        retries: u32,
    ) -> Result<Option<GenerationId>, ServiceError> {
        let (store, account) = (&self.0.store, caller.account_id);
        let before = i32::try_from(retries).unwrap_or(i32::MAX).saturating_sub(1);
        for _ in 0..LOOKS {
            let tried = store.tried(account, &request.fingerprint, before, self.0.clock.now());
            let Some(tried) = tried.await? else {
                return Ok(None);
            };
            if store.join(account, &tried).await? {
                return Ok(Some(tried.generation));
            }
        }
        Err(ServiceError::IdempotencyInProgress)
    }

    /// What a generation that is made now will be found by.
    pub(super) fn binding(&self, request: &IdempotentRequest, id: GenerationId) -> Idempotency {
        let settings = &self.0.settings;
        let period = match request.by {
            By::Key => settings.idempotency_period,
            By::FirstTry | By::Retry(_) => settings.join_period,
        };
        Idempotency {
            key: match request.by {
                // Each has its own: they are found by what they ask.
                By::FirstTry => format!(" {}", id.0.simple()),
                By::Key | By::Retry(_) => request.key.clone(),
            },
            fingerprint: request.fingerprint,
            expires_at: id.created_at() + period,
        }
    }
}
