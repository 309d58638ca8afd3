//! Turns a request into a generation: replay, plan, hold.

mod attempts;
mod candidates;
mod counted;
mod dialogue;
mod estimate;
mod hold_wait;
mod inputs;
mod plan;
mod refusal;
mod template;
mod wait_queue;

use std::{
    mem,
    sync::{Arc, Mutex},
};

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

pub use attempts::IdempotentRequest;
pub use dialogue::Preview;
pub use estimate::Estimate;
pub use hold_wait::HoldQueues;

use super::{Result, Service, ServiceError, WaitPlace, auth::Caller};
use crate::{
    catalogue::ModelKind,
    domain::{
        ability::Ability,
        credits::Credits,
        generation::{Generation, REQUEST_ID, Status, Surface},
        ids::{GenerationId, UploadId},
        pricing::Ceiling,
        route::{Dropped, MoveReason},
        share::ShareReached,
    },
    jobs::{Call, Fallbacks, Handle, Permits, Runner, Started, UndecidedAttempt, Work},
    memory,
    providers::DeltaSink,
    request::GenerationRequest,
    store::{
        StoreError,
        generations::{NewGeneration, NewRoute},
    },
};
use candidates::Planned;
use dialogue::replan_text;
use hold_wait::HoldWait;
use inputs::FoundInput;
use plan::Plan;
use refusal::above_max_cost;

/// Expected maximum time from arrival to creation, including the provider's token count and the
/// wait for credits.
const PLANNING: TimeDelta = TimeDelta::minutes(5);

pub enum Submitted {
    /// A new generation, held and running in this process.
    New(Box<Generation>, Handle),
    /// A new generation, held and queued for any worker. If its caller waits for the end, with the
    /// permit to wait, taken before the hold.
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

/// The parts of a request to generate that are not in its body.
#[derive(Debug, Clone, Copy)]
pub struct RequestInfo<'a> {
    /// Its `X-Request-Id`.
    pub request_id: &'a str,
    pub idempotent: Option<&'a IdempotentRequest>,
    /// The caller does not wait, so the generation counts as a job.
    pub respond_async: bool,
}

/// A planned request, with the row that its hold creates.
struct Prepared<'a> {
    caller: &'a Caller,
    idempotent: Option<&'a IdempotentRequest>,
    /// In order; at least one.
    candidates: Vec<Plan<'a>>,
    /// Why the first candidates cannot be called in this try.
    skipped: Vec<MoveReason>,
    /// The candidates that were dropped while planning.
    dropped: Vec<Dropped>,
    max_cost: Option<Credits>,
    input_bytes: u64,
    /// Inputs that are not stored yet.
    inputs: Vec<FoundInput>,
    /// Inputs that were stored, and until when.
    kept: Option<(Vec<UploadId>, DateTime<Utc>)>,
    /// Shared with the task that places the hold, together with the candidates.
    work: Arc<Work>,
}

impl Service {
    /// Holds the maximum cost and starts the work, or finds the generation that the same request
    /// created before. `deltas` receives the pieces of a streamed text. A request of an SDK may
    /// wait for credits on hold; `waiting` is called before it does.
    pub async fn generate(
        &self,
        caller: &Caller,
        request: GenerationRequest,
        info: RequestInfo<'_>,
        deltas: Option<DeltaSink>,
        waiting: impl Fn() + Send + Copy,
    ) -> Result<Submitted> {
        // Keeps a copy of a request that may be planned again, if there is memory.
        let catalogue_ends = self.0.clock.now() + PLANNING;
        let catalogue = self.catalogue();
        let catalogue_changes =
            catalogue.changes_before(catalogue_ends) || !catalogue.is_valid_at(self.0.clock.now());
        let may_repeat = caller.is_unconfirmed() || catalogue_changes;
        let copied = memory::reservation().filter(|_| may_repeat);
        let has_room = copied
            .as_ref()
            .is_none_or(|copied| copied.try_add(request.copied_bytes()));
        let ability = Ability::to_generate(request.modality());
        // A copy would keep the inputs in memory while the generation runs.
        let needs_key = request.needs_confirmed_caller() || !request.inputs().is_empty();
        let confirmed = if needs_key || !has_room {
            caller.confirm_for(ability).await?
        } else {
            None
        };
        let caller = confirmed.as_ref().unwrap_or(caller);
        // The defaults of a cached key or the catalogue may change: the request is planned again.
        let again = (caller.is_unconfirmed() || (catalogue_changes && has_room))
            .then(|| (request.clone(), deltas.as_ref().map(DeltaSink::another)));
        let generating = self.try_generate(caller, request, info, deltas, waiting);
        let (error, (request, deltas)) = match (generating.await, again) {
            (Err(error), Some(again))
                if caller.is_unconfirmed()
                    || matches!(error, ServiceError::CatalogueChanged(_)) =>
            {
                (error, again)
            }
            (done, _) => return done,
        };
        if let ServiceError::Store(StoreError::Unavailable(_)) | ServiceError::Unconfirmed(..) =
            error
        {
            caller.leave_uncounted();
            return Err(error);
        }
        let confirmed = caller.confirm_for(ability).await?;
        let repeats = match (&error, &confirmed) {
            (ServiceError::CatalogueChanged(_), _) | (ServiceError::NotAsPresumed, Some(_)) => true,
            (_, Some(known)) => !known.plans_like(caller),
            (_, None) => false,
        };
        if !repeats {
            return Err(error);
        }
        // Use the creation time of the first plan: ids ignore small steps back of the clock.
        let service = match error {
            ServiceError::CatalogueChanged(created_at) => self.at(created_at),
            _ => self.current(),
        };
        let caller = confirmed.as_ref().unwrap_or(caller);
        let generating = service.try_generate(caller, request, info, deltas, waiting);
        generating.await
    }

