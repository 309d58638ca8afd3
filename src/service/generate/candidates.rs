//! Requests with several candidates: each is planned like a request for it alone, and the hold is
//! the maximum of their ceilings.

use std::{mem, time::Duration};

use tokio::time::{Instant, timeout};

use super::{Prepared, counted, plan::Plan, unshared};
use crate::{
    catalogue::{Model, ModelKind},
    domain::{
        credits::Credits,
        generation::Modality,
        ids::AccountId,
        lock::lock,
        pricing::{Ceiling, TextCeiling},
        route::{Dropped, FallbackOn, MoveReason, Order},
        share::ShareReached,
        validate::{FieldCode, FieldError},
    },
    memory::{self, Reservation},
    providers::{DeltaSink, ProviderPermit},
    request::{GenerationRequest, Target},
    service::{Result, Service, ServiceError, auth::Caller},
    store::generations::NextCandidate,
};

const CIRCUIT_OPEN: &str = "it failed several times within seconds";
const NO_MEMORY: &str = "the server has no memory for another copy of the request";

/// The candidates of a request, in order.
pub(super) struct Wanted {
    name: Option<String>,
    order: Order,
    targets: Vec<Target>,
}

/// A plan, and those of the other candidates.
pub(super) struct Planned<'a> {
    pub first: Plan<'a>,
    /// `None` if the request has one candidate only.
    pub route: Option<Box<PlannedRoute<'a>>>,
}

pub(super) struct PlannedRoute<'a> {
    pub name: Option<String>,
    pub others: Vec<Plan<'a>>,
    pub dropped: Vec<Dropped>,
    pub on: FallbackOn,
    /// For the copies of the request.
    pub copies: Option<Reservation>,
}

impl Service {
    /// The known candidates of a request that has several, each with provider and model; of its own
    /// target, as it was asked for. With the errors in their names.
    pub(super) fn wanted(
        &self,
        caller: &Caller,
        request: &GenerationRequest,
    ) -> (Option<Wanted>, Vec<FieldError>) {
        let modality = request.modality();
        let catalogue = self.catalogue();
        let own = request.target();
        if let Some(name) = request.route() {
            let mut errors = Vec::new();
            if own.is_some_and(|own| !own.fallbacks.is_empty()) {
                let message = "must be left out: the route has its own";
                let error = FieldError::new("fallbacks", FieldCode::NotSupported, message);
                errors.push(error);
            }
            let route = catalogue.route_for(modality, name, request.surface());
            let route = route.map_err(|error| errors.push(error)).ok();
            let wanted = Wanted {
                name: route.map(|route| route.name.clone()),
                order: route.map_or(Order::Given, |route| route.order),
                targets: route.map_or_else(Vec::new, |route| route.candidates.clone()),
            };
            return (Some(wanted), errors);
        }
        let Some(own) = own else {
            return (None, Vec::new());
        };
        let mut errors = Vec::new();
        let fallbacks = if own.is_default() {
            // Models named by the account may have been removed or replaced.
            let account = caller.account_default(modality).fallbacks;
            let known = account
                .iter()
                .filter_map(|target| catalogue.followed(target));
            known
                .filter(|model| model.modality() == modality)
                .map(Model::target)
                .collect()
        } else {
            let mut known = own.fallbacks.clone();
            for (at, error) in self.unknown_fallbacks(modality, own).into_iter().rev() {
                // Retired fallbacks are dropped later.
                if error.code != FieldCode::ModelRetired {
                    known.remove(at);
                    errors.insert(0, error);
                }
            }
            known
        };
        if fallbacks.is_empty() {
            return (None, errors);
        }
        let first = Target {
            fallbacks: Vec::new(),
            ..own.clone()
        };
        let wanted = Wanted {
            name: None,
            order: Order::Given,
            targets: [vec![first], fallbacks].concat(),
        };
        (Some(wanted), errors)
    }

    /// The fallbacks that this server does not have, by their index.
    pub(in crate::service) fn unknown_fallbacks(
        &self,
        modality: Modality,
        target: &Target,
    ) -> Vec<(usize, FieldError)> {
        let none = Target::default();
        let unknown = |(at, fallback): (usize, &Target)| {
            let mut error = self.catalogue().resolve(modality, fallback, &none).err()?;
            error.param = format!("fallbacks[{at}].{}", error.param);
            Some((at, error))
        };
        let all = target.fallbacks.iter().enumerate();
        all.filter_map(unknown).collect()
    }

