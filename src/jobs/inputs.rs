//! Inputs: in memory only while they are submitted, within a budget that accounts share.

use std::{sync::LazyLock, time::Duration};

use super::{Runner, RunningGuard, step::Step};
use crate::{
    domain::{
        generation::{Failure, FailureCode},
        ids::AccountId,
        inputs::StoredInput,
        limiter::{Limiter, Permit},
        request::MAX_ALL_INPUT_BYTES,
    },
    media::MediaKey,
    providers::InputPicture,
    store::jobs::Job,
};

/// A file, its base64, a body that has it, and the same of a retry.
const COPIES: u64 = 5;
/// Bytes of inputs in memory of one account: the largest requests have two copies of each, since
/// they are sent as forms.
const MAX_LOADED: u64 = 3 * MAX_ALL_INPUT_BYTES;
/// How long a submission waits for memory. A job tries again later, other work fails.
const MAX_WAIT: Duration = Duration::from_mins(1);

/// Bytes of inputs in memory, of all accounts and of one.
static LOADED: LazyLock<Limiter<AccountId>> = LazyLock::new(|| {
    let most = weight(MAX_LOADED);
    Limiter::with_queue((2 * most, most), (usize::MAX, usize::MAX))
});

fn weight(bytes: u64) -> usize {
    let copied = bytes.saturating_mul(COPIES).min(MAX_LOADED);
    usize::try_from(copied).unwrap_or(usize::MAX)
}

/// Pictures, as long as they may be in memory.
pub(super) struct Loaded {
    pub pictures: Vec<InputPicture>,
    _permit: Option<Permit<AccountId>>,
}

impl Runner {
    /// Reads the inputs of a generation, once there is room for them. `Err`: what the step comes to
    /// instead.
    pub(super) async fn load_inputs(
        &self,
        job: &Job,
        guard: &RunningGuard,
        inputs: &[StoredInput],
    ) -> Result<Loaded, Step> {
        let permit = if inputs.is_empty() {
            None
        } else {
            let bytes = weight(inputs.iter().map(|input| input.bytes).sum());
            let acquiring = LOADED.acquire(job.account_id, bytes);
            let acquiring = tokio::time::timeout(MAX_WAIT, acquiring);
            let permit = self.unless_stopped(guard, acquiring).await?;
            Some(permit.ok().flatten().ok_or_else(no_memory)?)
        };
        let mut pictures = Vec::with_capacity(inputs.len());
        for input in inputs {
            let key: Option<MediaKey> = input.key.parse().ok();
            let found = match &key {
                Some(key) => self.unless_stopped(guard, self.stored_bytes(key)).await?,
                None => Ok(None),
            };
            let bytes = found.map_err(|error| {
                let error = &error as &dyn std::error::Error;
                tracing::error!(generation = %job.id, error, "an input could not be read");
                Step::NotStored(unreadable())
            })?;
            let Some(bytes) = bytes else {
                tracing::error!(generation = %job.id, key = input.key, "an input is missing");
                return Err(Step::failed(unreadable()));
            };
            pictures.push(InputPicture {
                role: input.role,
                content_type: input.content_type.clone(),
                bytes,
            });
        }
        Ok(Loaded {
            pictures,
            _permit: permit,
        })
    }
}

/// Nothing was submitted.
fn no_memory() -> Step {
    let message = "this server had no memory left for the inputs; try again";
    Step::NotStored(Failure::new(FailureCode::StorageUnavailable, message))
}

pub(super) fn unreadable() -> Failure {
    Failure::new(
        FailureCode::StorageUnavailable,
        "an input could not be read",
    )
}
