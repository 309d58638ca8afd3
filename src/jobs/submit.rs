//! Submits calls. Retries only if the provider is known not to have started.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    moves::{is_about_input, is_lost, reason_to_move},
    running::Stopped,
    step::{Run, Step},
};
use crate::{
    domain::route::MoveReason,
    providers::{ProviderError, ProviderPermit},
};

/// Retry policy of submissions.
#[derive(Debug, Clone, Copy)]
pub struct SubmitSettings {
    /// Maximum number of submissions, including the first.
    pub attempts: u32,
    /// Maximum time between the first submission and the start of a retry.
    pub window: Duration,
    /// Backoff before the first retry, doubled for each further one. A longer Retry-After of the
    /// provider takes precedence.
    pub retry_base: Duration,
}

#[derive(Debug)]
pub(super) struct Submissions {
    settings: SubmitSettings,
    since: Instant,
    pub(super) made: u32,
}

impl Submissions {
    fn begin(settings: SubmitSettings) -> Self {
        Self {
            settings,
            since: Instant::now(),
            made: 0,
        }
    }

    /// Returns the backoff before the next submission; `None` if there must be none.
    fn wait_after(&self, error: &ProviderError) -> Option<Duration> {
        if !error.not_started || self.made >= self.settings.attempts {
            return None;
        }
        let doubled = self.settings.retry_base * 2_u32.saturating_pow(self.made.saturating_sub(1));
        // Half of it is jitter, so that many callers do not retry at the same time.
        let jitter: [u8; 1] = crate::domain::token::random().unwrap_or([128]);
        let backoff = doubled.mul_f64(0.5 + f64::from(jitter[0]) / 512.0);
        let wait = error
            .retry_after
            .map_or(backoff, |named| named.max(backoff));
        (self.since.elapsed() + wait < self.settings.window).then_some(wait)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Submission {
    /// Work of the process that created the row. It needs no stored intent: no other submits it.
    Once,
    /// As [`Self::Once`], but the call itself handles a cancel.
    OfText,
    /// A job that another process may continue: the intent to submit is stored first.
    OfJob,
    /// As [`Self::OfJob`], but a cancel does not interrupt the call: without the task's id the
    /// provider could not be asked to stop.
    OfTask,
}

impl Run<'_> {
    /// Waits for the account's turn and acquires a permit for a call. Returns `None` after a poll
    /// interval or at a shutdown, so that other jobs find a worker. Work of this process may wait
    /// until the end of the grace period.
    pub(super) async fn provider_permit(&self) -> Option<ProviderPermit> {
        let job = self.job;
        let acquiring = self.0.providers.acquire(&job.provider, job.account_id);
        let acquiring = tokio::time::timeout(self.0.settings.poll_interval, acquiring);
        let stop = match job.deadline_at {
            Some(_) => &self.0.stopping,
            None => &self.0.interrupt,
        };
        let acquired = stop.run_until_cancelled(acquiring).await;
        acquired?.ok()?
    }

    /// Submits until the provider has accepted the request or must not be called again. `Err`: the
    /// resulting step.
    pub(super) async fn submit<T, F>(
        &self,
        kind: Submission,
        call: impl Fn() -> F + Send,
    ) -> Result<T, Step>
    where
        F: Future<Output = Result<T, ProviderError>> + Send,
    {
        let (job, guard) = (self.job, self.guard);
        let mut submissions = Submissions::begin(self.0.settings.submit);
        self.admit()?;
        loop {
            let is_job = matches!(kind, Submission::OfJob | Submission::OfTask);
            if is_job && !self.store_intent(submissions.made).await {
                return Err(Step::LeaseLost);
            }
            guard.submitted();
            submissions.made += 1;
            let submitted_at = job.has_candidates().then(|| self.0.clock.now());
            let answer = match kind {
                Submission::OfText | Submission::OfTask => {
                    let answer = self.0.interrupt.run_until_cancelled(call()).await;
                    answer.ok_or(Stopped::Interrupted)?
                }
                Submission::Once | Submission::OfJob => self.unless_stopped(call()).await?,
            };
            let error = match answer {
                Ok(answer) => {
                    // A cancelled call may have ended without an answer.
                    if !guard.handle.cancel.is_cancelled() {
                        self.0.health.answered(&job.provider, &job.model);
                    }
                    return Ok(answer);
                }
                Err(error) => error,
            };
            let reason = reason_to_move(&error);
            if reason.is_some() {
                // A request counts once, however often it is retried.
                if submissions.made == 1 {
                    let now = self.0.clock.monotonic();
                    self.0.health.failed(&job.provider, &job.model, now);
                }
            } else if is_about_input(&error) {
                self.0.health.answered(&job.provider, &job.model);
            }
            let reason = reason.or_else(|| {
                (job.moves_on_unknown && is_lost(&error)).then_some(MoveReason::Unknown)
            });
            // Call another candidate at once instead of retrying this one.
            if let Some((reason, at)) = reason.zip(submitted_at) {
                return Err(Step::left(reason, Some((at, error))));
            }
            let is_open = || {
                job.candidates.is_some() && self.skipped_for(&job.provider, &job.model).is_some()
            };
            let Some(wait) = submissions.wait_after(&error).filter(|_| !is_open()) else {
                return Err(Step::upstream(job, error));
            };
            tracing::info!(generation = %job.id, provider = %job.provider, %error, ?wait, "retrying a submission");
            self.unless_stopped(tokio::time::sleep(wait)).await?;
        }
    }

    /// Stores the intent to submit before the call. Returns `false` if it must not be submitted.
    async fn store_intent(&self, made: u32) -> bool {
        let job = self.job;
        if self.0.interrupt.is_cancelled() {
            return false;
        }
        let attempts = job.attempts + i32::try_from(made).unwrap_or(i32::MAX);
        let (store, now) = (&self.0.store, self.0.clock.now());
        let intent = store.intend_submission(job, self.0.instance, attempts, now);
        match intent.await {
            Ok(still_ours) => still_ours,
            Err(error) => {
                // It is unknown whether it was stored; the sweep will read the row.
                tracing::warn!(generation = %job.id, %error, "could not store the intent to submit");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::ProviderErrorKind;

    #[test]
    fn only_what_was_not_started_is_repeated_and_not_for_long() {
        let settings = SubmitSettings {
            attempts: 3,
            window: Duration::from_secs(20),
            retry_base: Duration::from_millis(500),
        };
        let overloaded = || ProviderError::new(ProviderErrorKind::Overloaded, "").not_started();
        let mut submissions = Submissions::begin(settings);
        submissions.made = 1;
        assert!(submissions.wait_after(&overloaded()).unwrap() <= Duration::from_millis(500));
        let unknown = ProviderError::new(ProviderErrorKind::Timeout, "");
        assert_eq!(submissions.wait_after(&unknown), None);
        let mut patient = overloaded();
        patient.retry_after = Some(Duration::from_secs(7));
        assert_eq!(
            submissions.wait_after(&patient),
            Some(Duration::from_secs(7))
        );
        patient.retry_after = Some(Duration::from_mins(1));
        assert_eq!(submissions.wait_after(&patient), None);
        submissions.made = 3;
        assert_eq!(submissions.wait_after(&overloaded()), None);
    }
}
