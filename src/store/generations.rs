//! Holds and settles credits: only [`Store::hold`] and [`Store::settle`] do. Each is one statement
//! shared by many callers (see [`super::groups`]); a caller sees only its own outcome.
//!
//! This file has their inputs and outputs; each statement has its own file.

mod hold;
mod refusal;
mod routes;
mod rows;
mod settle;
mod writer;

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

pub(super) use routes::Prices;
pub use routes::{Left, NewRoute, NextCandidate};
pub(super) use rows::GenerationRow;
pub(super) use writer::CreditWriter;

pub use super::keys::Credential;
use super::{
    Result, Store, StoreError,
    credits::{Balance, SpendLimit},
    keys::Presumed,
};
use crate::domain::{
    conversation::Answered,
    credits::Credits,
    generation::{
        Failure, FinishReason, Generation, Modality, Output, Status, Surface, TemplateUse,
    },
    ids::{AccountId, GenerationId, InstanceId},
    pricing::LIST,
    rate::RateState,
    receipt::Receipt,
};

/// An idempotency key, bound to a generation.
#[derive(Debug, Clone)]
pub struct Idempotency {
    /// 1 to 255 visible ASCII characters; keys of attempts begin with a space.
    pub key: String,
    /// SHA-256 of the request.
    pub fingerprint: [u8; 32],
    /// When the binding expires. Of two attempts, the one that arrived first expires first.
    pub expires_at: DateTime<Utc>,
    /// `None`: the caller gave the key.
    pub attempt: Option<Attempt>,
}

/// Whether an SDK's attempt is its first or a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    First,
    Retry,
}

/// Returns the key to which a request's retries are bound. Callers' keys cannot begin with a space.
pub fn retry_key(fingerprint: &[u8; 32]) -> String {
    let (first, _) = fingerprint.split_at(16);
    first
        .iter()
        .fold(" ".to_owned(), |key, byte| key + &format!("{byte:02x}"))
}

#[derive(Debug)]
pub struct NewGeneration {
    pub id: GenerationId,
    pub account_id: AccountId,
    pub credential: Credential,
    /// A cached key that was not read for this request: the hold checks it and counts the request.
    pub presumed: Option<Arc<Presumed>>,
    pub modality: Modality,
    pub surface: Surface,
    pub provider: String,
    pub model: String,
    pub prompt: String,
    pub system_prompt: Option<String>,
    pub negative_prompt: Option<String>,
    pub parameters: Value,
    pub template: Option<TemplateUse>,
    /// The prices at creation, with the vendor's list prices in the member `list`.
    pub pricing: Value,
    /// The maximum cost, which is held.
    pub hold: Credits,
    /// Whether its text is streamed to the caller.
    pub streamed: bool,
    /// Whether it counts against the account's limit of unfinished jobs.
    pub job: bool,
    /// The instance that runs it; `None`: a job that any worker can claim.
    pub instance: Option<InstanceId>,
    /// When the job fails if it has not ended; `None` for other generations.
    pub deadline: Option<DateTime<Utc>>,
    /// `processing`, or `pending` while it waits for a free worker.
    pub status: Status,
    /// Maximum number of unfinished jobs of the account, including this one.
    pub max_jobs: i32,
    pub idempotency: Option<Idempotency>,
    /// `None` if it has only one candidate.
    pub route: Option<Box<NewRoute>>,
    pub now: DateTime<Utc>,
}

/// The result of a hold. Only `Held` changes anything.
#[derive(Debug)]
pub enum HoldOutcome {
    /// The hold is placed and the row exists.
    Held,
    /// The idempotency key is already bound to another generation, or another attempt at the same
    /// request was placed first.
    KeyBound,
    /// The caller disconnected before the hold was placed.
    Abandoned,
    /// The cached key has changed; the request was not counted.
    NotAsPresumed,
    /// The request exceeds the rate limit of its cached key.
    RateLimited(RateState),
    /// The key or session has ended.
    CredentialEnded,
    Suspended,
    /// The account has too many unfinished jobs.
    TooManyJobs,
    /// The key's spend limit would be exceeded.
    SpendLimit(SpendLimit, Balance),
    /// Less is available than the hold needs.
    Short(Balance),
}