    /// Returns the failing fields if no candidate is usable: those of the first one.
    pub(super) fn violations_of_all(
        &self,
        caller: &Caller,
        request: &GenerationRequest,
        wanted: &Wanted,
        chars: usize,
    ) -> Option<Vec<FieldError>> {
        let mut first = None;
        for (at, target) in wanted.targets.iter().enumerate() {
            match self.resolve(caller, &request.for_target(target), chars) {
                Ok(_) => return None,
                // The request's own model must be known, even if a fallback would be used.
                Err(errors) if at == 0 && errors.iter().any(names_model) => return Some(errors),
                Err(errors) => first = first.or(Some(errors)),
            }
        }
        first
    }

    /// Plans a request for all its candidates. `deltas`: the receiver of a streamed text's pieces.
    pub(super) async fn plan_all(
        &self,
        caller: &Caller,
        request: GenerationRequest,
        deltas: Option<DeltaSink>,
    ) -> Result<Planned<'_>> {
        let (wanted, errors) = self.wanted(caller, &request);
        if !errors.is_empty() {
            let rendered = self.rendered(caller, &request).await?;
            let errors = [
                rendered.err().unwrap_or_default(),
                self.violations(caller, &request),
            ];
            return Err(ServiceError::Invalid(errors.concat()));
        }
        match wanted {
            None => {
                let rendered = self.rendered(caller, &request).await?;
                let first = self.plan(caller, request, rendered, deltas).await?;
                Ok(Planned { first, route: None })
            }
            Some(wanted) => Box::pin(self.plan_route(caller, request, wanted, deltas)).await,
        }
    }

    async fn plan_route(
        &self,
        caller: &Caller,
        request: GenerationRequest,
        wanted: Wanted,
        deltas: Option<DeltaSink>,
    ) -> Result<Planned<'_>> {
        // Once, so that all candidates get the same prompt.
        let rendered = self.rendered(caller, &request).await?;
        let (mut plans, mut dropped, mut refusal) = (Vec::new(), Vec::new(), None);
        let copies = memory::reservation();
        let (catalogue, modality) = (self.catalogue(), request.modality());
        let account = caller.account_default(modality);
        let (mut models, mut candidates): (Vec<&Model>, _) = (Vec::new(), Vec::new());
        for target in &wanted.targets {
            let asked = request.for_target(target);
            let model = match catalogue.model_of(&asked, &account) {
                Ok(model) => model,
                Err(error) => {
                    let retired = error.code == FieldCode::ModelRetired;
                    let meant = catalogue.meant(modality, target, &account);
                    let (Ok(model), true) = (meant, retired) else {
                        let errors = rendered.err().unwrap_or_default();
                        return Err(ServiceError::Invalid([errors, vec![error]].concat()));
                    };
                    let error = ServiceError::invalid(error);
                    let (code, message) = explained(&error);
                    dropped.push(drop_of(model, &code, message));
                    refusal = refusal.or(Some(error));
                    continue;
                }
            };
            if models.contains(&model) {
                continue;
            }
            models.push(model);
            let has_room = |copies: &Reservation| copies.try_add(request.copied_bytes());
            if models.len() > 1 && !copies.as_ref().is_none_or(has_room) {
                dropped.push(drop_of(model, "overloaded", NO_MEMORY.to_owned()));
                continue;
            }
            candidates.push((model, asked));
        }
        let is_counted = matches!(&request, GenerationRequest::Dialogue(dialogue)
            if dialogue.conversation.pdfs() > 0);
        let soonest = if is_counted {
            self.skip_open(&mut candidates, &mut dropped)
        } else {
            None
        };
        // All counts together may take as long as one.
        let until = Instant::now() + counted::TIMEOUT;
        let mut left = u32::try_from(candidates.len()).unwrap_or(u32::MAX);
        for (at, (model, asked)) in candidates.into_iter().enumerate() {
            let deltas = deltas.as_ref().map(DeltaSink::another);
            let planned = self.plan(caller, asked, rendered.clone(), deltas);
            let planned = if is_counted {
                let share = until.saturating_duration_since(Instant::now()) / left;
                let planned = timeout(share, planned).await;
                planned.unwrap_or_else(|_elapsed| Err(counted::too_late()))
            } else {
                planned.await
            };
            left -= 1;
            match planned {
                Ok(plan) => plans.push(plan),
                Err(
                    error @ (ServiceError::Invalid(_)
                    | ServiceError::ContextLength(_)
                    | ServiceError::NotCounted(_)
                    | ServiceError::CreditsShort(_)),
                ) => {
                    let (code, message) = explained(&error);
                    dropped.push(drop_of(model, &code, message));
                    refusal = refusal.or(Some(error));
                }
                Err(ServiceError::Overloaded) if at > 0 => {
                    dropped.push(drop_of(model, "overloaded", NO_MEMORY.to_owned()));
                }
                Err(error) => return Err(error),
            }
        }
        self.sort(wanted.order, &mut plans);
        if plans.len() > 1 {
            if let Some(most) = request.max_cost() {
                drop_above(most, "max_cost", &mut plans, &mut dropped);
            }
            // Holds may be released: a request that does not fit yet waits, or is refused.
            let most = self.spendable_without_holds(caller).await?;
            drop_above(most, "insufficient_credits", &mut plans, &mut dropped);
        }
        let mut plans = plans.into_iter();
        let Some(first) = plans.next() else {
            return Err(without_candidate(refusal, soonest));
        };
        Ok(Planned {
            first,
            route: Some(Box::new(PlannedRoute {
                name: wanted.name,
                others: plans.collect(),
                dropped,
                on: match &request {
                    GenerationRequest::Text(text) => text.fallback_on,
                    _ => FallbackOn::NotStarted,
                },
                copies,
            })),
        })
    }

    /// Drops candidates whose circuit is open, if others are left, so that their vendors are not
    /// called for a count. Returns when the first of them is tried again.
    fn skip_open(
        &self,
        candidates: &mut Vec<(&Model, GenerationRequest)>,
        dropped: &mut Vec<Dropped>,
    ) -> Option<Duration> {
        let open: Vec<Option<Duration>> = (candidates.iter())
            .map(|(model, _)| self.0.runner.skipped_for(&model.provider, &model.id))
            .collect();
        if open.iter().all(Option::is_some) {
            return None;
        }
        let mut is_open = open.iter().map(Option::is_some);
        for (model, _) in candidates.extract_if(.., |_| is_open.next() == Some(true)) {
            let code = MoveReason::CircuitOpen.as_str();
            dropped.push(drop_of(model, code, CIRCUIT_OPEN.to_owned()));
        }
        open.into_iter().flatten().min()
    }

    fn sort(&self, order: Order, plans: &mut [Plan<'_>]) {
        match order {
            Order::Given => {}
            Order::Cheapest => {
                // A plan without a limit gets as many tokens as the free credits can pay for. Its
                // size must not decide.
                let tokens =
                    plans
                        .iter()
                        .filter_map(|plan| match (&plan.model.kind, &plan.ceiling) {
                            (ModelKind::Text(text), _) if plan.unlimited => {
                                Some(text.limits.max_output_tokens)
                            }
                            (_, Ceiling::Text(text)) => Some(text.max_tokens),
                            _ => None,
                        });
                let max_tokens = tokens.min().unwrap_or_default();
                plans.sort_by_cached_key(|plan| match &plan.ceiling {
                    Ceiling::Text(text) => Ceiling::Text(TextCeiling {
                        max_tokens,
                        ..text.clone()
                    })
                    .hold(),
                    ceiling @ Ceiling::Units(_) => ceiling.hold(),
                });
            }
            Order::Fastest => plans.sort_by_cached_key(|plan| {
                let model = plan.model;
                let runner = &self.0.runner;
                runner.expected_first_token(&model.provider, &model.id, plan.is_streamed())
            }),
        }
    }

    /// Returns a permit for the first candidate that can be called now, and skips those before it
    /// until the next try. Ignores the circuit of the only candidate of a request without a route.
    pub(super) fn choose_first(&self, plan: &mut Prepared<'_>) -> Result<ProviderPermit> {
        let (mut reasons, mut soonest, mut busy) = (Vec::new(), Duration::MAX, None);
        let (providers, account) = (&self.0.providers, plan.caller.account_id);
        let has_route = plan.work.new.route.is_some();
        for candidate in &plan.candidates {
            let model = candidate.model;
            let provider = &model.provider;
            let left = || self.0.runner.skipped_for(provider, &model.id);
            if let Some(left) = has_route.then(left).flatten() {
                soonest = soonest.min(left);
                reasons.push(MoveReason::CircuitOpen);
            } else if let Some(permit) = providers.try_acquire(provider, account) {
                plan.skipped = reasons;
                return Ok(permit);
            } else {
                reasons.push(MoveReason::Busy);
                busy.get_or_insert_with(|| self.busy(account, model));
            }
        }
        Err(busy.unwrap_or(ServiceError::NoCandidate(soonest)))
    }

    /// Returns the refusal of a call to a provider that is at its concurrency limit.
    pub(super) fn busy(&self, account: AccountId, model: &Model) -> ServiceError {
        let provider = &model.provider;
        match self.0.providers.reached_share(provider, account) {
            Some(most) => ServiceError::TooManyRequests(ShareReached {
                most,
                provider: Some(provider.clone()),
            }),
            None => ServiceError::ProviderBusy(provider.clone()),
        }
    }
}

