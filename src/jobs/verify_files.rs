//! The stored files against the records that name them.

use std::collections::HashMap;

use futures_util::TryStreamExt as _;
use uuid::Uuid;

use super::Runner;
use crate::{
    domain::ids::{AccountId, GenerationId},
    media::{MediaKey, MediaStoreError},
    store::StoreError,
};

/// Records that are read at once.
const BATCH: i64 = 1_000;

/// What was compared.
#[derive(Debug, Default)]
pub struct FilesAudit {
    /// Files that records name.
    pub files: u64,
    /// Files that records name and the store lacks.
    pub missing: Vec<String>,
    /// Files that have another size than their records say.
    pub damaged: Vec<String>,
    /// Files that no record names.
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
    /// Compares them while servers may run. Needs some 60 bytes of memory for each file.
    pub async fn verify_files(&self) -> Result<FilesAudit, VerifyFilesError> {
        let (store, media) = (&self.0.store, &self.0.media.store);
        let mut audit = FilesAudit::default();
        // The files first: each of them was recorded, or is of something that runs, when the records
        // are read.
        let mut found = HashMap::new();
        let mut stored = media.list();
        while let Some(file) = stored.try_next().await? {
            match file.name.parse::<MediaKey>() {
                Ok(key) => _ = found.insert(key, file.bytes),
                Err(_) => audit.unknown.push(file.name),
            }
        }
        // What runs now may have ended when its record would be read.
        let running = store.running_generations().await?;
        let mut after = (AccountId(0), GenerationId(Uuid::nil()));
        loop {
            let records = store.stored_files(after, BATCH).await?;
            let Some(last) = records.last() else { break };
            after = (last.account_id, last.id);
            for file in records.iter().flat_map(|record| &record.outputs.0) {
                let Ok(key) = file.key.parse::<MediaKey>() else {
                    audit.missing.push(file.key.clone());
                    continue;
                };
                audit.files += 1;
                let bytes = match found.remove(&key) {
                    Some(bytes) => Some(bytes),
                    // It may have been stored since.
                    None => media.head(&key).await?.map(|head| head.bytes),
                };
                match bytes {
                    None => audit.missing.push(key.to_string()),
                    Some(bytes) if bytes != file.bytes => audit.damaged.push(key.to_string()),
                    Some(_) => {}
                }
            }
        }
        let left: Vec<MediaKey> = found.into_keys().collect();
        for keys in left.chunks(1_000) {
            let ids: Vec<_> = keys.iter().map(|key| key.generation().0).collect();
            let trash = store.media_trash_of(&ids).await?;
            for key in keys {
                // What was deleted meanwhile is gone.
                let id = key.generation();
                let expected = running.contains(&id) || trash.contains(&id);
                if !expected && media.head(key).await?.is_some() {
                    audit.unknown.push(key.to_string());
                }
            }
        }
        audit.unknown.sort();
        Ok(audit)
    }
}
