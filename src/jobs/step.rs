//! One step of a job: what its row says is to be done next, and what came of it.

use std::panic::AssertUnwindSafe;

use chrono::TimeDelta;
use futures_util::FutureExt as _;

use super::{
    Runner, RunningGuard,
    task::{failure, log_failure},
};
use crate::{
    domain::generation::{Failure, FailureCode, Modality, Status},
    providers::ProviderError,
    store::{generations::Outcome, jobs::Job},
};

/// Intervals to wait after a look or a download that failed.
const AFTER_TROUBLE: f64 = 2.0;

/// What a step came to.
pub(super) enum Step {
    /// The job has ended.
    Finished {
        outcome: Box<Outcome>,
        /// The provider's id of the request.
        request_id: Option<String>,
    },
    /// It is to be looked at again.
    Retry {
        /// How far it is, where the provider tells.
        progress: Option<u8>,
        /// In how many intervals.
        intervals: f64,
    },
    /// As [`Self::Retry`], because the file storage failed; past the deadline that is the end.
    NotStored(Failure),
    /// It is no longer this worker's: cancelled, or taken over.
    LeaseLost,
}

impl Step {
    pub(super) fn failed(failure: Failure) -> Self {
        Self::Finished {
            outcome: Box::new(Outcome::Failed(failure)),
            request_id: None,
        }
    }

    pub(super) fn interrupted() -> Self {
        let message = "the server stopped during the call";
        Self::failed(Failure::new(FailureCode::Interrupted, message))
    }

    /// The end that a provider's error is.
    pub(super) fn upstream(job: &Job, error: ProviderError) -> Self {
        log_failure(&job.provider, &job.model, &error);
        Self::Finished {
            outcome: Box::new(Outcome::Failed(failure(&error))),
            request_id: error.request_id,
        }
    }

    /// What a defect of ours in a step comes to. Whether a call was answered is not known
    /// then: what has a task is looked at again until its deadline, and nothing is submitted
    /// twice.
    fn panicked(job: &Job) -> Self {
        if job.remote_id.is_some() {
            return Self::again();
        }
        let message = "the server failed during the call";
        Self::failed(Failure::new(FailureCode::Interrupted, message))
    }

    pub(super) const fn after_trouble() -> Self {
        Self::Retry {
            progress: None,
            intervals: AFTER_TROUBLE,
        }
    }

    pub(super) const fn again() -> Self {
        Self::Retry {
            progress: None,
            intervals: 1.0,
        }
    }
}

impl Runner {
    /// Takes a job's next step and writes down what came of it.
    pub(super) async fn advance(&self, job: &Job, slot: &RunningGuard) {
        let late = job.deadline_at.is_some_and(|at| at <= self.0.clock.now());
        let step = AssertUnwindSafe(self.next(job, slot, late)).catch_unwind();
        let step = step.await.unwrap_or_else(|_panic| Step::panicked(job));
        let step = match step {
            // Not where a stop cut the last look short: the next worker takes it.
            Step::Retry { .. } if late && !self.0.interrupt.is_cancelled() => {
                self.expire(job).await
            }
            Step::NotStored(failure) if late => Step::failed(failure),
            Step::NotStored(_) => Step::after_trouble(),
            step => step,
        };
        match step {
            Step::Finished {
                outcome,
                request_id,
            } => self.end_job(job, *outcome, request_id).await,
            Step::Retry {
                progress,
                intervals,
            } => self.reschedule(job, progress, intervals).await,
            // The latter has become one of the others above.
            Step::LeaseLost | Step::NotStored(_) => {}
        }
    }

    async fn next(&self, job: &Job, slot: &RunningGuard, late: bool) -> Step {
        match job.modality {
            // One last look at a task that may have been done while nobody could look.
            Modality::Video if !late || job.remote_id.is_some() => self.video_step(job, slot).await,
            _ if late => Step::again(),
            _ => self.speech_step(job, slot).await,
        }
    }

    async fn end_job(&self, job: &Job, outcome: Outcome, request_id: Option<String>) {
        let completed = matches!(outcome, Outcome::Completed { .. });
        // Submissions were counted in the row, with each intent.
        let finish = self.finish(job.id, outcome, None, request_id);
        let settled = self.settle_job(job, finish).await;
        if completed && settled == Some(Status::Failed) {
            // Somebody ended it meanwhile: what was just stored is nobody's. Where the end is
            // not known the files stay; they may have been paid for.
            self.discard_files(job.id).await;
        }
    }

    async fn reschedule(&self, job: &Job, progress: Option<u8>, intervals: f64) {
        // A quarter more or less, so that many jobs do not ask together.
        let jitter: [u8; 1] = crate::domain::token::random().unwrap_or([128]);
        let wait = self.intervals(intervals * (0.75 + f64::from(jitter[0]) / 512.0));
        let next = self.0.clock.now() + wait;
        let progress = progress.map(|p| i16::from(p.min(100)));
        let (store, instance) = (&self.0.store, self.0.instance);
        if let Err(error) = store.release_job(job.id, instance, progress, next).await {
            // The row stays with this process; the sweep finds it without a worker.
            tracing::warn!(generation = %job.id, %error, "a job could not be put back");
        }
    }

    /// The longest that a job is ever put back for.
    pub(super) fn longest_wait(&self) -> TimeDelta {
        self.intervals(AFTER_TROUBLE * 1.25)
    }

    fn intervals(&self, n: f64) -> TimeDelta {
        TimeDelta::from_std(self.0.poll_interval.mul_f64(n)).unwrap_or_default()
    }

    async fn expire(&self, job: &Job) -> Step {
        self.cancel_task(job).await;
        let message = "the generation was not finished by its deadline";
        Step::failed(Failure::new(FailureCode::Expired, message))
    }
}
