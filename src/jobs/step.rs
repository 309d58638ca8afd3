//! One step of a generation, and its outcome.

use std::{ops::Deref, panic::AssertUnwindSafe, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::FutureExt as _;
use serde::Deserialize as _;
use serde_json::Value;

use super::{Call, Ended, Runner, RunningGuard, running::Stopped};
use crate::{
    domain::{
        credits::Credits,
        generation::{Failure, FailureCode, Modality, Output},
        pricing::{Bill, TextPrices},
        route::MoveReason,
        usage::TextUsage,
    },
    offload::for_account,
    providers::{ProviderError, ProviderErrorKind},
    store::{
        generations::{Completion, Outcome},
        jobs::Job,
    },
};

/// The wait before the next step.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wait {
    Poll,
    /// Until the next poll of a running task. The adapter may have a shorter interval.
    Task,
    /// After a failed poll or download.
    Failure,
}

pub(super) enum Step {
    Finished {
        outcome: Box<Outcome>,
        request_id: Option<String>,
    },
    Retry {
        /// 0 to 100, where the provider reports it.
        progress: Option<u8>,
        wait: Wait,
    },
    /// As [`Self::Retry`], because our file storage failed; fails the job past its deadline.
    NotStored(Failure),
    /// The provider is known not to have started, and there are other candidates.
    Left(Box<LeftCandidate>),
    /// It was cancelled, or another process has ended it or taken it over.
    Cancelled,
    /// The lease is lost, or could not be verified.
    LeaseLost,
}

pub(super) struct LeftCandidate {
    pub reason: MoveReason,
    /// The call and its error; `None` if the provider was not called.
    pub call: Option<(DateTime<Utc>, ProviderError)>,
}

impl LeftCandidate {
    /// Returns the failure of a generation that cannot fall back.
    pub fn into_failure(self, job: &Job) -> Step {
        self.call
            .map_or_else(Step::interrupted, |(_, error)| Step::upstream(job, error))
    }
}

pub(super) enum Advanced {
    Ended(Ended),
    /// Not settled, or the outcome is unknown.
    Open,
    Moved,
}

impl Step {
    pub(super) fn left(reason: MoveReason, call: Option<(DateTime<Utc>, ProviderError)>) -> Self {
        Self::Left(Box::new(LeftCandidate { reason, call }))
    }

    pub(super) fn failed(failure: Failure) -> Self {
        Self::Finished {
            outcome: Box::new(Outcome::Failed(failure)),
            request_id: None,
        }
    }

    /// Completes a generation whose price was known in advance: the charge is the hold.
    pub(super) fn stored(
        job: &Job,
        output: Output,
        usage: Value,
        request_id: Option<String>,
    ) -> Self {
        Self::Finished {
            outcome: Box::new(Outcome::Completed(Completion {
                outputs: vec![output],
                list_cost: job.list_cost(&usage),
                usage,
                charged: job.held,
                ..Completion::default()
            })),
            request_id,
        }
    }

    pub(super) fn interrupted() -> Self {
        Self::failed(interrupted())
    }

    pub(super) fn no_provider(job: &Job) -> Self {
        tracing::error!(generation = %job.id, provider = %job.provider, "a provider has no adapter");
        let message = "the provider is no longer on this server";
        Self::failed(Failure::new(FailureCode::ProviderError, message))
    }

    /// Fails the generation with the provider's error.
    pub(super) fn upstream(job: &Job, error: ProviderError) -> Self {
        // Logged once, when the generation ends. The adapter has already logged a refused account.
        if error.kind != ProviderErrorKind::Account {
            tracing::warn!(provider = job.provider, model = job.model, %error, "a generation failed upstream");
        }
        Self::Finished {
            outcome: Box::new(Outcome::Failed(failure(&error))),
            request_id: error.request_id,
        }
    }

    /// Returns the step after a panic. It is unknown whether the provider received the call: an
    /// existing task is polled until its deadline, and nothing is submitted twice.
    fn panicked(job: &Job) -> Self {
        if job.remote_id.is_some() {
            return Self::retry();
        }
        let message = "the server failed during the call";
        Self::failed(Failure::new(FailureCode::Interrupted, message))
    }

