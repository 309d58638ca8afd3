//! A request becomes a generation: replay, model, price, ceiling, hold.

mod estimate;
mod media;
mod media_plan;
mod template;
mod text;

pub use estimate::Estimate;
use serde_json::{Map, Value};

use super::{Service, ServiceError, TokenRefusal, auth::Caller, explain};
use crate::{
    domain::{
        catalogue::Model,
        credits::Credits,
        generation::{Generation, Modality, Status, TemplateUse},
        ids::GenerationId,
        json::fingerprint,
        pricing::Ceiling,
        request::{GenerationRequest, Target},
        validate::FieldError,
    },
    jobs::{Handle, Started},
    providers::{DeltaSink, Seat},
    store::{
        StoreError,
        generations::{HoldOutcome, Idempotency, NewGeneration},
    },
};

/// What a request turned out to be.
pub enum Submitted {
    /// A new generation, held and running in this process.
    New(Box<Generation>, Handle),
    /// A new generation, held, for any worker to take.
    Queued(Box<Generation>),
    /// The generation that the idempotency key made before.
    Replay(GenerationId),
}

/// The idempotency key of a request.
#[derive(Debug, Clone)]
pub struct IdempotentRequest {
    key: String,
    fingerprint: [u8; 32],
}

impl IdempotentRequest {
    /// A key for a request. The same request is the route and the body without `stream`.
    pub fn new(key: String, route: &str, body: &Map<String, Value>) -> Self {
        let mut body = body.clone();
        body.remove("stream");
        let fingerprint = fingerprint(route, &body);
        Self { key, fingerprint }
    }
}

/// What a request is resolved to.
struct Plan<'a> {
    model: &'a Model,
    prompt: String,
    system_prompt: Option<String>,
    negative_prompt: Option<String>,
    template: Option<TemplateUse>,
    parameters: Value,
    ceiling: Ceiling,
    max_cost: Option<Credits>,
}

impl Service {
    /// Holds the ceiling of the cost and starts the work, or finds what the idempotency key made
    /// before. `deltas`: where the pieces of a streamed text go.
    pub async fn generate(
        &self,
        caller: &Caller,
        request: GenerationRequest,
        idempotent: Option<&IdempotentRequest>,
        deltas: Option<DeltaSink>,
    ) -> Result<Submitted, ServiceError> {
        match request {
            GenerationRequest::Text(request) => {
                self.begin_text(caller, request, idempotent, deltas).await
            }
            GenerationRequest::Image(request) => {
                self.begin_image(caller, request, idempotent).await
            }
            GenerationRequest::Video(request) => {
                self.begin_video(caller, request, idempotent).await
            }
            GenerationRequest::Audio(request) => {
                self.begin_speech(caller, request, idempotent).await
            }
        }
    }

    /// What the model that a request means does not take of it, or why there is no such model.
    /// Templates are not applied.
    pub fn violations(&self, caller: &Caller, request: &GenerationRequest) -> Vec<FieldError> {
        let resolved = match request {
            GenerationRequest::Text(text) => {
                let chars = text.prompt.chars().count();
                self.resolve_text(caller, text, chars).map(|_| ())
            }
            GenerationRequest::Image(image) => self.resolve_image(caller, image).map(|_| ()),
            GenerationRequest::Video(video) => self.resolve_video(caller, video).map(|_| ()),
            GenerationRequest::Audio(speech) => self.resolve_speech(caller, speech).map(|_| ()),
        };
        resolved.err().unwrap_or_default()
    }

    /// The model that a request means.
    fn resolve_model(
        &self,
        caller: &Caller,
        modality: Modality,
        target: &Target,
    ) -> Result<&Model, Vec<FieldError>> {
        let account = caller.account_default(modality);
        let model = self.0.catalogue.resolve(modality, target, &account);
        model.map_err(|error| vec![error])
    }

    /// What the idempotency key made before.
    async fn replayed(
        &self,
        caller: &Caller,
        keyed: Option<&IdempotentRequest>,
    ) -> Result<Option<GenerationId>, ServiceError> {
        let Some(keyed) = keyed else { return Ok(None) };
        let now = self.0.clock.now();
        let bound = self
            .0
            .store
            .bound_key(caller.account_id, &keyed.key, now)
            .await?;
        match bound {
            Some(bound) if bound.fingerprint == keyed.fingerprint => Ok(Some(bound.generation)),
            Some(_) => Err(ServiceError::IdempotencyKeyReused),
            None => Ok(None),
        }
    }

