//! Checks and stores the files of providers, and compares stored files with the records.

use std::collections::HashMap;

use bytes::Bytes;
use chrono::TimeDelta;
use futures_util::TryStreamExt as _;
use uuid::Uuid;

use super::{Runner, upload_key};
use crate::{
    domain::{
        generation::{Failure, FailureCode, Output},
        ids::{AccountId, GenerationId, UploadId},
    },
    media::{self, InvalidMedia, MediaInfo, MediaKey, MediaKind, MediaStoreError},
    offload::offload,
    store::StoreError,
};

/// How long after a generation's end or deletion a worker that does not know of it may write files.
const LATE_WRITES: TimeDelta = TimeDelta::minutes(15);

/// The failure of a file that was not stored. The cause is only logged.
pub(super) fn unusable(id: GenerationId, error: &(dyn std::error::Error + 'static)) -> Failure {
    tracing::warn!(generation = %id, error, "the provider returned an unusable file");
    let message = "the provider returned an unusable file";
    Failure::new(FailureCode::ProviderError, message)
}

/// The failure of this server's own storage.
pub(super) fn not_stored(id: GenerationId, error: &MediaStoreError) -> Failure {
    let error = error as &dyn std::error::Error;
    tracing::error!(generation = %id, error, "a file could not be stored");
    let message = "the file could not be stored";
    Failure::new(FailureCode::StorageUnavailable, message)
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

const BATCH: i64 = 1_000;

/// The result of a comparison of records with files.
#[derive(Debug, Default)]
pub struct FilesAudit {
    /// Number of files in records.
    pub files: u64,
    /// Files in records that the store lacks.
    pub missing: Vec<String>,
    /// Files whose size differs from their record.
    pub damaged: Vec<String>,
    /// Files in no record.
    pub unknown: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum VerifyFilesError {
    #[error("the files could not be listed: {0}")]
    Media(#[from] MediaStoreError),
    #[error(transparent)]
    Store(#[from] StoreError),
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
        let stored = self.0.media.put(&key, bytes).await;
        stored.map_err(|error| not_stored(id, &error))?;
        Ok(output(&key, &info))
    }

    /// Deletes the files of a generation that did not complete.
    pub(super) async fn discard_files(&self, id: GenerationId) {
        if let Err(error) = self.0.media.delete_generation(id).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(generation = %id, error, "could not delete files; they must be removed by hand");
        }
    }

    /// Deletes leftovers of interrupted uploads.
    pub async fn sweep_files(&self) -> Result<(), MediaStoreError> {
        self.0.media.sweep().await
    }

    /// Deletes the files of a deleted generation. [`Self::empty_trash`] deletes files that cannot
    /// be deleted now or are written later.
    pub async fn remove_files(&self, id: GenerationId) {
        if let Err(error) = self.0.media.delete_generation(id).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(generation = %id, error, "could not delete files yet; will retry");
        }
    }

    /// Deletes files without an owner, of at most `limit` generations. Returns whether there may be
    /// more.
    pub async fn empty_trash(&self, limit: i64) -> Result<bool, StoreError> {
        let now = self.0.clock.now();
        let trash = self.0.store.media_trash(now - LATE_WRITES, limit).await?;
        for &id in &trash {
            match self.0.media.delete_generation(id).await {
                Ok(()) => self.0.store.media_removed(id).await?,
                Err(error) => {
                    tracing::warn!(generation = %id, %error, "could not delete files yet; will retry");
                    // Move it to the end of the queue, so that it does not block others.
                    self.0.store.postpone_removal(id, now).await?;
                }
            }
        }
        Ok(i64::try_from(trash.len()).is_ok_and(|n| n >= limit))
    }

    /// Compares records with files. Servers may be running. Needs some 60 bytes of memory per file.
    pub async fn verify_files(&self) -> Result<FilesAudit, VerifyFilesError> {
        let (store, media) = (&self.0.store, &self.0.media);
        let mut audit = FilesAudit::default();
        // Files are read before the records: each of these files is in a record by then, or belongs
        // to running work.
        let mut found = HashMap::new();
        let mut stored = media.list();
        while let Some((name, bytes)) = stored.try_next().await? {
            match name.parse::<MediaKey>() {
                Ok(key) => _ = found.insert(key, bytes),
                Err(_) => audit.unknown.push(name),
            }
        }
        // A running generation may end before its record is read.
        let running = store.running_generations().await?;
        let mut after = (AccountId(0), GenerationId(Uuid::nil()));
        loop {
            let records = store.stored_files(after, BATCH).await?;
            let Some(last) = records.last() else { break };
            after = (last.account_id, last.id);
            for file in records.iter().flat_map(|record| &record.outputs.0) {
                self.compare(&file.key, file.bytes, &mut found, &mut audit)
                    .await?;
            }
        }
        let mut after = (AccountId(0), UploadId(Uuid::nil()));
        loop {
            let uploads = store.upload_files(after, BATCH).await?;
            let Some(last) = uploads.last() else { break };
            after = (last.account_id, last.id);
            for upload in uploads {
                let key = upload_key(upload.file_id, &upload.content_type);
                let key = key.map_or_else(|| upload.id.to_string(), |key| key.to_string());
                let bytes = u64::try_from(upload.bytes).unwrap_or_default();
                let missing = audit.missing.len();
                self.compare(&key, bytes, &mut found, &mut audit).await?;
                // The row may have been purged since it was read.
                if audit.missing.len() > missing
                    && !store
                        .has_upload_file(upload.account_id, upload.file_id)
                        .await?
                {
                    audit.missing.truncate(missing);
                    audit.files -= 1;
                }
            }
        }
        let left: Vec<MediaKey> = found.into_keys().collect();
        for keys in left.chunks(1_000) {
            let ids: Vec<_> = keys.iter().map(|key| key.generation.0).collect();
            let trash = store.trash_or_uploads_among(&ids).await?;
            for key in keys {
                // Files deleted meanwhile no longer count.
                let id = key.generation;
                let expected = running.contains(&id) || trash.contains(&id);
                if !expected && media.head(key).await?.is_some() {
                    audit.unknown.push(key.to_string());
                }
            }
        }
        audit.unknown.sort();
        Ok(audit)
    }

    async fn compare(
        &self,
        name: &str,
        recorded: u64,
        found: &mut HashMap<MediaKey, u64>,
        audit: &mut FilesAudit,
    ) -> Result<(), MediaStoreError> {
        let Ok(key) = name.parse::<MediaKey>() else {
            audit.missing.push(name.to_owned());
            return Ok(());
        };
        audit.files += 1;
        let bytes = match found.remove(&key) {
            Some(bytes) => Some(bytes),
            // It may have been stored since.
            None => self.0.media.head(&key).await?.map(|head| head.bytes),
        };
        match bytes {
            None => audit.missing.push(key.to_string()),
            Some(bytes) if bytes != recorded => audit.damaged.push(key.to_string()),
            Some(_) => {}
        }
        Ok(())
    }
}
