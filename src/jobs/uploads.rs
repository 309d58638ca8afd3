//! Stores uploaded pictures, and loads inputs into memory for their submission, within a budget
//! shared by all accounts.

use std::{sync::LazyLock, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt as _;
use uuid::Uuid;

use super::{
    Runner,
    step::{Run, Step},
};
use crate::{
    domain::{
        generation::{Failure, FailureCode},
        ids::{AccountId, GenerationId, UploadId},
        inputs::StoredInput,
        limiter::{Limiter, Permit},
    },
    media::{
        InvalidMedia, MediaInfo, MediaKey, MediaKind, MediaStoreError, PICTURE_KINDS, read_picture,
    },
    offload::{for_account, offload},
    providers::InputPicture,
    request::MAX_ALL_INPUT_BYTES,
    store::{
        StoreError,
        uploads::{UploadBytes, UploadLifetime, UploadRecord, UploadStored},
    },
};

#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Media(#[from] MediaStoreError),
    #[error("the account has {} bytes of uploads", .0.all)]
    OverQuota(UploadBytes),
    #[error("the row of the file was not inserted in time")]
    TooLate,
}

/// Maximum time to write a file. Shorter than `LATE_WRITES`, after which the file would be removed
/// before its row is inserted.
const WRITE_TIMEOUT: Duration = Duration::from_mins(10);

/// One permit per account, so that waiting for the lock of [`Store::store_upload`] takes no
/// connection.
///
/// [`Store::store_upload`]: crate::store::Store::store_upload
static STORE_PERMITS: LazyLock<Limiter<AccountId>> =
    LazyLock::new(|| Limiter::with_queue((usize::MAX, 1), (usize::MAX, usize::MAX)));

/// Checks a picture on a blocking thread. `None` if a decoder panicked.
pub async fn check_picture(
    account: AccountId,
    bytes: Bytes,
) -> Option<Result<MediaInfo, InvalidMedia>> {
    for_account(account, offload(move || read_picture(&bytes))).await
}

/// Copies of an input in memory: the file, and its base64 and a body for each of two tries.
const COPIES: u64 = 5;
/// Maximum bytes of one account's inputs in memory. The largest requests are forms, which need two
/// copies of each input.
const MAX_LOADED: u64 = 3 * MAX_ALL_INPUT_BYTES;
/// Maximum wait for memory. Afterwards a job is rescheduled; other work is refused without a hold.
const MAX_WAIT: Duration = Duration::from_mins(1);

/// Limits the bytes of inputs in memory, in total and per account.
static LOADED_BYTES: LazyLock<Limiter<AccountId>> = LazyLock::new(|| {
    let most = weight(MAX_LOADED);
    Limiter::with_queue((2 * most, most), (usize::MAX, usize::MAX))
});

fn weight(bytes: u64) -> usize {
    let copied = bytes.saturating_mul(COPIES).min(MAX_LOADED);
    usize::try_from(copied).unwrap_or(usize::MAX)
}

/// Waits for memory for inputs, at most [`MAX_WAIT`].
async fn acquire(account: AccountId, bytes: u64) -> Option<Permit<AccountId>> {
    let acquiring = LOADED_BYTES.acquire(account, weight(bytes));
    let permit = tokio::time::timeout(MAX_WAIT, acquiring).await;
    permit.ok().flatten()
}

