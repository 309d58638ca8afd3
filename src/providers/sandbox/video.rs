//! Videos of the sandbox: a task that completes after a delay, and an MP4 derived from the call.
//!
//! The task id contains everything that a poll needs, so it is valid after a restart and on every
//! replica.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use uuid::{Builder, Uuid, Variant, Version};

use super::{
    Faults,
    edit::{Pictures, decoding_error},
    fault::Fault,
    film,
    picture::draw,
    seed::{Seed, failed, offloaded},
};
use crate::{
    domain::{
        clock::SharedClock,
        inputs::InputRole,
        pricing::Quality,
        token::{self, RandomError},
    },
    providers::{
        ProviderError, VideoCall, VideoOutput, VideoProvider, VideoStatus,
        media_call::inputs_with_role,
    },
};

/// Duration of a task without `[[slow:SECONDS]]`.
pub const USUAL_WORK: Duration = Duration::from_secs(1);

/// Short, because polls cost nothing here.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Clone)]
pub struct SandboxVideo {
    clock: SharedClock,
    work: Duration,
}

impl SandboxVideo {
    /// Tasks complete `work` after their submission, by `clock`.
    pub fn new(clock: SharedClock, work: Duration) -> Self {
        Self { clock, work }
    }
}

/// A parsed task id. It is a UUID of version 8 (custom): the time of submission in the first six
/// bytes, the fault in the low half of the seventh, the duration in the tenth to thirteenth, and
/// random bytes in the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Task {
    /// Submission, in milliseconds since 1970.
    at: u64,
    /// Duration in milliseconds.
    takes: u32,
    /// A fault at the end of the task: `[[fail]]` or `[[timeout]]`.
    fault: Option<Fault>,
}

impl Task {
    fn id(self) -> Result<String, RandomError> {
        let [r0, r1, r2] = token::random::<3>()?;
        let [_, _, a0, a1, a2, a3, a4, a5] = self.at.to_be_bytes();
        let [t0, t1, t2, t3] = self.takes.to_be_bytes();
        let fault = match self.fault {
            None => 0,
            Some(Fault::Timeout) => 2,
            Some(_) => 1,
        };
        let bytes = [
            a0, a1, a2, a3, a4, a5, fault, 0, 0, t0, t1, t2, t3, r0, r1, r2,
        ];
        let id = Builder::from_bytes(bytes)
            .with_version(Version::Custom)
            .with_variant(Variant::RFC4122);
        Ok(id.into_uuid().to_string())
    }

    fn of(id: &str) -> Option<Self> {
        let id = Uuid::try_parse(id).ok()?;
        let [a0, a1, a2, a3, a4, a5, fault, _, _, t0, t1, t2, t3, ..] = *id.as_bytes();
        Some(Self {
            at: u64::from_be_bytes([0, 0, a0, a1, a2, a3, a4, a5]),
            takes: u32::from_be_bytes([t0, t1, t2, t3]),
            fault: match fault & 0x0f {
                0 => None,
                1 => Some(Fault::Fail),
                2 => Some(Fault::Timeout),
                _ => return None,
            },
        })
        .filter(|_| id.get_version() == Some(Version::Custom))
    }

    /// Returns 0 to 99 percent, or `None` if it is done.
    fn progress(&self, now: DateTime<Utc>) -> Option<u8> {
        let takes = u64::from(self.takes);
        // The clock was set back.
        let now = u64::try_from(now.timestamp_millis()).unwrap_or_default();
        let past = now.saturating_sub(self.at);
        let percent = (past < takes).then(|| past * 100 / takes)?;
        u8::try_from(percent).ok()
    }
}

#[async_trait]
impl VideoProvider for SandboxVideo {
    /// Submits a task. `[[reject]]` and `[[rate_limit]]` fail here, other faults in a poll.
    async fn submit(&self, call: &VideoCall) -> Result<String, ProviderError> {
        let faults = Faults::of(&call.prompt);
        if let Some(fault @ (Fault::Reject | Fault::RateLimit)) = faults.fault {
            return Err(fault.happen().await);
        }
        let takes = self.work.saturating_add(faults.slow).as_millis();
        let task = Task {
            at: u64::try_from(self.clock.now().timestamp_millis()).unwrap_or_default(),
            takes: u32::try_from(takes).unwrap_or(u32::MAX),
            fault: faults.fault,
        };
        task.id().map_err(failed)
    }

    async fn poll(&self, task: &str, call: &VideoCall) -> Result<VideoStatus, ProviderError> {
        let Some(task) = Task::of(task) else {
            return Ok(VideoStatus::Gone);
        };
        if let Some(progress) = task.progress(self.clock.now()) {
            return Ok(VideoStatus::Running {
                progress: Some(progress),
            });
        }
        if let Some(fault) = task.fault {
            return Ok(VideoStatus::Failed(fault.happen().await));
        }
        let prompt = Faults::of(&call.prompt).rest;
        let seed = Seed::of(&[call.model.as_bytes(), prompt.as_bytes()]);
        let (size, seconds) = (film::size(call.ratio), call.duration);
        let inputs = call.inputs.clone();
        if let Some(source) = inputs_with_role(&inputs, InputRole::Source).next() {
            let extended = film::extend(&source.bytes, seconds);
            let problem = "the sandbox extends only its own videos";
            let extended = extended.ok_or_else(|| ProviderError::rejected(problem));
            return Ok(extended.map_or_else(VideoStatus::Failed, |file| {
                VideoStatus::Done(VideoOutput::Bytes(file))
            }));
        }
        let file = offloaded(move || {
            let drawn = draw(&seed, size, Quality::Standard, None);
            let pictures = Pictures::read(&inputs, size, None)?;
            Ok(film::make(&pictures.open(drawn), seconds))
        });
        let file = file.await?.map_err(decoding_error)?;
        Ok(VideoStatus::Done(VideoOutput::Bytes(file)))
    }

    fn poll_needs_inputs(&self, task: &str) -> bool {
        let task = Task::of(task).filter(|task| task.fault.is_none());
        task.is_some_and(|task| task.progress(self.clock.now()).is_none())
    }

    fn poll_interval(&self) -> Option<Duration> {
        Some(POLL_INTERVAL)
    }

    async fn cancel(&self, _task: &str) -> Result<(), ProviderError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