impl Prepared<'_> {
    /// Moves the candidates that can be called into the work, and sets the hold to the maximum of
    /// their ceilings.
    pub(super) fn lend(&mut self) -> Result<()> {
        let hold = self.hold();
        let work = unshared(&mut self.work)?;
        let new = &mut work.new;
        let (skipped, callable) = self.candidates.split_at_mut(self.skipped.len());
        let [first, others @ ..] = callable else {
            return Err(without_candidate(None, None));
        };
        new.provider.clone_from(&first.model.provider);
        new.model.clone_from(&first.model.id);
        new.pricing = first.model.pinned_prices();
        new.parameters.clone_from(&first.parameters);
        new.hold = hold;
        work.call = first.call.take();
        if let Some(route) = &mut new.route {
            let next = others.iter().map(|other| NextCandidate {
                provider: other.model.provider.clone(),
                model: other.model.id.clone(),
                pricing: other.model.pinned_prices(),
                ceiling: other.ceiling.hold(),
                parameters: other.parameters.clone(),
            });
            route.next = next.collect();
            route.ceiling = first.ceiling.hold();
            route.dropped.clone_from(&self.dropped);
            for (candidate, reason) in skipped.iter().zip(&self.skipped) {
                let message = match reason {
                    MoveReason::CircuitOpen => CIRCUIT_OPEN,
                    _ => "the provider is at its concurrency limit on this server",
                };
                let dropped = drop_of(candidate.model, reason.as_str(), message.to_owned());
                route.dropped.push(dropped);
            }
        }
        let calls = others.iter_mut().filter_map(|other| other.call.take());
        lock(&work.fallbacks).calls = calls.collect();
        Ok(())
    }

    /// Takes the candidates back from the work of a refused hold, for another try.
    pub(super) fn take_back(&mut self) -> Result<()> {
        let work = unshared(&mut self.work)?;
        let calls = work.call.take().into_iter();
        let calls = calls.chain(mem::take(&mut lock(&work.fallbacks).calls));
        let lent = self.candidates.iter_mut().skip(self.skipped.len());
        for (candidate, call) in lent.zip(calls) {
            candidate.call = Some(call);
        }
        self.skipped.clear();
        Ok(())
    }
}