    async fn try_generate(
        &self,
        caller: &Caller,
        request: GenerationRequest,
        info: RequestInfo<'_>,
        deltas: Option<DeltaSink>,
        waiting: impl Fn() + Send + Copy,
    ) -> Result<Submitted> {
        let idempotent = info
            .idempotent
            .filter(|request| self.is_deduplicated(request));
        let info = RequestInfo { idempotent, ..info };
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
        let planned = self.plan_all(caller, request, deltas).await?;
        // The wait starts after planning, because a count by the vendor may take as long.
        let mut wait = HoldWait::new(self, caller, surface != Surface::Generate, waiting);
        let mut plan = self.prepare(caller, planned, surface, info);
        self.check_catalogue(plan.work.new.now)?;
        if wait.is_for_credits {
            // The job must not begin without a permit for its caller to wait.
            if plan.is_queued() && !wait.take_place() {
                return Err(ServiceError::Overloaded);
            }
            let required = (!plan.is_unlimited()).then_some(plan.hold());
            if wait.enter(required).await? {
                self.replan(&mut plan).await?;
            }
        }
        let placed = self.place_or_wait(&mut plan, attempt, wait).await;
        match &placed {
            // After a database error it is unknown whether the hold was placed.
            Ok(Submitted::New(..) | Submitted::Queued(..))
            | Err(ServiceError::Store(_) | ServiceError::Unconfirmed(..)) => {}
            _ => self.discard_inputs(&plan).await,
        }
        placed
    }

    /// Tries to place the hold as long as the request may wait for credits.
    async fn place_or_wait<F: Fn() + Send>(
        &self,
        plan: &mut Prepared<'_>,
        attempt: Option<Arc<UndecidedAttempt>>,
        mut wait: HoldWait<'_, F>,
    ) -> Result<Submitted> {
        loop {
            if self.is_draining() {
                return Err(ServiceError::ShuttingDown);
            }
            let short = match self.place(plan, attempt.clone(), &mut wait).await {
                Ok(Submitted::Queued(record, _)) => {
                    return Ok(Submitted::Queued(record, wait.place));
                }
                Err(ServiceError::CreditsShort(short)) => short,
                placed => return placed,
            };
            let mut fits = false;
            while !fits && wait.may_try_again(&short).await? {
                fits = self.replan(plan).await?;
            }
            if !fits {
                return Err(if self.is_draining() {
                    ServiceError::ShuttingDown
                } else {
                    ServiceError::CreditsShort(short)
                });
            }
        }
    }

