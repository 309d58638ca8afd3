//! The workers: claim due jobs, take one step each, and put them back.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument as _;

use super::{MetricLabels, Runner, RunningGuard, running};
use crate::{
    domain::{
        generation::{Failure, FailureCode, Generation, Status},
        ids::GenerationId,
    },
    store::{
        StoreError,
        generations::{HoldOutcome, NewGeneration, Outcome, Settlement},
        jobs::{Job, Share},
    },
};

/// The longest wait between two looks for due jobs: other replicas' jobs wake nobody here.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long after an unanswered opening its row may still appear.
const UNANSWERED: Duration = Duration::from_secs(30);

impl Runner {
    /// Opens a job and lets a worker take it. In a task of its own, so that a caller who hangs
    /// up leaves no half of it.
    pub async fn start_job(&self, new: NewGeneration) -> Result<HoldOutcome, StoreError> {
        let (runner, (done, verdict)) = (self.clone(), tokio::sync::oneshot::channel());
        self.spawn(async move {
            let opened = runner.open(&new).await;
            runner.0.wake.notify_one();
            let unknown = opened.is_err();
            // Whoever asked may be gone; the job is there.
            let _ = done.send(opened);
            if unknown {
                runner.end_unanswered(&new.record()).await;
            }
        });
        verdict.await.unwrap_or_else(|_| {
            Err(StoreError::Corrupt(
                "an opening ended without a verdict".to_owned(),
            ))
        })
    }

    /// Ends a job whose opening was answered with an error, although the row may have been
    /// made: nobody must pay for what they were told had failed. A statement that was cut off
    /// may still be carried out for as long as statements may run.
    async fn end_unanswered(&self, record: &Generation) {
        let (id, about) = (record.id, MetricLabels::from(record));
        let until = tokio::time::Instant::now() + UNANSWERED;
        while tokio::time::Instant::now() < until && !self.0.interrupt.is_cancelled() {
            let message = "the database went away while the request was made";
            let failure = Failure::new(FailureCode::Interrupted, message);
            let finish = Settlement {
                instance: None,
                ..self.finish(id, Outcome::Failed(failure), None, None)
            };
            if let Ok(true) = self.end(&about, &finish).await {
                self.0.running.cancel(id);
                self.cancel_upstream(id).await;
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Whether a worker is free.
    pub fn has_free_worker(&self) -> bool {
        self.0.busy.load(Ordering::Acquire) < self.0.worker_count
    }

    /// Waits until a job may be due.
    pub async fn due(&self) {
        tokio::select! {
            () = self.0.wake.notified() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }

    /// One round: claims due jobs for the free workers and sets these to work. Answers how
    /// many were claimed.
    pub async fn work_step(&self) -> Result<usize, StoreError> {
        if self.is_draining() {
            return Ok(0);
        }
        let mut permits: Vec<OwnedSemaphorePermit> = Vec::new();
        while let Ok(permit) = Arc::clone(&self.0.workers).try_acquire_owned() {
            permits.push(permit);
        }
        if permits.is_empty() {
            return Ok(0);
        }
        let claims = self.0.claims.lock().await;
        if self.is_draining() {
            return Ok(0);
        }
        let now = self.0.clock.now();
        let (video, speech) = (&self.0.providers.video, &self.0.providers.speech);
        let providers: Vec<String> = video.keys().chain(speech.keys()).cloned().collect();
        let mut claimed = 0;
        // An account that has its share is passed over in the next claim, so that the jobs of
        // others behind its own are found, however many these are. Each claim but the last
        // gives an account its full share, so there are few.
        while !permits.is_empty() {
            let limit = i64::try_from(permits.len()).unwrap_or(i64::MAX);
            let share = Share {
                most: i64::try_from(self.0.quota.per_key()).unwrap_or(i64::MAX),
                taken: self.0.quota.held(),
            };
            let store = &self.0.store;
            let jobs = store
                .claim_jobs(self.0.instance, limit, &providers, &share, now)
                .await?;
            claimed += jobs.len();
            let more = jobs.len() == permits.len() || share.is_filled_by(&jobs);
            for job in jobs {
                self.work_on(job, permits.pop());
            }
            if !more {
                break;
            }
        }
        drop(claims);
        Ok(claimed)
    }

    /// Takes a claimed job's next step, in a task of its own.
    fn work_on(&self, job: Job, permit: Option<OwnedSemaphorePermit>) {
        if self.0.running.contains(job.id) {
            // An earlier step of it has not ended here; the sweep passes it on afterwards.
            return;
        }
        let (slot, done) = self.0.running.reserve(job.id, false);
        slot.opened();
        let (runner, worker) = (self.clone(), self.0.quota.admit(job.account_id));
        self.0.busy.fetch_add(1, Ordering::AcqRel);
        let span = tracing::info_span!("job", id = %job.id);
        self.spawn(
            async move {
                // A panic leaves the row without a worker; the sweep finds it.
                let step = std::panic::AssertUnwindSafe(runner.advance(&job, &slot));
                let _ = step.catch_unwind().await;
                drop((slot, done, permit, worker));
                runner.0.busy.fetch_sub(1, Ordering::AcqRel);
                runner.0.wake.notify_one();
            }
            .instrument(span),
        );
    }

    /// Settles a job's end, however long the database is away. Answers how it ended, which
    /// somebody else may have decided; `None` when that is not known.
    pub(super) async fn settle_job(&self, job: &Job, finish: Settlement) -> Option<Status> {
        let settled = self.settle(job.record(), finish).await;
        settled.map(|record| record.status)
    }

    /// Asks the provider to stop the task of a generation that was cancelled.
    pub(super) async fn cancel_upstream(&self, id: GenerationId) {
        match self.0.store.cancelled_job(id).await {
            Ok(Some(job)) => self.cancel_task(&job).await,
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(generation = %id, %error, "the provider was not told of a cancel");
            }
        }
    }

    /// Asks the provider to stop a job's task, where there is one.
    pub(super) async fn cancel_task(&self, job: &Job) {
        let provider = self.0.providers.video.get(&job.provider);
        let (Some(task), Some(provider)) = (&job.remote_id, provider) else {
            return;
        };
        // The job ends whatever becomes of this, a defect of the adapter included.
        let told = std::panic::AssertUnwindSafe(provider.cancel(task)).catch_unwind();
        if let Ok(Err(error)) = told.await {
            tracing::warn!(generation = %job.id, %error, "the provider did not take a cancel");
        }
    }

    /// Runs a provider's call unless the process must end.
    pub(super) async fn unless_interrupted<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            answer = call => Some(answer),
            () = self.0.interrupt.cancelled() => None,
        }
    }

    /// Runs a provider's call unless the job is cancelled or the process must end.
    pub(super) async fn unless_stopped<T>(
        &self,
        slot: &RunningGuard,
        call: impl Future<Output = T>,
    ) -> Result<T, running::Stopped> {
        tokio::select! {
            biased;
            answer = call => Ok(answer),
            () = slot.cancel.cancelled() => Err(running::Stopped::Cancelled),
            () = self.0.interrupt.cancelled() => Err(running::Stopped::Interrupted),
        }
    }
}