    /// Checks what needs no statement of its own, and makes the row that will be opened.
    async fn prepare(
        &self,
        caller: &Caller,
        plan: &Plan<'_>,
        keyed: Option<&IdempotentRequest>,
        queued: bool,
    ) -> Result<NewGeneration, ServiceError> {
        let hold = plan.ceiling.hold();
        if let Some(max_cost) = plan.max_cost.filter(|max| hold > *max) {
            let (balance, unfinished) = self
                .0
                .store
                .balance_and_unfinished(caller.account_id)
                .await?;
            self.check_jobs(unfinished)?;
            let short = explain::above_max_cost(hold, max_cost, balance, &plan.ceiling);
            return Err(ServiceError::CreditsShort(Box::new(short)));
        }
        let id = self.0.ids.next(self.0.clock.now());
        let now = id.created_at();
        let waits = queued && !self.0.runner.has_free_worker();
        Ok(NewGeneration {
            id,
            account_id: caller.account_id,
            credential: caller.credential,
            modality: plan.model.modality(),
            provider: plan.model.provider.clone(),
            model: plan.model.id.clone(),
            prompt: plan.prompt.clone(),
            system_prompt: plan.system_prompt.clone(),
            negative_prompt: plan.negative_prompt.clone(),
            parameters: plan.parameters.clone(),
            template: plan.template,
            pricing: serde_json::json!(plan.model.prices()),
            hold,
            streamed: false,
            instance: (!queued).then(|| self.0.runner.instance()),
            deadline: queued.then(|| now + self.0.settings.job_deadline),
            status: if waits {
                Status::Pending
            } else {
                Status::Processing
            },
            max_unfinished: self.0.settings.max_jobs_per_account,
            idempotency: keyed.map(|k| Idempotency {
                key: k.key.clone(),
                fingerprint: k.fingerprint,
                expires_at: now + self.0.settings.idempotency_period,
            }),
            now,
        })
    }

    /// A seat at the provider for a call that begins now; none is waited for. Who could not pay
    /// for it is told that, which waiting would not change.
    /// The inner error: what the idempotency key made meanwhile.
    async fn seat(
        &self,
        caller: &Caller,
        plan: &Plan<'_>,
        keyed: Option<&IdempotentRequest>,
    ) -> Result<Result<Seat, GenerationId>, ServiceError> {
        let provider = &plan.model.provider;
        if let Some(seat) = self.0.providers.seats.take(provider) {
            return Ok(Ok(seat));
        }
        // A parallel request with the same key may have been first.
        if let Some(id) = self.replayed(caller, keyed).await? {
            return Ok(Err(id));
        }
        let (store, now) = (&self.0.store, self.0.clock.now());
        let (_, unfinished) = store.balance_and_unfinished(caller.account_id).await?;
        self.check_jobs(unfinished)?;
        let spendable_balance = store.spendable_balance(caller.account_id, caller.credential, now);
        let (balance, cap) = spendable_balance.await?;
        let hold = plan.ceiling.hold();
        let short = match cap {
            Some(cap) if cap.left() < hold => {
                explain::above_spend_limit(hold, cap, balance, &plan.ceiling)
            }
            _ if balance.available() < hold => {
                explain::above_available(hold, balance, &plan.ceiling)
            }
            _ => return Err(ServiceError::ProviderBusy(provider.clone())),
        };
        Err(ServiceError::CreditsShort(Box::new(short)))
    }

    fn check_jobs(&self, unfinished: i32) -> Result<(), ServiceError> {
        let most = self.0.settings.max_jobs_per_account;
        if unfinished >= most {
            return Err(ServiceError::TooManyJobs(most));
        }
        Ok(())
    }

    /// What starting a generation in this process came to.
    async fn begun(
        &self,
        caller: &Caller,
        started: Result<Started, StoreError>,
        ceiling: &Ceiling,
        keyed: Option<&IdempotentRequest>,
    ) -> Result<Submitted, ServiceError> {
        match started? {
            Ok((generation, handle)) => Ok(Submitted::New(Box::new(generation), handle)),
            Err(refused) => self.refused(caller, refused, ceiling, keyed).await,
        }
    }

    async fn refused(
        &self,
        caller: &Caller,
        refused: HoldOutcome,
        ceiling: &Ceiling,
        keyed: Option<&IdempotentRequest>,
    ) -> Result<Submitted, ServiceError> {
        Err(match refused {
            HoldOutcome::KeyBound => {
                // A parallel request with the same key was first.
                return match self.replayed(caller, keyed).await? {
                    Some(id) => Ok(Submitted::Replay(id)),
                    None => Err(ServiceError::IdempotencyInProgress),
                };
            }
            HoldOutcome::CredentialEnded => ServiceError::Token(match caller.user_id {
                None if caller.expires_at.is_some_and(|at| at <= self.0.clock.now()) => {
                    TokenRefusal::Expired
                }
                None => TokenRefusal::Revoked,
                Some(_) => TokenRefusal::Invalid,
            }),
            HoldOutcome::Suspended => ServiceError::Suspended,
            HoldOutcome::TooManyJobs => {
                ServiceError::TooManyJobs(self.0.settings.max_jobs_per_account)
            }
            HoldOutcome::SpendLimit(cap, balance) => {
                let short = explain::above_spend_limit(ceiling.hold(), cap, balance, ceiling);
                ServiceError::CreditsShort(Box::new(short))
            }
            HoldOutcome::Short(balance) => {
                let short = explain::above_available(ceiling.hold(), balance, ceiling);
                ServiceError::CreditsShort(Box::new(short))
            }
            HoldOutcome::Held => {
                ServiceError::Internal("a hold was both placed and refused".to_owned())
            }
        })
    }
}
