//! The narrow door through which credits are held and settled: [`Store::hold`] and
//! [`Store::settle`], each one statement. Callers see only their own verdict, so that many of
//! them may one day share a commit behind this door.
//!
//! Here: what goes in and comes out. The statements are in a file each.

mod cancels;
mod hold;
mod rows;
mod settle;

use chrono::{DateTime, Utc};
use serde_json::Value;

pub(super) use rows::GenerationRow;

use super::{Store, StoreError, credits::Balance};
use crate::domain::{
    credits::Credits,
    generation::{Failure, FinishReason, Modality, Output, Status, TemplateUse},
    ids::{AccountId, ApiKeyId, GenerationId, InstanceId, SessionId},
};

/// What pays: checked again by the statement that places the hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    ApiKey(ApiKeyId),
    Session(SessionId),
}

/// A key that the caller chose for a request.
#[derive(Debug, Clone)]
pub struct Idempotency {
    /// 1 to 255 visible ASCII characters.
    pub key: String,
    /// SHA-256 of the route and the request's JSON value.
    pub fingerprint: [u8; 32],
    /// Until when the key is bound.
    pub expires_at: DateTime<Utc>,
}

/// A generation to be made.
#[derive(Debug)]
pub struct NewGeneration {
    pub id: GenerationId,
    pub account_id: AccountId,
    pub credential: Credential,
    pub modality: Modality,
    pub provider: String,
    pub model: String,
    pub prompt: String,
    /// The caller's system prompt.
    pub system_prompt: Option<String>,
    /// The caller's negative prompt.
    pub negative_prompt: Option<String>,
    pub parameters: Value,
    /// The template that the prompt was rendered from.
    pub template: Option<TemplateUse>,
    pub pricing: Value,
    /// The ceiling to hold.
    pub hold: Credits,
    /// Whether it is a text that is passed on as it comes.
    pub streamed: bool,
    /// The instance that works on it from the start; `None`: a job, for any worker to take.
    pub instance: Option<InstanceId>,
    /// When it is given up; jobs only.
    pub deadline: Option<DateTime<Utc>>,
    /// `processing`, or `pending` while it waits for a free worker.
    pub status: Status,
    /// How many unfinished generations the account may have, this one included.
    pub max_unfinished: i32,
    /// The key to bind.
    pub idempotency: Option<Idempotency>,
    pub now: DateTime<Utc>,
}

/// How a key's own cap stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpendLimit {
    /// The cap of the current period.
    pub limit: Credits,
    /// Charged and on hold in it.
    pub spent: Credits,
}

/// How placing a hold ended. Anything but `Held` left no trace.
#[derive(Debug)]
pub enum HoldOutcome {
    /// The hold is placed and the row is there.
    Held,
    /// The idempotency key is bound already, to another generation.
    KeyBound,
    /// The key or session has ended meanwhile.
    CredentialEnded,
    /// The account is suspended.
    Suspended,
    /// The account has too many unfinished generations.
    TooManyJobs,
    /// The key's own cap would be exceeded.
    SpendLimit(SpendLimit, Balance),
    /// Less is available than must be held.
    Short(Balance),
}

/// How a generation ended.
#[derive(Debug, Clone)]
pub enum Outcome {
    Completed(Completion),
    /// Without a result; the hold is released.
    Failed(Failure),
}

/// A result, charged at real usage.
#[derive(Debug, Clone)]
pub struct Completion {
    /// The text itself; `None` for stored files.
    pub result: Option<String>,
    pub outputs: Vec<Output>,
    pub usage: Value,
    /// At most what is held.
    pub charged: Credits,
    /// Why it ends early.
    pub finish_reason: Option<FinishReason>,
}

/// The end of a generation.
#[derive(Debug, Clone)]
pub struct Settlement {
    pub id: GenerationId,
    /// Only if this instance still works on it; `None`: whoever does (a cancel).
    pub instance: Option<InstanceId>,
    pub outcome: Outcome,
    /// Submissions made, where known.
    pub attempts: Option<i32>,
    /// The provider's own id.
    pub provider_request_id: Option<String>,
    pub now: DateTime<Utc>,
}

/// What an idempotency key is bound to.
#[derive(Debug)]
pub struct Bound {
    pub fingerprint: Vec<u8>,
    /// The generation that it made.
    pub generation: GenerationId,
}

impl SpendLimit {
    /// What may still be spent.
    pub fn left(self) -> Credits {
        self.limit.minus_or_zero(self.spent)
    }
}

impl Credential {
    pub(super) fn ids(self) -> (Option<i64>, Option<i64>) {
        match self {
            Self::ApiKey(id) => (Some(id.0), None),
            Self::Session(id) => (None, Some(id.0)),
        }
    }
}
