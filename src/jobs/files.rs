//! Checks and stores the files of providers.

use bytes::Bytes;
use chrono::TimeDelta;

use super::Runner;
use crate::{
    domain::{
        generation::{Failure, FailureCode, Output},
        ids::GenerationId,
    },
    media::{self, InvalidMedia, MediaInfo, MediaKey, MediaKind},
    offload::offload,
};

/// How long after a generation's end or deletion its files may still be written, by a worker that does
/// not know of it yet.
const LATE_WRITES: TimeDelta = TimeDelta::minutes(15);

/// Why a file was not stored: the caller sees the failure, the log the cause.
pub(super) fn unusable(id: GenerationId, error: &(dyn std::error::Error + 'static)) -> Failure {
    tracing::warn!(generation = %id, error, "the provider returned an unusable file");
    Failure::new(
        FailureCode::ProviderError,
        "the provider returned an unusable file",
    )
}

/// A failure of our own storage.
pub(super) fn not_stored(id: GenerationId, error: &media::MediaStoreError) -> Failure {
    let error = error as &dyn std::error::Error;
    tracing::error!(generation = %id, error, "a file could not be stored");
    Failure::new(
        FailureCode::StorageUnavailable,
        "the file could not be stored",
    )
}

pub(super) fn output(key: &MediaKey, info: &MediaInfo) -> Output {
    Output {
        key: key.to_string(),
        content_type: info.content_type().to_owned(),
        bytes: info.bytes,
        sha256: info.sha256_hex(),
        width: info.width,
        height: info.height,
        seconds: info.seconds,
    }
}

pub(super) async fn convert<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, InvalidMedia> + Send + 'static,
) -> Result<T, InvalidMedia> {
    let done = offload(work).await;
    done.unwrap_or(Err(InvalidMedia::Damaged("reading it failed")))
}

impl Runner {
    /// Checks that a file is of `kind` and stores it.
    pub(super) async fn store_file(
        &self,
        id: GenerationId,
        index: u16,
        kind: MediaKind,
        bytes: Bytes,
    ) -> Result<Output, Failure> {
        let checked = bytes.clone();
        let info = convert(move || media::inspect(&checked, &[kind]))
            .await
            .map_err(|error| unusable(id, &error))?;
        let key = MediaKey::new(id, index, kind);
        let stored = self.0.media.store.put(&key, bytes).await;
        stored.map_err(|error| not_stored(id, &error))?;
        Ok(output(&key, &info))
    }

    /// Deletes the files of a generation that did not complete.
    pub(super) async fn discard_files(&self, id: GenerationId) {
        if let Err(error) = self.0.media.store.delete_generation(id).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(generation = %id, error, "could not delete files; they must be removed by hand");
        }
    }

    /// Deletes leftovers of interrupted uploads.
    pub async fn sweep_files(&self) -> Result<(), media::MediaStoreError> {
        self.0.media.store.sweep().await
    }

    /// Deletes the files of a deleted generation at once. [`Self::empty_trash`] deletes what could
    /// not be deleted, and what is written later.
    pub async fn remove_files(&self, id: GenerationId) {
        if let Err(error) = self.0.media.store.delete_generation(id).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(generation = %id, error, "could not delete files yet; will retry");
        }
    }

    /// Deletes files without an owner, of at most `limit` generations. Returns whether there may be
    /// more.
    pub async fn empty_trash(&self, limit: i64) -> Result<bool, crate::store::StoreError> {
        let now = self.0.clock.now();
        let trash = self.0.store.media_trash(now - LATE_WRITES, limit).await?;
        for &id in &trash {
            match self.0.media.store.delete_generation(id).await {
                Ok(()) => self.0.store.media_removed(id).await?,
                Err(error) => {
                    tracing::warn!(generation = %id, %error, "could not delete files yet; will retry");
                    // To the end of the queue, so that it does not block others.
                    self.0.store.postpone_removal(id, now).await?;
                }
            }
        }
        Ok(i64::try_from(trash.len()).is_ok_and(|n| n >= limit))
    }
}
