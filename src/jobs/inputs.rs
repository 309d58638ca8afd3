//! Loads inputs into memory while they are submitted, within a budget shared by all accounts.

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

/// Copies of an input in memory: the file, and its base64 and a body for each of two tries.
const COPIES: u64 = 5;
/// Maximum bytes of one account's inputs in memory. The largest requests are forms, which need two
/// copies of each input.
const MAX_LOADED: u64 = 3 * MAX_ALL_INPUT_BYTES;
/// Maximum wait for memory. After that, a job tries again later; other work is refused, without a
/// hold.
const MAX_WAIT: Duration = Duration::from_mins(1);

/// Limiter of the bytes of inputs in memory, in total and per account.
static LOADED_BYTES: LazyLock<Limiter<AccountId>> = LazyLock::new(|| {
    let most = weight(MAX_LOADED);
    Limiter::with_queue((2 * most, most), (usize::MAX, usize::MAX))
});

fn weight(bytes: u64) -> usize {
    let copied = bytes.saturating_mul(COPIES).min(MAX_LOADED);
    usize::try_from(copied).unwrap_or(usize::MAX)
}

/// Pictures, with the permit for their memory unless the generation took it before its hold.
pub(super) struct Loaded {
    pub pictures: Vec<InputPicture>,
    _permit: Option<Permit<AccountId>>,
}

/// Waits for memory for inputs. `None` after a minute.
async fn acquire(account: AccountId, bytes: u64) -> Option<Permit<AccountId>> {
    let acquiring = LOADED_BYTES.acquire(account, weight(bytes));
    let permit = tokio::time::timeout(MAX_WAIT, acquiring).await;
    permit.ok().flatten()
}

impl Runner {
    /// Takes memory for the inputs of a call that runs at once, if it is free.
    pub fn try_input_memory(account: AccountId, bytes: u64) -> Option<Permit<AccountId>> {
        LOADED_BYTES.try_acquire_many(account, weight(bytes))
    }

    /// Waits for that memory. `None` after a minute, or when the server stops.
    pub async fn input_memory(&self, account: AccountId, bytes: u64) -> Option<Permit<AccountId>> {
        let acquiring = acquire(account, bytes);
        let acquired = self.stopping().run_until_cancelled(acquiring);
        acquired.await.flatten()
    }

    /// Reads the inputs of a generation once there is memory for them. `Err`: the step that
    /// replaces the submission.
    pub(super) async fn load_inputs(
        &self,
        job: &Job,
        guard: &RunningGuard,
        inputs: &[StoredInput],
    ) -> Result<Loaded, Step> {
        let permit = if inputs.is_empty() || guard.input_memory.is_some() {
            None
        } else {
            let bytes = inputs.iter().map(|input| input.bytes).sum();
            let acquiring = acquire(job.account_id, bytes);
            let permit = self.unless_stopped(guard, acquiring).await?;
            Some(permit.ok_or_else(out_of_memory)?)
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

/// Returns the step for a job without memory for its inputs. Nothing was submitted.
fn out_of_memory() -> Step {
    let message = "this server has no memory for the inputs now; try again";
    Step::NotStored(Failure::new(FailureCode::StorageUnavailable, message))
}

pub(super) fn unreadable() -> Failure {
    Failure::new(
        FailureCode::StorageUnavailable,
        "an input could not be read",
    )
}
