//! Falls back to the next candidate of a generation.
//!
//! A generation falls back only if its provider is known not to have started. The move is one
//! statement on its row. If a server dies before or after it, the row tells the sweep whether the
//! generation can be continued.

use std::{future::pending, pin::pin, time::Duration};

use super::{
    Call, Circuit, Ended, Fallbacks, Runner, RunningGuard, Work,
    cancel::cancelled,
    step::{Advanced, LeftCandidate, Run, Step, failure, interrupted},
};
use crate::{
    domain::{
        generation::{Failure, FailureCode, Modality},
        lock::lock,
        pricing::LIST,
        route::MoveReason,
    },
    providers::{ProviderError, ProviderErrorKind, ProviderPermit},
    store::{
        generations::{Left, NextCandidate, Outcome},
        jobs::Job,
    },
};

/// Returns why another candidate may be called after an error; `None` if the provider may have
/// started or the request itself is at fault.
pub(super) fn reason_to_move(error: &ProviderError) -> Option<MoveReason> {
    match error.kind {
        ProviderErrorKind::Account if error.is_refused => Some(MoveReason::AccountRefused),
        _ if error.is_refused => Some(MoveReason::ModelNotFound),
        ProviderErrorKind::Overloaded if error.not_started => Some(MoveReason::Overloaded),
        _ if error.not_started => Some(MoveReason::Unreachable),
        _ => None,
    }
}

/// Whether the provider may have started but its answer is lost.
pub(super) fn is_lost(error: &ProviderError) -> bool {
    !error.is_over_limit
        && matches!(
            error.kind,
            ProviderErrorKind::Timeout | ProviderErrorKind::Overloaded | ProviderErrorKind::Failed
        )
}

/// Whether a working provider refused the request itself.
pub(super) fn is_about_input(error: &ProviderError) -> bool {
    let refused = error.status.is_some_and(|at| (400..500).contains(&at));
    refused
        && matches!(
            error.kind,
            ProviderErrorKind::Rejected
                | ProviderErrorKind::ContextLength
                | ProviderErrorKind::ContentPolicy
        )
}

impl Runner {
    /// Returns how long to skip a candidate because its circuit is open; `None` if it may be called
    /// now.
    pub fn skipped_for(&self, provider: &str, model: &str) -> Option<Duration> {
        let now = self.0.clock.monotonic();
        self.0.health.skipped_for(provider, model, now)
    }

    /// Returns the expected time to the first token. For a model that was not measured recently:
    /// zero if a stream would measure it and no other is doing so, otherwise the maximum.
    pub fn expected_first_token(&self, provider: &str, model: &str, streams: bool) -> Duration {
        let now = self.0.clock.monotonic();
        let health = &self.0.health;
        health.expected_first_token(provider, model, streams, now)
    }

    /// Returns the models that this server skips if there are other candidates.
    pub fn open_circuits(&self) -> Vec<Circuit> {
        self.0.health.open(self.0.clock.monotonic())
    }

    /// Runs a generation of this process to its end, candidate by candidate. `permit`: for the call
    /// of the first candidate.
    pub(super) async fn run(
        &self,
        work: &Work,
        permit: ProviderPermit,
        guard: &RunningGuard,
    ) -> Option<Ended> {
        let job = Job::from(&work.new);
        let call = work.call.as_ref();
        let advanced = match (&work.new.route, call) {
            (Some(route), Some(call)) => {
                // Boxed, because few requests have several candidates.
                Box::pin(self.run_route(job, work, (call, permit), &route.next, guard)).await
            }
            _ => self.step(&job, guard).advance(call).await,
        };
        match advanced {
            Advanced::Ended(ended) => Some(ended),
            Advanced::Open | Advanced::Moved => None,
        }
    }

    pub(super) fn step<'a>(&'a self, job: &'a Job, guard: &'a RunningGuard) -> Run<'a> {
        Run {
            runner: self,
            job,
            guard,
        }
    }

    async fn run_route(
        &self,
        mut job: Job,
        work: &Work,
        (call, permit): (&Call, ProviderPermit),
        others: &[NextCandidate],
        guard: &RunningGuard,
    ) -> Advanced {
        let mut advanced = self.step(&job, guard).advance_first(work, call).await;
        drop(permit);
        for next in others {
            let Advanced::Moved = advanced else { break };
            if let Call::Text(text) = call {
                text.call.release();
            }
            let next_call = lock(&work.fallbacks).calls.pop_front();
            let Some(call) = next_call else { break };
            job = job.moved_to(next);
            guard.moved_to(next);
            let run = self.step(&job, guard);
            advanced = match run.job_permit().await {
                _ if guard.handle.cancel.is_cancelled() => run.fail(cancelled()).await,
                Ok(_permit) => run.advance_first(work, &call).await,
                Err(Step::Left(left)) => run.leave_candidate(*left).await,
                Err(_) if self.0.interrupt.is_cancelled() => run.fail(interrupted()).await,
                Err(_) => {
                    let message = "the provider is at its concurrency limit on this server";
                    let failure = Failure::new(FailureCode::ProviderOverloaded, message);
                    run.fail(failure).await
                }
            };
        }
        advanced
    }
}

