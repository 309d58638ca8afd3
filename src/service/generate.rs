//! From a request to a generation: replay, plan, hold.

mod attempts;
mod dialogue;
mod estimate;
mod hold_wait;
mod plan;
mod refusal;
mod template;
mod wait_queue;

use std::{mem, sync::Arc};

pub use attempts::IdempotentRequest;
pub use estimate::Estimate;
pub use hold_wait::HoldQueues;

use super::{CreditsShort, Service, ServiceError, WaitPlace, auth::Caller, explain};
use crate::{
    domain::{
        generation::{Generation, Status, Surface},
        ids::GenerationId,
        request::GenerationRequest,
        share::ShareReached,
    },
    jobs::{Call, Handle, Permits, Refused, Started, UndecidedAttempt, Work},
    providers::DeltaSink,
    store::generations::NewGeneration,
};
use hold_wait::HoldWait;
use plan::Plan;

/// The outcome of a request.
pub enum Submitted {
    /// A new generation, held and running in this process.
    New(Box<Generation>, Handle),
    /// A new generation, held and queued for any worker. With the place to wait for its end that
    /// was taken before the hold, if its caller must wait.
    Queued(Box<Generation>, Option<WaitPlace>),
    /// The generation that the idempotency key created before.
    Replay(GenerationId),
    /// The generation of another attempt of an SDK at the same request.
    Joined(GenerationId),
}

impl Submitted {
    /// Whether another request created the generation.
    pub const fn is_replay(&self) -> bool {
        matches!(self, Self::Replay(_) | Self::Joined(_))
    }
}

/// The outcome of one try.
enum Tried {
    Submitted(Submitted),
    /// Too few credits, and the row that was not created.
    Short(Box<CreditsShort>, Box<NewGeneration>),
}

impl Tried {
    fn of(
        result: Result<Submitted, ServiceError>,
        new: NewGeneration,
    ) -> Result<Self, ServiceError> {
        match result {
            Ok(submitted) => Ok(Self::Submitted(submitted)),
            Err(ServiceError::CreditsShort(short)) => Ok(Self::Short(short, Box::new(new))),
            Err(error) => Err(error),
        }
    }
}

impl Service {
    /// Holds the ceiling of the cost and starts the work, or finds what the same request created
    /// before. `deltas`: where the pieces of a streamed text go. `respond_async`: the caller does
    /// not wait, so that it is a job. A request of an SDK may wait for credits on hold; `waiting`
    /// is called before it does.
    pub async fn generate(
        &self,
        caller: &Caller,
        request: GenerationRequest,
        idempotent: Option<&IdempotentRequest>,
        deltas: Option<DeltaSink>,
        respond_async: bool,
        waiting: impl Fn() + Send + Copy,
    ) -> Result<Submitted, ServiceError> {
        let confirmed;
        let mut caller = caller;
        if request.has_template() {
            confirmed = self.confirmed(caller).await?;
            caller = &confirmed;
        }
        let Some(presumed) = caller.presumed() else {
            let generating =
                self.try_generate(caller, request, idempotent, deltas, respond_async, waiting);
            return generating.await;
        };
        let again = (request.clone(), deltas.as_ref().map(DeltaSink::another));
        let generating =
            self.try_generate(caller, request, idempotent, deltas, respond_async, waiting);
        let refused = match generating.await {
            Err(ServiceError::Store(error)) => return Err(ServiceError::Store(error)),
            Err(ServiceError::Unconfirmed(record, error)) => {
                return Err(ServiceError::Unconfirmed(record, error));
            }
            Err(error) if presumed.is_open() => error,
            done => return done,
        };
        let known = self.settle_presumed(presumed).await?;
        known.caller.require_active()?;
        if !matches!(refused, ServiceError::NotAsPresumed) && known.caller.plans_like(caller) {
            return Err(refused);
        }
        let (request, deltas) = again;
        self.try_generate(
            &known.caller,
            request,
            idempotent,
            deltas,
            respond_async,
            waiting,
        )
        .await
    }