#[expect(clippy::large_enum_variant, reason = "it is always boxed")]
#[derive(Debug, Clone)]
pub enum Outcome {
    Completed(Completion),
    /// Without a result; the hold is released.
    Failed(Failure),
}

/// A result, charged by usage.
#[derive(Debug, Clone, Default)]
pub struct Completion {
    /// `None` for stored files.
    pub result: Option<String>,
    pub outputs: Vec<Output>,
    /// The parts of an answer beyond its text, if any.
    pub answer: Option<Answered>,
    pub usage: Value,
    /// At most the hold.
    pub charged: Credits,
    /// At the vendor's list prices; `None` if they were not stored.
    pub list_cost: Option<Credits>,
    /// Why it ended early.
    pub finish_reason: Option<FinishReason>,
    /// The input tokens counted by the provider, for later turns of the dialogue. Not written if
    /// the database fails.
    pub receipt: Option<(Uuid, Receipt)>,
}

#[derive(Debug, Clone)]
pub struct Settlement {
    pub id: GenerationId,
    pub account_id: AccountId,
    /// If `Some`, settles only if this instance still owns the generation. `None` for cancels.
    pub instance: Option<InstanceId>,
    pub outcome: Outcome,
    /// Submissions to the provider, if known.
    pub attempts: Option<i32>,
    pub provider_request_id: Option<String>,
    pub now: DateTime<Utc>,
}

/// Values that only the row of a generation has when it is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledRow {
    pub modality: Modality,
    pub provider: String,
    pub model: String,
    /// The credits on hold.
    pub estimated: Credits,
    pub attempts: i32,
    /// The provider's id of its task.
    pub remote_id: Option<String>,
    pub started_at: DateTime<Utc>,
    pub completed_at: DateTime<Utc>,
    /// Number of an SDK's retries that wait for it.
    pub joined: Option<i32>,
}

impl NewGeneration {
    /// Builds the record as the statement creates it.
    pub fn record(&self) -> Generation {
        let prices = self.pricing.as_object().into_iter().flatten();
        let prices = prices.filter(|(name, _)| *name != LIST);
        Generation {
            id: self.id,
            account_id: self.account_id,
            modality: self.modality,
            surface: self.surface,
            status: self.status,
            provider: self.provider.clone(),
            model: self.model.clone(),
            prompt: self.prompt.clone(),
            parameters: self.parameters.clone(),
            result: None,
            outputs: Vec::new(),
            progress: None,
            usage: None,
            estimated: self.hold,
            charged: None,
            failure: None,
            finish_reason: None,
            answer: None,
            api_key_id: match self.credential {
                Credential::ApiKey(id) => Some(id),
                Credential::Session(_) => None,
            },
            template: self.template,
            pricing: prices
                .map(|(name, price)| (name.clone(), price.clone()))
                .collect(),
            attempts: 0,
            provider_request_id: None,
            joined: 0,
            route: self.route.as_ref().map(|route| Box::new(route.record())),
            created_at: self.now,
            started_at: self.instance.map(|_| self.now),
            completed_at: None,
        }
    }

    /// Builds the record after the settlement.
    pub fn settled_record(&self, settlement: Settlement, settled: SettledRow) -> Generation {
        let record = Generation {
            estimated: settled.estimated,
            attempts: settled.attempts,
            provider_request_id: settlement.provider_request_id.or(settled.remote_id),
            started_at: Some(settled.started_at),
            completed_at: Some(settled.completed_at),
            joined: settled.joined.unwrap_or(0),
            ..self.record()
        };
        match settlement.outcome {
            Outcome::Completed(completion) => Generation {
                status: Status::Completed,
                result: completion.result,
                outputs: completion.outputs,
                usage: Some(completion.usage),
                charged: Some(completion.charged),
                finish_reason: completion.finish_reason,
                answer: completion.answer,
                ..record
            },
            Outcome::Failed(failure) => Generation {
                status: Status::Failed,
                charged: Some(Credits::ZERO),
                failure: Some(failure),
                ..record
            },
        }
    }
}