    /// Tries once to place the hold and start the work. May wait for memory for its inputs;
    /// meanwhile it holds nothing that other requests need.
    async fn place<F: Fn() + Send>(
        &self,
        plan: &mut Prepared<'_>,
        attempt: Option<Arc<UndecidedAttempt>>,
        wait: &mut HoldWait<'_, F>,
    ) -> Result<Submitted> {
        let account = plan.caller.account_id;
        let permits = match self.permits(plan) {
            // Checked before the credits.
            Err(error @ ServiceError::TooManyRequests(_)) => {
                return self.not_now(plan, error).await;
            }
            permits => permits,
        };
        let hold = plan.hold();
        if let Some(max_cost) = plan.max_cost.filter(|max| hold > *max) {
            let (balance, jobs) = self.0.store.balance_and_jobs(account).await?;
            self.check_jobs(plan, jobs)?;
            return Err(above_max_cost(hold, max_cost, balance, plan.dearest()));
        }
        let mut permits = match permits {
            Ok(permits) => permits,
            Err(error) => return self.not_now(plan, error).await,
        };
        if !plan.inputs.is_empty() {
            // Do not store files for a request that the account cannot pay for.
            if let Err(error) = self.check_spendable(plan).await {
                // A concurrent request with the same key may have been accepted first.
                let before = self.submitted_before(plan.caller, plan.idempotent).await?;
                return before.ok_or(error);
            }
            Box::pin(self.keep_inputs(plan)).await?;
        }
        if plan.input_bytes > 0 && !plan.is_queued() {
            let mut memory = Runner::try_input_memory(account, plan.input_bytes);
            if memory.is_none() {
                drop(permits);
                memory = match Box::pin(self.wait_for_input_memory(plan, wait)).await {
                    Err(error @ ServiceError::Overloaded) => {
                        return self.not_now(plan, error).await;
                    }
                    memory => Some(memory?),
                };
                self.replan(plan).await?;
                permits = match self.permits(plan) {
                    Ok(permits) => permits,
                    Err(error) => return self.not_now(plan, error).await,
                };
            }
            if let Some(permits) = &mut permits {
                permits.inputs = memory;
            }
        }
        plan.lend()?;
        let starting = self.0.runner.start(&plan.work, permits, attempt);
        Ok(match starting.await? {
            Started::Running(record, handle) => Submitted::New(Box::new(record), handle),
            Started::Queued(mut record) => {
                // Only lookups show that it waits for a free worker.
                record.status = Status::Processing;
                Submitted::Queued(Box::new(record), None)
            }
            Started::Refused(why) => return self.refused(plan, why).await,
            Started::Unconfirmed(record, error) => {
                return Err(ServiceError::Unconfirmed(Box::new(record), error));
            }
        })
    }