    async fn try_generate(
        &self,
        caller: &Caller,
        request: GenerationRequest,
        idempotent: Option<&IdempotentRequest>,
        deltas: Option<DeltaSink>,
        respond_async: bool,
        waiting: impl Fn() + Send + Copy,
    ) -> Result<Submitted, ServiceError> {
        let idempotent = idempotent.filter(|request| self.is_deduplicated(request));
        let attempt = idempotent.and_then(|request| self.begin_attempt(caller, request));
        let attempt = attempt.map(Arc::new);
        if let Some(request) = idempotent {
            self.wait_for_first_attempts(caller, request, waiting)
                .await?;
        }
        if let Some(before) = self.submitted_before(caller, idempotent).await? {
            return Ok(before);
        }
        self.require_running()?;
        let surface = request.surface();
        let mut wait = match surface {
            Surface::Generate => None,
            _ => Some(HoldWait::new(self, caller, waiting)),
        };
        let mut plan = self.plan(caller, request, deltas).await?;
        plan.job |= respond_async;
        if let Some(wait) = &mut wait {
            // Its caller waits for the job, which must not begin without a place to wait.
            if plan.call.is_none() && !wait.take_place() {
                return Err(ServiceError::Overloaded);
            }
            let required = (!plan.unlimited).then(|| plan.ceiling.hold());
            if wait.enter(required).await? {
                self.replan(caller, &mut plan).await?;
            }
        }
        let mut row = None;
        loop {
            if self.is_draining() {
                return Err(ServiceError::ShuttingDown);
            }
            let tried = self.submit(
                caller,
                surface,
                &mut plan,
                row.take(),
                idempotent,
                attempt.clone(),
            );
            let (short, refused) = match tried.await? {
                Tried::Submitted(Submitted::Queued(record, _)) => {
                    return Ok(Submitted::Queued(record, wait.and_then(|wait| wait.place)));
                }
                Tried::Submitted(submitted) => return Ok(submitted),
                Tried::Short(short, refused) => (short, refused),
            };
            let again = async {
                let Some(wait) = &mut wait else {
                    return Ok(false);
                };
                while wait.may_try_again(&short).await? {
                    if self.replan(caller, &mut plan).await? {
                        return Ok(true);
                    }
                }
                Ok::<_, ServiceError>(false)
            };
            if !again.await? {
                return Err(if self.is_draining() {
                    ServiceError::ShuttingDown
                } else {
                    ServiceError::CreditsShort(short)
                });
            }
            row = Some(refused);
        }
    }

    /// One try to hold and start. `row`: what a try before it was refused.
    async fn submit(
        &self,
        caller: &Caller,
        surface: Surface,
        plan: &mut Plan<'_>,
        row: Option<Box<NewGeneration>>,
        idempotent: Option<&IdempotentRequest>,
        attempt: Option<Arc<UndecidedAttempt>>,
    ) -> Result<Tried, ServiceError> {
        let permits = match self.permits(caller, plan) {
            Ok(permits) => permits,
            Err(reached) => {
                let before = self.at_share(caller, reached, idempotent).await?;
                return Ok(Tried::Submitted(before));
            }
        };
        let new = match row {
            None => {
                self.new_generation(caller, plan, surface, idempotent)
                    .await?
            }
            Some(row) => self.renewed(*row, plan, idempotent),
        };
        if plan.call.is_some() && permits.is_none() {
            let busy = self.provider_busy(caller, surface, plan, idempotent);
            return Tried::of(busy.await, new);
        }
        let run = plan.call.take().zip(permits);
        match self.0.runner.start(Work { new, run, attempt }).await? {
            Started::Running(record, handle) => {
                Ok(Tried::Submitted(Submitted::New(Box::new(record), handle)))
            }
            Started::Queued(mut record) => {
                // That it waits for a free worker is shown by lookups only.
                record.status = Status::Processing;
                Ok(Tried::Submitted(Submitted::Queued(Box::new(record), None)))
            }
            Started::Refused(refused) => {
                let Refused { why, new, call } = *refused;
                plan.call = call;
                let ceiling = &plan.ceiling;
                let refused = self.refused(caller, surface, why, ceiling, idempotent);
                Tried::of(refused.await, new)
            }
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
            presumed: caller.presumed().cloned(),
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
            idempotency: idempotent.map(|request| self.binding(request, id)),
            now,
        })
    }

    /// A row that was refused, as it is created now.
    fn renewed(
        &self,
        mut row: NewGeneration,
        plan: &Plan<'_>,
        idempotent: Option<&IdempotentRequest>,
    ) -> NewGeneration {
        if let Some(Call::Text(work)) = &plan.call {
            row.parameters["max_tokens"] = work.call.max_tokens.into();
        }
        let id = self.0.ids.next(self.0.clock.now());
        let now = id.created_at();
        NewGeneration {
            id,
            hold: plan.ceiling.hold(),
            deadline: row.deadline.map(|_| now + self.0.settings.job_deadline),
            idempotency: idempotent.map(|request| self.binding(request, id)),
            now,
            ..row
        }
    }

    /// The permits for a call that begins now, without waiting; `None` if it is a job for a worker
    /// or the provider is at its limit.
    fn permits(&self, caller: &Caller, plan: &Plan<'_>) -> Result<Option<Permits>, ShareReached> {
        if plan.call.is_none() {
            return Ok(None);
        }
        let (account, provider) = (caller.account_id, &plan.model.provider);
        let synchronous = &self.0.synchronous;
        let mut request = None;
        if !plan.job {
            let reached = || ShareReached {
                most: synchronous.per_key(),
                provider: None,
            };
            request = Some(synchronous.try_acquire(account).ok_or_else(reached)?);
        }
        let providers = &self.0.providers;
        if let Some(call) = providers.try_acquire(provider, account) {
            return Ok(Some((call, request)));
        }
        match providers.reached_share(provider, account) {
            Some(most) => Err(ShareReached {
                most,
                provider: Some(provider.clone()),
            }),
            None => Ok(None),
        }
    }
}