impl Runner {
    /// Stores a picture of an account; the same bytes are stored once. `quota`: maximum total bytes
    /// of the account's uploads.
    pub async fn keep_picture(
        &self,
        account: AccountId,
        info: &MediaInfo,
        bytes: Bytes,
        term: UploadLifetime,
        quota: i64,
    ) -> Result<UploadRecord, KeepError> {
        let (store, now) = (&self.0.store, self.0.clock.now());
        let id = UploadId::of(account, &info.sha256);
        if let Some(before) = store.extend_upload(account, id, term, false, now).await? {
            return Ok(before);
        }
        let file_id = self.0.ids.next(now);
        let new = UploadRecord {
            id,
            file_id: file_id.0,
            content_type: info.content_type().to_owned(),
            bytes: i64::try_from(info.bytes).unwrap_or(i64::MAX),
            width: side(info.width),
            height: side(info.height),
            sha256: info.sha256.to_vec(),
            created_at: now,
            expires_at: term.expires_at,
        };
        store.begin_upload(file_id.0, now).await?;
        let key = MediaKey::new(file_id, 0, info.kind);
        let writing = async {
            self.0.media.put(&key, bytes).await?;
            Ok::<_, MediaStoreError>(STORE_PERMITS.acquire(account, 1).await)
        };
        let stored = match tokio::time::timeout(WRITE_TIMEOUT, writing).await {
            Ok(permit) => {
                let _permit = permit?;
                store.store_upload(account, &new, term, quota).await?
            }
            Err(_elapsed) => return Err(KeepError::TooLate),
        };
        if !matches!(&stored, UploadStored::Stored(record) if record.file_id == file_id.0) {
            // After an error the trash lists the file, so it is removed later.
            self.remove_files(file_id).await;
        }
        match stored {
            UploadStored::Stored(record) => Ok(record),
            UploadStored::OverQuota(used) => Err(KeepError::OverQuota(used)),
            UploadStored::TooLate => Err(KeepError::TooLate),
        }
    }

    /// Returns the bytes of a stored file; `None` if it does not exist.
    pub async fn stored_bytes(&self, key: &MediaKey) -> Result<Option<Bytes>, MediaStoreError> {
        let Some(file) = self.0.media.get(key, None).await? else {
            return Ok(None);
        };
        let length = usize::try_from(file.head.bytes).unwrap_or_default();
        let mut bytes = BytesMut::with_capacity(length);
        let mut body = file.body;
        while let Some(piece) = body.try_next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(Some(bytes.freeze()))
    }

    /// Takes memory for the inputs of a call that runs at once, if enough is free.
    pub fn try_input_memory(account: AccountId, bytes: u64) -> Option<Permit<AccountId>> {
        LOADED_BYTES.try_acquire_many(account, weight(bytes))
    }

    /// Waits for that memory. Returns `None` after a minute, or when the server stops.
    pub async fn input_memory(&self, account: AccountId, bytes: u64) -> Option<Permit<AccountId>> {
        let acquiring = acquire(account, bytes);
        let acquired = self.stopping().run_until_cancelled(acquiring);
        acquired.await.flatten()
    }
}

/// Sides of a picture are below 40 million.
fn side(pixels: Option<u32>) -> i32 {
    pixels
        .and_then(|pixels| i32::try_from(pixels).ok())
        .unwrap_or_default()
}

pub fn upload_key(file_id: Uuid, content_type: &str) -> Option<MediaKey> {
    // Videos cannot be uploaded, but are kept as inputs.
    let mut kinds = PICTURE_KINDS.into_iter().chain([MediaKind::Mp4]);
    let kind = kinds.find(|kind| kind.content_type() == content_type)?;
    Some(MediaKey::new(GenerationId(file_id), 0, kind))
}

impl Run<'_> {
    /// Reads the inputs of a generation once there is memory for them. Also returns the memory
    /// permit, unless it was taken before the hold. `Err`: the step instead of the submission.
    pub(super) async fn load_inputs(
        &self,
        inputs: &[StoredInput],
    ) -> Result<(Vec<InputPicture>, Option<Permit<AccountId>>), Step> {
        let (job, guard) = (self.job, self.guard);
        let permit = if inputs.is_empty() || guard.input_memory.is_some() {
            None
        } else {
            let bytes = inputs.iter().map(|input| input.bytes).sum();
            let acquiring = acquire(job.account_id, bytes);
            let permit = self.unless_stopped(acquiring).await?;
            Some(permit.ok_or_else(out_of_memory)?)
        };
        let mut pictures = Vec::with_capacity(inputs.len());
        for input in inputs {
            let key: Option<MediaKey> = input.key.parse().ok();
            let found = match &key {
                Some(key) => self.unless_stopped(self.stored_bytes(key)).await?,
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
        Ok((pictures, permit))
    }
}

/// Returns the step for a job without memory for its inputs. Nothing was submitted.
fn out_of_memory() -> Step {
    let message = "this server has no memory for the inputs now; try again";
    Step::NotStored(Failure::new(FailureCode::StorageUnavailable, message))
}

pub(super) fn unreadable() -> Failure {
    let message = "an input could not be read";
    Failure::new(FailureCode::StorageUnavailable, message)
}