impl Run<'_> {
    /// Advances a generation that may fall back. Drops the calls of the other candidates as soon as
    /// its provider has accepted it.
    async fn advance_first(&self, work: &Work, call: &Call) -> Advanced {
        let accepted = async {
            match call {
                // An answer may be lost at any time.
                Call::Text(text) if !self.job.moves_on_unknown => {
                    text.call.conversation.released().await;
                }
                _ => pending::<()>().await,
            }
        };
        let mut advancing = pin!(self.advance(Some(call)));
        tokio::select! {
            biased;
            advanced = &mut advancing => return advanced,
            () = accepted => *lock(&work.fallbacks) = Fallbacks::default(),
        }
        advancing.await
    }

    /// Acquires a permit for the call of a job. `Err`: the step if there is none.
    pub(super) async fn job_permit(&self) -> Result<ProviderPermit, Step> {
        let job = self.job;
        if !job.has_candidates() {
            return self.provider_permit().await.ok_or_else(Step::retry);
        }
        let permit = self.0.providers.try_acquire(&job.provider, job.account_id);
        permit.ok_or_else(|| Step::left(MoveReason::Busy, None))
    }

    /// Admits a call that follows at once. `Err`: the step if the candidate's circuit is open, or
    /// if only another server has its model.
    pub(super) fn admit(&self) -> Result<(), Step> {
        let job = self.job;
        let providers = &self.0.providers;
        let has_model = match job.modality {
            Modality::Video => (providers.video.get(&job.provider))
                .is_none_or(|provider| provider.has_model(&job.model)),
            Modality::Audio => (providers.speech.get(&job.provider))
                .is_none_or(|provider| provider.has_model(&job.model)),
            Modality::Text | Modality::Image => true,
        };
        if !has_model {
            return Err(Step::retry_later());
        }
        let now = self.0.clock.monotonic();
        if job.candidates.is_none() {
            return Ok(());
        }
        let Some(left) = self.0.health.admit(&job.provider, &job.model, now) else {
            return Ok(());
        };
        Err(if job.has_candidates() {
            Step::left(MoveReason::CircuitOpen, None)
        } else if job.deadline_at.is_some() {
            Step::retry_later()
        } else {
            let message = "the last candidate has failed several times within seconds";
            Step::failed(Failure {
                retry_after: Some(left),
                ..Failure::new(FailureCode::ProviderOverloaded, message)
            })
        })
    }

    /// Moves a generation to its next candidate. Fails the generation if it is unknown whether the
    /// move was stored: the provider has not started, so nothing is lost and nothing is submitted
    /// twice.
    pub(super) async fn leave_candidate(&self, left: LeftCandidate) -> Advanced {
        let job = self.job;
        let reason = left.reason;
        let (submitted_at, error) = left.call.unzip();
        let failure = match &error {
            _ if self.guard.handle.cancel.is_cancelled() => Some(cancelled()),
            Some(error) if self.0.interrupt.is_cancelled() => Some(failure(error)),
            _ => None,
        };
        if let Some(failure) = failure {
            return self.fail(failure).await;
        }
        let left = Left {
            reason,
            submitted_at,
            status: error.as_ref().and_then(|error| error.status),
            provider_request_id: error.as_ref().and_then(|error| error.request_id.clone()),
        };
        let (store, now) = (&self.0.store, self.0.clock.now());
        match store.move_on(job, self.0.instance, &left, now).await {
            Ok(true) => {
                tracing::info!(
                    generation = %job.id, provider = %job.provider, model = %job.model,
                    reason = reason.as_str(), error = error.map(tracing::field::display),
                    "a generation moved on to its next candidate"
                );
                self.0.metrics.moved(&job.provider, &job.model, reason);
                Advanced::Moved
            }
            // The generation has ended, or another process has taken it over.
            Ok(false) => Advanced::Open,
            Err(error) => {
                tracing::warn!(generation = %job.id, %error, "could not store a move");
                let message = "the database became unavailable while the provider was changed";
                let failure = Failure::new(FailureCode::Interrupted, message);
                self.fail(failure).await
            }
        }
    }

    async fn fail(&self, failure: Failure) -> Advanced {
        let ending = self.finish(Outcome::Failed(failure), None);
        ending.await.map_or(Advanced::Open, Advanced::Ended)
    }
}

impl Job {
    /// Returns the work for the next candidate, as the row describes it after the move.
    fn moved_to(self, next: &NextCandidate) -> Self {
        Self {
            provider: next.provider.clone(),
            model: next.model.clone(),
            parameters: next.parameters.clone(),
            list_prices: next.pricing.get(LIST).cloned(),
            held: next.ceiling,
            candidates: self.candidates.map(|others| others - 1),
            submitted_at: None,
            ..self
        }
    }
}
