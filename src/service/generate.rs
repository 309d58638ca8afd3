//! From a request to a generation: replay, plan, hold.

mod dialogue;
mod estimate;
mod plan;
mod refusal;
mod template;

use std::mem;

pub use estimate::Estimate;
use serde_json::{Map, Value};

use super::{Service, ServiceError, auth::Caller, explain};
use crate::{
    domain::{
        generation::{Generation, Status, Surface},
        ids::GenerationId,
        json::fingerprint,
        request::GenerationRequest,
        share::{SharePermit, ShareReached},
    },
    jobs::{Handle, Permits, Started, Work},
    providers::DeltaSink,
    store::generations::{Idempotency, NewGeneration},
};
use plan::Plan;

/// The outcome of a request.
pub enum Submitted {
    /// A new generation, held and running in this process.
    New(Box<Generation>, Handle),
    /// A new generation, held and queued for any worker.
    Queued(Box<Generation>),
    /// The generation that the idempotency key created before.
    Replay(GenerationId),
}

#[derive(Debug, Clone)]
pub struct IdempotentRequest {
    key: String,
    fingerprint: [u8; 32],
}

impl IdempotentRequest {
    /// A key for a request. The same request means the same route and body without `stream`.
    pub fn new(key: String, route: &str, body: &Map<String, Value>) -> Self {
        let mut body = body.clone();
        body.remove("stream");
        let fingerprint = fingerprint(route, &body);
        Self { key, fingerprint }
    }
}

impl Service {
    /// Holds the ceiling of the cost and starts the work, or finds what the idempotency key created
    /// before. `deltas`: where the pieces of a streamed text go. `respond_async`: the caller does not
    /// wait, so that it is a job.
    pub async fn generate(
        &self,
        caller: &Caller,
        request: GenerationRequest,
        idempotent: Option<&IdempotentRequest>,
        deltas: Option<DeltaSink>,
        respond_async: bool,
    ) -> Result<Submitted, ServiceError> {
        if let Some(id) = self.replayed(caller, idempotent).await? {
            return Ok(Submitted::Replay(id));
        }
        self.require_running()?;
        if self.is_draining() {
            return Err(ServiceError::ShuttingDown);
        }
        let surface = request.surface();
        let mut plan = self.plan(caller, request, deltas).await?;
        plan.job |= respond_async;
        let share = match self.share(caller, &plan) {
            Ok(share) => share,
            Err(reached) => return self.at_share(caller, reached, idempotent).await,
        };
        let new = self.new_generation(caller, &mut plan, surface, idempotent);
        let new = new.await?;
        let run = match plan.call.take() {
            None => None,
            Some(call) => match self.permits(&plan, share) {
                Some(permits) => Some((call, permits)),
                None => return self.provider_busy(caller, &plan, idempotent).await,
            },
        };
        match self.0.runner.start(Work { new, run }).await? {
            Started::Running(record, handle) => Ok(Submitted::New(Box::new(record), handle)),
            Started::Queued(mut record) => {
                // That it waits for a free worker is shown by lookups only.
                record.status = Status::Processing;
                Ok(Submitted::Queued(Box::new(record)))
            }
            Started::Refused(refused) => {
                self.refused(caller, refused, &plan.ceiling, idempotent)
                    .await
            }
        }
    }

    /// The generation that the idempotency key created before.
    async fn replayed(
        &self,
        caller: &Caller,
        idempotent: Option<&IdempotentRequest>,
    ) -> Result<Option<GenerationId>, ServiceError> {
        let Some(IdempotentRequest { key, fingerprint }) = idempotent else {
            return Ok(None);
        };
        let (store, now) = (&self.0.store, self.0.clock.now());
        match store.bound_key(caller.account_id, key, now).await? {
            Some(bound) if bound.fingerprint == fingerprint => Ok(Some(bound.generation)),
            Some(_) => Err(ServiceError::IdempotencyKeyReused),
            None => Ok(None),
        }
    }

    /// Checks what needs no statement of its own, and builds the row that the hold will create, of
    /// which the plan's texts and parameters become part.
    async fn new_generation(
        &self,
        caller: &Caller,
        plan: &mut Plan<'_>,
        surface: Surface,
        idempotent: Option<&IdempotentRequest>,
    ) -> Result<NewGeneration, ServiceError> {
        let hold = plan.ceiling.hold();
        if let Some(max_cost) = plan.max_cost.filter(|max| hold > *max) {
            let (balance, jobs) = self.0.store.balance_and_jobs(caller.account_id).await?;
            self.check_jobs(plan, jobs)?;
            let short = explain::above_max_cost(hold, max_cost, balance, &plan.ceiling);
            return Err(ServiceError::CreditsShort(Box::new(short)));
        }
        let id = self.0.ids.next(self.0.clock.now());
        let now = id.created_at();
        let queued = plan.call.is_none();
        let waits = queued && !self.0.runner.has_free_worker();
        Ok(NewGeneration {
            id,
            account_id: caller.account_id,
            credential: caller.credential,
            modality: plan.model.modality(),
            surface,
            provider: plan.model.provider.clone(),
            model: plan.model.id.clone(),
            prompt: mem::take(&mut plan.prompt),
            system_prompt: plan.system_prompt.take(),
            negative_prompt: plan.negative_prompt.take(),
            parameters: plan.parameters.take(),
            template: plan.template,
            pricing: serde_json::json!(plan.model.prices()),
            hold,
            streamed: plan.is_streamed(),
            instance: (!queued).then(|| self.0.runner.instance()),
            deadline: queued.then(|| now + self.0.settings.job_deadline),
            status: if waits {
                Status::Pending
            } else {
                Status::Processing
            },
            job: plan.job,
            max_jobs: self.0.settings.max_jobs_per_account,
            idempotency: idempotent.map(|request| Idempotency {
                key: request.key.clone(),
                fingerprint: request.fingerprint,
                expires_at: now + self.0.settings.idempotency_period,
            }),
            now,
        })
    }

    /// The place of synchronous work in its account's share; `None` for a job.
    fn share(&self, caller: &Caller, plan: &Plan<'_>) -> Result<Option<SharePermit>, ShareReached> {
        if plan.job {
            return Ok(None);
        }
        let provider = &plan.model.provider;
        let permit = self.0.shares.try_acquire(caller.account_id, provider);
        permit.map(Some)
    }

    /// The permits for a call that begins now; none is waited for.
    fn permits(&self, plan: &Plan<'_>, share: Option<SharePermit>) -> Option<Permits> {
        let permit = self.0.providers.try_acquire(&plan.model.provider)?;
        Some((permit, share))
    }
}