    pub(super) const fn retry() -> Self {
        Self::Retry {
            progress: None,
            wait: Wait::Poll,
        }
    }

    pub(super) const fn under_way(progress: Option<u8>) -> Self {
        Self::Retry {
            progress,
            wait: Wait::Task,
        }
    }

    pub(super) const fn retry_later() -> Self {
        Self::Retry {
            progress: None,
            wait: Wait::Failure,
        }
    }
}

impl Job {
    /// Returns the cost of `usage` at the vendor's list prices; `None` if they are not stored.
    /// Usage above the hold costs more than the charge. A text whose cost overflows gets the
    /// maximum.
    pub(super) fn list_cost(&self, usage: &Value) -> Option<Credits> {
        let prices = self.list_prices.as_ref()?;
        if self.modality == Modality::Text {
            let prices = TextPrices::deserialize(prices).ok()?;
            let usage = TextUsage::deserialize(usage).ok()?;
            let (cost, _) = prices.charge(&usage, Credits::from_micros(i64::MAX));
            return Some(cost);
        }
        let bill = Bill::new(self.modality, prices, &self.parameters, usage)?;
        Some(bill.total)
    }
}

impl From<Stopped> for Step {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Cancelled => Self::Cancelled,
            Stopped::Interrupted => Self::interrupted(),
        }
    }
}

/// A generation of which this process takes a step.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub runner: &'a Runner,
    pub job: &'a Job,
    pub guard: &'a RunningGuard,
}

impl Deref for Run<'_> {
    type Target = Runner;

    fn deref(&self) -> &Runner {
        self.runner
    }
}

impl Runner {
    /// Returns the maximum delay of a rescheduled job.
    pub(super) fn longest_wait(&self) -> TimeDelta {
        TimeDelta::from_std(self.after_failure().mul_f64(1.25)).unwrap_or_default()
    }

    fn after_failure(&self) -> Duration {
        self.0.settings.poll_interval * 2
    }
}

