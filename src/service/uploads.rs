//! Checks, stores, lists and deletes uploaded pictures.

use bytes::Bytes;
use chrono::{DateTime, Utc};

use super::{Result, Service, ServiceError, auth::Caller};
use crate::{
    domain::{ids::UploadId, validate::FieldCode},
    jobs::{KeepError, check_picture},
    media::{InvalidMedia, MediaInfo, MediaKind},
    store::uploads::{UploadLifetime, UploadRecord},
};

/// Name of a request body that is a picture, in errors.
const BODY: &str = "body";

impl Service {
    /// Stores a picture. The same bytes of an account are one upload. `claimed`: the content type
    /// in the request.
    pub async fn upload(
        &self,
        caller: &Caller,
        claimed: MediaKind,
        bytes: Bytes,
    ) -> Result<UploadRecord> {
        self.require_running()?;
        let info = check(caller, BODY, bytes.clone()).await?;
        if info.kind != claimed {
            let message = format!(
                "is {}, not {} as Content-Type says",
                info.content_type(),
                claimed.content_type()
            );
            return Err(ServiceError::field(BODY, FieldCode::InvalidFormat, message));
        }
        let now = self.0.clock.now();
        let term = UploadLifetime {
            expires_at: now + self.0.settings.upload_lifetime,
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
        term: UploadLifetime,
    ) -> Result<UploadRecord> {
        let quota = self.0.settings.upload_bytes_per_account;
        let (runner, account) = (&self.0.runner, caller.account_id);
        let keeping = runner.keep_picture(account, info, bytes, term, quota);
        keeping.await.map_err(|error| match error {
            KeepError::Store(error) => ServiceError::Store(error),
            KeepError::OverQuota(used) => {
                let lasting = used.all - used.transient;
                if lasting.saturating_add_unsigned(info.bytes) <= quota {
                    return ServiceError::InputsStored { used, quota };
                }
                let message = format!(
                    "exceeds the quota: the account's uploads use {lasting} of {quota} bytes; \
                     delete some, or wait until they expire"
                );
                ServiceError::not_allowed(param, message)
            }
            KeepError::Media(_) | KeepError::TooLate => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "an upload could not be stored");
                ServiceError::StorageUnavailable
            }
        })
    }

    /// Returns an upload of the caller's account.
    pub async fn find_upload(&self, caller: &Caller, id: UploadId) -> Result<UploadRecord> {
        let (store, now) = (&self.0.store, self.0.clock.now());
        let found = store.upload(caller.account_id, id, now).await?;
        found.ok_or(ServiceError::NotFound)
    }

    /// Deletes an upload. Its file is kept as long as a running generation may read it.
    pub async fn delete_upload(&self, caller: &Caller, id: UploadId) -> Result<()> {
        self.require_running()?;
        let (store, now) = (&self.0.store, self.0.clock.now());
        let is_hidden = store.hide_upload(caller.account_id, id, now).await?;
        // The link must be invalid when this response is sent, also after an interrupted deletion.
        let kept_until = (!is_hidden).then_some(now);
        self.remove_unused(caller, &[id], kept_until).await?;
        is_hidden.then_some(()).ok_or(ServiceError::NotFound)
    }

    /// Deletes the given uploads that their owner cannot see and no running generation reads.
    /// `kept_until`: only uploads with this or an earlier `kept_until`.
    pub(super) async fn remove_unused(
        &self,
        caller: &Caller,
        ids: &[UploadId],
        kept_until: Option<DateTime<Utc>>,
    ) -> Result<()> {
        let (store, now) = (&self.0.store, self.0.clock.now());
        let removing = store.delete_unused_uploads(caller.account_id, ids, kept_until, now);
        for file in removing.await? {
            self.0.runner.remove_files(file).await;
        }
        Ok(())
    }
}

/// Checks a picture. `param` names it in errors.
pub(super) async fn check(caller: &Caller, param: &str, bytes: Bytes) -> Result<MediaInfo> {
    let checked = check_picture(caller.account_id, bytes).await;
    let checked =
        checked.ok_or_else(|| ServiceError::Internal("reading a picture panicked".to_owned()))?;
    checked.map_err(|error| {
        let code = match error {
            InvalidMedia::TooLong(_) => FieldCode::TooLong,
            InvalidMedia::Pixels { .. } | InvalidMedia::Sides { .. } | InvalidMedia::TooLarge => {
                FieldCode::OutOfRange
            }
            _ => FieldCode::InvalidFormat,
        };
        ServiceError::field(param, code, format!("is not a usable image: {error}"))
    })
}
