//! The workers claim due jobs, take one step of each, and reschedule them.

use futures_util::FutureExt as _;

use super::{Call, Runner, running::Stopped, step::Run, wakeups::RETRY_PAUSE};
use crate::{
    memory,
    store::{
        StoreError,
        jobs::{AccountQuota, Job},
    },
};

impl Runner {
    pub fn has_free_worker(&self) -> bool {
        self.0.quota.free() > 0
    }

    /// Claims and starts jobs; never returns.
    pub async fn work(&self) {
        loop {
            match self.work_step().await {
                Ok(_) => self.0.wakeups.jobs.rung(&self.0.clock).await,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "jobs cannot be taken"
                    );
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Claims due jobs for the free workers once and starts them. Returns the number claimed.
    pub async fn work_step(&self) -> Result<usize, StoreError> {
        if self.is_draining() {
            return Ok(0);
        }
        if !self.has_free_worker() {
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
        // The next claim skips accounts at their quota, so it finds jobs of other accounts behind
        // theirs, however many these are. Each claim but the last fills an account's quota, so
        // there are few.
        while self.has_free_worker() {
            let free = self.0.quota.free();
            let limit = i64::try_from(free).unwrap_or(i64::MAX);
            let quota = AccountQuota {
                most: i64::try_from(self.0.quota.per_key()).unwrap_or(i64::MAX),
                taken: self.0.quota.held(),
            };
            let store = &self.0.store;
            let jobs = store
                .claim_jobs(self.0.instance, limit, &providers, &quota, now)
                .await?;
            claimed += jobs.len();
            let more = jobs.len() == free || quota.is_filled_by(&jobs);
            for job in jobs {
                self.run_job(job);
            }
            if !more {
                break;
            }
        }
        drop(claims);
        Ok(claimed)
    }

    /// Takes a claimed job's next step in its own task.
    fn run_job(&self, job: Job) {
        if self.0.running.contains(job.id) {
            // An earlier step is still running here; the sweep releases the row afterwards.
            return;
        }
        let (guard, done) = self.0.running.reserve(job.id, false);
        guard.held();
        let (runner, worker) = (self.clone(), self.0.quota.admit(job.account_id));
        let span = tracing::info_span!("job", id = %job.id);
        self.spawn_in(span, async move {
            // A panic leaves the row without a worker; the sweep finds it.
            let step = async {
                memory::charge_to(job.account_id);
                let call = Call::of_job(&job);
                runner.step(&job, &guard).advance(call.as_ref()).await
            };
            let step = Box::pin(runner.0.settings.memory.for_request(step));
            let _ = std::panic::AssertUnwindSafe(step).catch_unwind().await;
            drop((guard, done, worker));
            runner.0.wakeups.jobs.ring();
        });
    }

    /// Asks the provider to cancel a job's task, if it has one.
    pub(super) async fn cancel_task(&self, provider: &str, task: Option<&str>) {
        let (Some(task), Some(provider)) = (task, self.0.providers.video.get(provider)) else {
            return;
        };
        // The job ends regardless of the outcome, even if the adapter panics.
        let cancelling = std::panic::AssertUnwindSafe(provider.cancel(task)).catch_unwind();
        if let Ok(Err(error)) = cancelling.await {
            tracing::warn!(task, %error, "the provider did not accept a cancel");
        }
    }
}

impl Run<'_> {
    /// Runs a provider call unless the job is cancelled or the process must stop.
    pub(super) async fn unless_stopped<T>(
        &self,
        call: impl Future<Output = T>,
    ) -> Result<T, Stopped> {
        tokio::select! {
            biased;
            answer = call => Ok(answer),
            () = self.guard.handle.cancel.cancelled() => Err(Stopped::Cancelled),
            () = self.0.interrupt.cancelled() => Err(Stopped::Interrupted),
        }
    }
}