impl Run<'_> {
    /// Takes the next step and stores its outcome. `call`: `None` if the row describes no call.
    pub(super) async fn advance(&self, call: Option<&Call>) -> Advanced {
        let job = self.job;
        let late = job.deadline_at.is_some_and(|at| at <= self.0.clock.now());
        let step = for_account(job.account_id, self.next(call, late));
        let step = AssertUnwindSafe(step).catch_unwind();
        let step = step.await.unwrap_or_else(|_panic| Step::panicked(job));
        let step = match step {
            // Not if a shutdown interrupted the last poll: the next worker repeats it.
            Step::Retry { .. } if late && !self.0.interrupt.is_cancelled() => self.expire().await,
            Step::NotStored(failure) if late => Step::failed(failure),
            Step::NotStored(_) => Step::retry_later(),
            step => step,
        };
        match step {
            Step::Finished {
                outcome,
                request_id,
            } => match self.finish(*outcome, request_id).await {
                Some(ended) => Advanced::Ended(ended),
                None => Advanced::Open,
            },
            Step::Retry { progress, wait } => {
                self.reschedule(progress, wait).await;
                Advanced::Open
            }
            Step::Left(left) => self.leave_candidate(*left).await,
            // `NotStored` was replaced above.
            Step::Cancelled | Step::LeaseLost | Step::NotStored(_) => Advanced::Open,
        }
    }

    async fn next(&self, call: Option<&Call>, late: bool) -> Step {
        match call {
            // Poll once more: the task may have completed while no server could poll it.
            _ if late && !self.has_task() => Step::retry(),
            None => self.unreadable().await,
            Some(Call::Text(work)) => self.text_step(work).await,
            Some(Call::Image(work)) => self.image_step(work).await,
            Some(Call::Video(work)) => self.video_step(work).await,
            Some(Call::Speech(call)) => self.speech_step(call).await,
        }
    }

    /// Whether there is a task that this server can poll.
    fn has_task(&self) -> bool {
        let videos = &self.0.providers.video;
        self.job.remote_id.is_some() && videos.contains_key(&self.job.provider)
    }

    async fn unreadable(&self) -> Step {
        let job = self.job;
        tracing::error!(generation = %job.id, parameters = %job.parameters, "a job's row cannot be read");
        self.cancel_task(&job.provider, job.remote_id.as_deref())
            .await;
        let message = "the job could not be read";
        Step::failed(Failure::new(FailureCode::ProviderError, message))
    }

    pub(super) async fn finish(
        &self,
        outcome: Outcome,
        request_id: Option<String>,
    ) -> Option<Ended> {
        let stored_files = matches!(&outcome, Outcome::Completed(done) if !done.outputs.is_empty());
        let (of, attempts) = (
            (self.job.account_id, self.job.id),
            self.guard.handle.attempts(),
        );
        let settlement = self.settlement(of, outcome, attempts, request_id);
        let settled = self.settle(settlement).await;
        if stored_files && settled.as_ref().is_some_and(Ended::failed) {
            // The generation has ended elsewhere, so the files just stored have no owner. If the
            // end is unknown the files stay, because they may have been paid for.
            self.discard_files(self.job.id).await;
        }
        settled
    }

    async fn reschedule(&self, progress: Option<u8>, wait: Wait) {
        let job = self.job;
        let video = self.0.providers.video.get(&job.provider);
        let wait = match wait {
            Wait::Poll => self.0.settings.poll_interval,
            Wait::Task => video
                .and_then(|video| video.poll_interval())
                .map_or(self.0.settings.poll_interval, |own| {
                    own.min(self.0.settings.poll_interval)
                }),
            Wait::Failure => self.after_failure(),
        };
        // Jitter of up to a quarter, so that many jobs do not poll at the same time.
        let jitter: [u8; 1] = crate::domain::token::random().unwrap_or([128]);
        let wait = wait.mul_f64(0.75 + f64::from(jitter[0]) / 512.0);
        let next = self.0.clock.now() + TimeDelta::from_std(wait).unwrap_or_default();
        let progress = progress.map(|p| i16::from(p.min(100)));
        let (store, instance) = (&self.0.store, self.0.instance);
        let releasing = store.release_job(job.account_id, job.id, instance, progress, next);
        match releasing.await {
            Ok(_) => self.0.wakeups.jobs.ring_at(next),
            // The row stays with this process; the sweep finds that it has no worker.
            Err(error) => {
                tracing::warn!(generation = %job.id, %error, "could not reschedule a job");
            }
        }
    }

    async fn expire(&self) -> Step {
        let job = self.job;
        if job.remote_id.is_some() && !self.has_task() {
            tracing::error!(generation = %job.id, provider = job.provider, "a task expired because its provider is not on this server");
        }
        self.cancel_task(&job.provider, job.remote_id.as_deref())
            .await;
        let message = "the generation was not finished by its deadline";
        Step::failed(Failure::new(FailureCode::Expired, message))
    }
}

pub(super) fn interrupted() -> Failure {
    let message = "the server stopped during the call";
    Failure::new(FailureCode::Interrupted, message)
}

/// Replaces U+0000, which Postgres text cannot store.
pub(super) fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

pub(super) fn failure(error: &ProviderError) -> Failure {
    let code = match error.kind {
        ProviderErrorKind::Rejected => FailureCode::ProviderRejected,
        ProviderErrorKind::ContextLength => FailureCode::ContextLengthExceeded,
        ProviderErrorKind::ContentPolicy => FailureCode::ContentPolicy,
        ProviderErrorKind::Timeout => FailureCode::ProviderTimeout,
        ProviderErrorKind::Overloaded => FailureCode::ProviderOverloaded,
        ProviderErrorKind::Account | ProviderErrorKind::Failed => FailureCode::ProviderError,
    };
    Failure {
        retry_after: error.retry_after,
        ..Failure::new(code, error.message())
    }
}
