//! Video: submits once, polls, downloads and stores.

use std::time::Duration;

use chrono::TimeDelta;
use serde_json::json;

use super::{
    VideoWork,
    files::{not_stored, output, unusable},
    running::Stopped,
    step::{Run, Step, storable},
    submit::Submission,
};
use crate::{
    domain::generation::{Failure, FailureCode, Output},
    media::{self, DownloadError, InvalidMedia, MediaKey, MediaKind},
    providers::{VideoCall, VideoOutput, VideoProvider, VideoStatus},
    store::{StoreError, jobs::Job},
};

/// Maximum size of a video in bytes.
const MAX_BYTES: u64 = 1 << 30;
/// How long after its submission a task may still be unknown to its provider.
const REPLICATION_LAG: TimeDelta = TimeDelta::seconds(30);
/// Maximum seconds by which a video may be shorter than requested.
const SHORTFALL: f64 = 1.0;
/// Attempts to store a task's id after the grace period has ended.
const STORE_TRIES_AT_END: u32 = 5;
/// Interval between attempts to store a task's id, which must not be lost.
const STORE_RETRY_INTERVAL: Duration = Duration::from_millis(200);

impl Run<'_> {
    /// Submits once, then polls until the file is available.
    pub(super) async fn video_step(&self, work: &VideoWork) -> Step {
        let job = self.job;
        let Some(provider) = self.0.providers.video.get(&job.provider) else {
            return Step::no_provider(job);
        };
        if job.remote_id.is_none() && job.submitted_at.is_some() {
            // An intent without a task: the outcome of the call is unknown.
            return Step::interrupted();
        }
        // Polls need no permit: there are at most as many as workers, and they must not wait for
        // new work.
        let _permit = match job.remote_id {
            Some(_) => None,
            None => match self.job_permit().await {
                Ok(permit) => Some(permit),
                Err(step) => return step,
            },
        };
        let task = job.remote_id.as_deref();
        let is_loading = task.is_none_or(|task| provider.poll_needs_inputs(task));
        let inputs = if is_loading { &work.inputs[..] } else { &[] };
        let (inputs, _memory) = match self.load_inputs(inputs).await {
            Ok(loaded) => loaded,
            // Nothing was submitted, or the task continues: the next worker starts over.
            Err(Step::Finished { .. }) if self.0.interrupt.is_cancelled() => return Step::retry(),
            Err(step) => return step,
        };
        let call = &VideoCall {
            inputs,
            ..work.call.clone()
        };
        if let Some(task) = &job.remote_id {
            let count = work.inputs.len();
            let polling = self.poll_video(provider.as_ref(), task, call, count);
            return match polling.await {
                Ok(step) | Err(step) => step,
            };
        }
        let submit = self.submit(Submission::OfTask, || provider.submit(call));
        match submit.await {
            Ok(task) => self.store_task(provider.as_ref(), &storable(&task)).await,
            Err(step) => step,
        }
    }

    /// Stores the task's id, however long the database is unavailable. Without the id, the paid
    /// work cannot be found again.
    async fn store_task(&self, provider: &dyn VideoProvider, task: &str) -> Step {
        let job = self.job;
        let mut tries_at_end = STORE_TRIES_AT_END;
        loop {
            let stored = self.0.store.store_task(job, self.0.instance, task).await;
            let error = match stored {
                Ok(true) => return Step::under_way(None),
                // Cancelled or ended during the submission: its result is not needed.
                Ok(false) => {
                    stop_task(job, provider, task).await;
                    return Step::LeaseLost;
                }
                Err(error) => error,
            };
            tracing::error!(generation = %job.id, %error, "could not store the provider's task id");
            if self.0.interrupt.is_cancelled() {
                tries_at_end -= 1;
            }
            if tries_at_end == 0 || !matches!(error, StoreError::Unavailable(_)) {
                stop_task(job, provider, task).await;
                let message = "the provider's task id could not be stored";
                return Step::failed(Failure::new(FailureCode::Interrupted, message));
            }
            tokio::time::sleep(STORE_RETRY_INTERVAL).await;
        }
    }

    async fn poll_video(
        &self,
        provider: &dyn VideoProvider,
        task: &str,
        call: &VideoCall,
        inputs: usize,
    ) -> Result<Step, Step> {
        let job = self.job;
        let stopped = |stopped: Stopped| match stopped {
            Stopped::Cancelled => Step::Cancelled,
            // The task continues; the next worker polls it again.
            Stopped::Interrupted => Step::retry(),
        };
        let polling = self.unless_stopped(provider.poll(task, call));
        let file = match polling.await.map_err(stopped)? {
            Ok(VideoStatus::Done(file)) => file,
            Ok(VideoStatus::Running { progress }) => return Ok(Step::under_way(progress)),
            Ok(VideoStatus::Failed(error)) => return Ok(Step::upstream(job, error)),
            Ok(VideoStatus::Gone) => {
                let since = job.submitted_at.unwrap_or(job.created_at);
                if self.0.clock.now() - since < REPLICATION_LAG {
                    return Ok(Step::retry());
                }
                let message = "the provider no longer knows the task";
                return Ok(Step::failed(Failure::new(FailureCode::Expired, message)));
            }
            Err(error) => {
                tracing::warn!(generation = %job.id, %error, "polling a task failed");
                return Ok(Step::retry_later());
            }
        };
        let fetching = self.unless_stopped(self.fetch_video(call.duration, file));
        let output = fetching.await.map_err(stopped)??;
        let mut usage = json!({ "seconds": call.duration });
        if inputs > 0 {
            usage["input_images"] = inputs.into();
        }
        Ok(Step::stored(job, output, usage, Some(task.to_owned())))
    }

    async fn fetch_video(&self, seconds: u32, file: VideoOutput) -> Result<Output, Step> {
        let job = self.job;
        let (url, header) = match file {
            VideoOutput::Bytes(bytes) => {
                let stored = self.store_file(job.id, 0, MediaKind::Mp4, bytes).await;
                return stored.map_err(Step::failed);
            }
            VideoOutput::Url { url, header } => (url, header),
        };
        let storage_failure = |error: media::MediaStoreError| storage_failure(job, &error);
        let spool = self.0.media.spool().await.map_err(storage_failure)?;
        let downloader = &self.0.downloader;
        let fetching = downloader.to_file(&url, header, MAX_BYTES, spool);
        let file = fetching.await.map_err(|error| match error {
            DownloadError::Store(error) => storage_failure(error),
            error if error.is_final() => Step::failed(unusable(job.id, &error)),
            error => {
                tracing::warn!(generation = %job.id, %error, "a download failed and will be retried");
                Step::retry_later()
            }
        })?;
        let checked = file.inspect(&[MediaKind::Mp4]).await;
        let info = checked
            .map_err(storage_failure)?
            .map_err(|error| Step::failed(unusable(job.id, &error)))?;
        if info
            .seconds
            .is_some_and(|s| s + SHORTFALL < f64::from(seconds))
        {
            let error = InvalidMedia::Damaged("it is too short");
            return Err(Step::failed(unusable(job.id, &error)));
        }
        let key = MediaKey::new(job.id, 0, MediaKind::Mp4);
        let storing = self.0.media.put_file(&key, file);
        storing.await.map_err(storage_failure)?;
        Ok(output(&key, &info))
    }
}

/// Cancels a task whose result is not needed.
async fn stop_task(job: &Job, provider: &dyn VideoProvider, task: &str) {
    if let Err(error) = provider.cancel(task).await {
        tracing::warn!(generation = %job.id, %error, "could not cancel an orphaned provider task");
    }
}

/// Returns the step after our own storage failed. The provider still has the file and the job has
/// time until its deadline, so it is retried. A full disk fails the job at once: space may never be
/// freed, and each retry would fill the disk again.
fn storage_failure(job: &Job, error: &media::MediaStoreError) -> Step {
    let failure = not_stored(job.id, error);
    if matches!(error, media::MediaStoreError::NoSpace(_)) {
        return Step::failed(failure);
    }
    Step::NotStored(failure)
}
