//! Uploaded pictures: checked, stored once, listed and deleted.

use bytes::Bytes;
use chrono::TimeDelta;

use super::{Service, ServiceError, auth::Caller};
use crate::{
    domain::{
        ids::{GenerationId, UploadId},
        page::{Page, PageRequest},
        validate::{FieldCode, FieldError},
    },
    jobs::{KeepError, check_picture},
    media::{InvalidMedia, MediaInfo, MediaKind},
    store::uploads::{UploadDeleted, UploadRecord, UploadTerm},
};

/// The name of a body that is a picture, in errors.
const BODY: &str = "body";

#[derive(Debug, Clone, Copy)]
pub struct UploadSettings {
    /// How long an upload is kept after its last use.
    pub lifetime: TimeDelta,
    /// Bytes that the uploads of an account may have together.
    pub bytes_per_account: i64,
}

impl Service {
    /// Stores a picture. The same bytes of an account are one upload. `claimed`: the type that its
    /// sender names.
    pub async fn upload(
        &self,
        caller: &Caller,
        claimed: MediaKind,
        bytes: Bytes,
    ) -> Result<UploadRecord, ServiceError> {
        self.require_running()?;
        let info = check(caller, BODY, bytes.clone()).await?;
        if info.kind != claimed {
            let message = format!(
                "is {}, not {} as Content-Type says",
                info.content_type(),
                claimed.content_type()
            );
            return Err(invalid(BODY, FieldCode::InvalidFormat, message));
        }
        let now = self.0.clock.now();
        let term = UploadTerm {
            expires_at: now + self.0.settings.uploads.lifetime,
            kept_until: now,
        };
        self.keep(caller, BODY, &info, bytes, term).await
    }

    /// Stores a checked picture. `param` names it in errors.
    pub(super) async fn keep(
        &self,
        caller: &Caller,
        param: &str,
        info: &MediaInfo,
        bytes: Bytes,
        term: UploadTerm,
    ) -> Result<UploadRecord, ServiceError> {
        let quota = self.0.settings.uploads.bytes_per_account;
        let keeping = self
            .0
            .runner
            .keep_picture(caller.account_id, info, bytes, term, quota);
        keeping.await.map_err(|error| match error {
            KeepError::Store(error) => ServiceError::Store(error),
            KeepError::OverQuota(used) => {
                let message = format!(
                    "does not fit: the account's uploads have {used} of {quota} bytes; delete \
                     some, or wait until they expire"
                );
                invalid(param, FieldCode::NotAllowed, message)
            }
            KeepError::Media(_) | KeepError::TooLate => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "an upload could not be stored");
                ServiceError::StorageUnavailable
            }
        })
    }

    /// One upload of the caller's account.
    pub async fn find_upload(
        &self,
        caller: &Caller,
        id: UploadId,
    ) -> Result<UploadRecord, ServiceError> {
        let (store, now) = (&self.0.store, self.0.clock.now());
        let found = store.upload(caller.account_id, id, now).await?;
        found.ok_or(ServiceError::NotFound)
    }

    /// The account's uploads, newest first.
    pub async fn uploads(
        &self,
        caller: &Caller,
        page: &PageRequest,
    ) -> Result<Page<UploadRecord>, ServiceError> {
        let (store, now) = (&self.0.store, self.0.clock.now());
        Ok(store.uploads(caller.account_id, page, now).await?)
    }

    /// Deletes an upload. Its file stays until the generations that were accepted with it no longer
    /// need it.
    pub async fn delete_upload(&self, caller: &Caller, id: UploadId) -> Result<(), ServiceError> {
        self.require_running()?;
        let (store, now) = (&self.0.store, self.0.clock.now());
        let deleted = store.delete_upload(caller.account_id, id, now).await?;
        match deleted {
            UploadDeleted::NotFound => return Err(ServiceError::NotFound),
            UploadDeleted::FileLater => {}
            // The link to a file must not outlive this answer.
            UploadDeleted::File(file) => self.0.runner.remove_files(GenerationId(file)).await,
        }
        Ok(())
    }
}

/// Checks a picture. `param` names it in errors.
pub(super) async fn check(
    caller: &Caller,
    param: &str,
    bytes: Bytes,
) -> Result<MediaInfo, ServiceError> {
    let checked = check_picture(caller.account_id, bytes).await;
    let checked =
        checked.ok_or_else(|| ServiceError::Internal("reading a picture panicked".to_owned()))?;
    checked.map_err(|error| {
        let code = match error {
            InvalidMedia::TooLong(_) => FieldCode::TooLong,
            InvalidMedia::Pixels { .. } => FieldCode::OutOfRange,
            _ => FieldCode::InvalidFormat,
        };
        invalid(param, code, format!("is no usable picture: {error}"))
    })
}

pub(super) fn invalid(param: &str, code: FieldCode, message: impl Into<String>) -> ServiceError {
    ServiceError::invalid(FieldError::new(param, code, message.into()))
}