/// Returns the error if no candidate is left. `soonest`: time until the first circuit's probe.
fn without_candidate(refusal: Option<ServiceError>, soonest: Option<Duration>) -> ServiceError {
    match (refusal, soonest) {
        (Some(short @ ServiceError::CreditsShort(_)), _) => short,
        (_, Some(soonest)) => ServiceError::NoCandidate(soonest),
        (Some(refusal), None) => refusal,
        (None, None) => ServiceError::Internal("a request has no candidate".to_owned()),
    }
}

fn names_model(error: &FieldError) -> bool {
    matches!(
        error.code,
        FieldCode::UnknownProvider | FieldCode::UnknownModel
    ) || error.param == "provider"
}

/// Drops candidates that may cost more than `most`. If all do, keeps the first one, whose refusal
/// is the response.
fn drop_above(most: Credits, code: &str, plans: &mut Vec<Plan<'_>>, dropped: &mut Vec<Dropped>) {
    let fits = |plan: &Plan<'_>| plan.ceiling.hold() <= most;
    let mut stays = !plans.iter().any(fits);
    plans.retain(|plan| {
        let ceiling = plan.ceiling.hold();
        if mem::take(&mut stays) || ceiling <= most {
            return true;
        }
        let message = format!("may cost {ceiling} credits, which is more than {most}");
        dropped.push(drop_of(plan.model, code, message));
        false
    });
}

/// Returns the code and message of the error that a request for one candidate would get.
fn explained(error: &ServiceError) -> (String, String) {
    let ServiceError::Invalid(errors) = error else {
        let code = match error {
            ServiceError::CreditsShort(_) => "insufficient_credits",
            ServiceError::NotCounted(_) => "not_counted",
            _ => "context_length_exceeded",
        };
        return (code.to_owned(), error.to_string());
    };
    let code = errors.first().map(|error| serde_json::json!(error.code));
    let code = code.as_ref().and_then(|code| code.as_str());
    (
        code.unwrap_or("invalid_request").to_owned(),
        error.to_string(),
    )
}

fn drop_of(model: &Model, code: &str, message: String) -> Dropped {
    Dropped {
        provider: model.provider.clone(),
        model: model.id.clone(),
        code: code.to_owned(),
        message,
    }
}