    /// Adds the row that the hold creates.
    fn prepare<'a>(
        &self,
        caller: &'a Caller,
        planned: Planned<'a>,
        surface: Surface,
        info: RequestInfo<'a>,
    ) -> Prepared<'a> {
        let Planned { mut first, route } = planned;
        let is_queued = first.call.is_none();
        let id = self.0.ids.next(self.0.clock.now());
        let now = id.created_at();
        let mut new = NewGeneration {
            id,
            account_id: caller.account_id,
            credential: caller.credential,
            presumed: caller.presumed(),
            modality: first.model.modality(),
            surface,
            provider: String::new(),
            model: String::new(),
            streamed: first.is_streamed(),
            prompt: mem::take(&mut first.prompt),
            system_prompt: first.system_prompt.take(),
            negative_prompt: first.negative_prompt.take(),
            parameters: Value::Null,
            template: first.template,
            pricing: Value::Null,
            hold: Credits::ZERO,
            instance: (!is_queued).then(|| self.0.runner.instance()),
            deadline: is_queued.then(|| now + self.0.settings.job_deadline),
            status: self.first_status(is_queued),
            job: first.job || info.respond_async,
            max_jobs: self.0.settings.max_jobs_per_account,
            idempotency: info.idempotent.map(|request| self.binding(request, id)),
            route: None,
            now,
        };
        let (max_cost, inputs) = (first.max_cost, mem::take(&mut first.inputs));
        let mut candidates = vec![first];
        let (mut dropped, mut fallbacks) = (Vec::new(), Fallbacks::default());
        if let Some(route) = route {
            candidates.extend(route.others);
            dropped = route.dropped;
            fallbacks.copies = route.copies;
            new.route = Some(Box::new(NewRoute {
                name: route.name,
                ceiling: Credits::ZERO,
                next: Vec::new(),
                dropped: Vec::new(),
                on: route.on,
            }));
        }
        for candidate in &mut candidates {
            // All have the inputs and prompts of the first one.
            candidate.inputs = Vec::new();
            candidate.prompt = String::new();
            (candidate.system_prompt, candidate.negative_prompt) = (None, None);
            candidate.parameters[REQUEST_ID] = info.request_id.into();
        }
        Prepared {
            caller,
            idempotent: info.idempotent,
            candidates,
            skipped: Vec::new(),
            dropped,
            max_cost,
            input_bytes: inputs.iter().map(|input| input.info.bytes).sum(),
            inputs,
            kept: None,
            work: Arc::new(Work {
                new,
                call: None,
                fallbacks: Mutex::new(fallbacks),
            }),
        }
    }

    /// Fails unless this catalogue applies at `created_at`.
    fn check_catalogue(&self, created_at: DateTime<Utc>) -> Result<()> {
        if self.catalogue().is_valid_at(created_at) {
            return Ok(());
        }
        Err(ServiceError::CatalogueChanged(created_at))
    }

    /// `pending` if no worker is free for a queued job.
    fn first_status(&self, is_queued: bool) -> Status {
        if is_queued && !self.0.runner.has_free_worker() {
            Status::Pending
        } else {
            Status::Processing
        }
    }

    /// Adapts a plan to the time and the credits of another try. Returns `false` if holds still
    /// leave too little for a dialogue without a limit.
    async fn replan(&self, plan: &mut Prepared<'_>) -> Result<bool> {
        plan.take_back()?;
        let mut fits = true;
        if plan.is_unlimited() {
            let (spendable, held) = self.spendable(plan.caller).await?;
            for candidate in &mut plan.candidates {
                if let (
                    true,
                    ModelKind::Text(text),
                    Ceiling::Text(ceiling),
                    Some(Call::Text(work)),
                ) = (
                    candidate.unlimited,
                    &candidate.model.kind,
                    &mut candidate.ceiling,
                    &mut candidate.call,
                ) {
                    fits &= replan_text(text, ceiling, work, spendable);
                    candidate.parameters["max_tokens"] = work.call.max_tokens.into();
                }
            }
            fits |= held == Credits::ZERO;
        }
        let new = &mut unshared(&mut plan.work)?.new;
        new.id = self.0.ids.next(self.0.clock.now());
        new.now = new.id.created_at();
        self.check_catalogue(new.now)?;
        new.status = self.first_status(new.instance.is_none());
        new.deadline = new.deadline.map(|_| new.now + self.0.settings.job_deadline);
        let idempotent = plan.idempotent;
        new.idempotency = idempotent.map(|request| self.binding(request, new.id));
        Ok(fits)
    }

    /// Takes the permits for a call that begins now, without waiting. `None` for a worker's job.
    fn permits(&self, plan: &mut Prepared<'_>) -> Result<Option<Permits>> {
        if plan.is_queued() {
            return Ok(None);
        }
        let account = plan.caller.account_id;
        let synchronous = &self.0.synchronous;
        let mut request = None;
        if !plan.work.new.job {
            let reached = || {
                ServiceError::TooManyRequests(ShareReached {
                    most: synchronous.per_key(),
                    provider: None,
                })
            };
            request = Some(synchronous.try_acquire(account).ok_or_else(reached)?);
        }
        Ok(Some(Permits {
            call: self.choose_first(plan)?,
            request,
            inputs: None,
        }))
    }
}

/// Returns the work of a hold that is not being placed.
fn unshared(work: &mut Arc<Work>) -> Result<&mut Work> {
    Arc::get_mut(work).ok_or_else(|| ServiceError::Internal("a refused hold is in use".to_owned()))
}

impl Prepared<'_> {
    /// Whether it is a job for a worker.
    fn is_queued(&self) -> bool {
        self.work.new.instance.is_none()
    }

    /// Returns the ceiling that determines the hold.
    fn dearest(&self) -> &Ceiling {
        let callable = &self.candidates[self.skipped.len()..];
        let (first, all) = (&callable[0].ceiling, callable.iter());
        let dearest = all
            .map(|candidate| &candidate.ceiling)
            .max_by_key(|ceiling| ceiling.hold());
        let dearest = dearest.filter(|ceiling| ceiling.hold() > first.hold());
        dearest.unwrap_or(first)
    }

    fn hold(&self) -> Credits {
        self.dearest().hold()
    }

    fn is_unlimited(&self) -> bool {
        self.candidates.iter().any(|candidate| candidate.unlimited)
    }
}
