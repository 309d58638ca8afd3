//! Finds and checks the inputs of a request before the hold, and keeps their files until the
//! generation no longer needs them.

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};

use super::{Prepared, hold_wait::HoldWait};
use crate::{
    catalogue::InputLimits,
    domain::{
        ability::Ability,
        generation::{Generation, Modality, Output, Status},
        ids::{AccountId, GenerationId, UploadId},
        inputs::{INPUTS, InputOrigin, InputRole, StoredInput},
        limiter::Permit,
        validate::{FieldCode, FieldError},
    },
    jobs::{Call, upload_key},
    media::{MediaInfo, MediaKey, MediaKind, PICTURE_KINDS, picture_header, unhex},
    memory::{self, Reservation},
    offload::offload,
    request::{InputFrom, InputRequest},
    service::{Result, Service, ServiceError, auth::Caller, reserve, uploads::check},
    store::uploads::UploadLifetime,
};

/// Extra time to keep a job's inputs after its deadline: a request may wait for credits before its
/// job is created, and the last step may run late.
const KEEP_AFTER_DEADLINE: TimeDelta = TimeDelta::hours(1);
/// Time to keep the inputs of other work, which may wait a minute for credits and a minute for
/// memory before it reads them.
const KEEP_FOR_CALL: TimeDelta = TimeDelta::minutes(10);

/// Kinds of files that may be the source of a video.
const VIDEO_KINDS: [MediaKind; 1] = [MediaKind::Mp4];

/// An input that was found and checked.
pub(super) struct FoundInput {
    pub role: InputRole,
    /// The field that names it, for errors.
    param: String,
    pub info: MediaInfo,
    file: FoundFile,
}

enum FoundFile {
    Upload(UploadId, MediaKey),
    Output {
        generation: GenerationId,
        output: u16,
        key: MediaKey,
    },
    Data(Bytes),
}

impl FoundInput {
    pub(super) fn size(&self) -> (u32, u32) {
        let side = |side: Option<u32>| side.unwrap_or_default();
        (side(self.info.width), side(self.info.height))
    }
}

impl Service {
    /// Finds and checks inputs. Stores nothing.
    pub(super) async fn find_inputs(
        &self,
        caller: &Caller,
        inputs: Vec<InputRequest>,
        modality: Modality,
        limits: Option<&InputLimits>,
    ) -> Result<Vec<FoundInput>> {
        let (mut found, mut errors) = (Vec::with_capacity(inputs.len()), Vec::new());
        for (at, input) in inputs.into_iter().enumerate() {
            match self.find_input(caller, at, input, modality, limits).await {
                Ok(input) => found.push(input),
                Err(ServiceError::Invalid(more)) => errors.extend(more),
                Err(error) => return Err(error),
            }
        }
        if !errors.is_empty() {
            return Err(ServiceError::Invalid(errors));
        }
        if let Some(limits) = limits {
            check_together(&found, limits, self.0.settings.upload_bytes_per_account)?;
            self.check_pixels(&found, limits).await?;
        }
        Ok(found)
    }

    async fn find_input(
        &self,
        caller: &Caller,
        at: usize,
        input: InputRequest,
        modality: Modality,
        limits: Option<&InputLimits>,
    ) -> Result<FoundInput> {
        let param = input.param(at, input.from.field());
        let InputRequest { role, from, .. } = input;
        let (info, file) = match from {
            InputFrom::Upload(id) => self.find_upload_input(caller, &param, id).await?,
            InputFrom::Output { generation, output } => {
                let is_video = modality == Modality::Video && role == InputRole::Source;
                let kinds = if is_video {
                    &VIDEO_KINDS[..]
                } else {
                    &PICTURE_KINDS
                };
                let finding = self.find_output(caller, &param, (generation, output), kinds);
                finding.await?
            }
            InputFrom::Data(bytes) => {
                let info = check(caller, &param, bytes.clone()).await?;
                (info, FoundFile::Data(bytes))
            }
        };
        let input = FoundInput {
            role,
            param,
            info,
            file,
        };
        if let Some(limits) = limits {
            check_limits(&input, limits)?;
        }
        Ok(input)
    }

    /// Waits for memory for the inputs of a call that runs at once, with a permit to wait and
    /// outside of the queue of holds.
    pub(super) async fn wait_for_input_memory<F: Fn() + Send>(
        &self,
        plan: &Prepared<'_>,
        wait: &mut HoldWait<'_, F>,
    ) -> Result<Permit<AccountId>> {
        if !wait.step_aside() {
            return Err(ServiceError::Overloaded);
        }
        let (runner, account) = (&self.0.runner, plan.caller.account_id);
        let memory = runner.input_memory(account, plan.input_bytes).await;
        if !wait.is_for_credits {
            wait.place = None;
        }
        memory.ok_or_else(|| {
            if self.is_draining() {
                ServiceError::ShuttingDown
            } else {
                ServiceError::Overloaded
            }
        })
    }

    /// Checks properties that only the files show: a mask needs an alpha channel, and a picture
    /// that must match another must not be rotated by EXIF data, which some providers ignore.
    async fn check_pixels(&self, found: &[FoundInput], limits: &InputLimits) -> Result<()> {
        let has_mask = found.iter().any(|input| input.role == InputRole::Mask);
        if !has_mask && !limits.keeps_shape && !limits.outpaints {
            return Ok(());
        }
        let roles = [InputRole::Source, InputRole::Mask];
        for input in found.iter().filter(|input| roles.contains(&input.role)) {
            let (bytes, _reserved) = match &input.file {
                FoundFile::Data(bytes) => (bytes.clone(), None),
                FoundFile::Upload(_, key) | FoundFile::Output { key, .. } => {
                    self.stored_input(input, key).await?
                }
            };
            let kind = input.info.kind;
            let header = offload(move || picture_header(kind, &bytes)).await;
            let header = header.and_then(Result::ok);
            let header = header
                .ok_or_else(|| ServiceError::Internal("a stored picture is broken".to_owned()))?;
            let message = if input.role == InputRole::Mask && !header.has_alpha {
                "must have an alpha channel: transparent where the source is changed"
            } else if header.is_rotated() {
                "is rotated by its EXIF data, which this edit does not support: rotate its pixels"
            } else {
                continue;
            };
            return Err(ServiceError::not_allowed(&input.param, message));
        }
        Ok(())
    }

    /// Reads a stored input, with a reservation of its bytes.
    async fn stored_input(
        &self,
        input: &FoundInput,
        key: &MediaKey,
    ) -> Result<(Bytes, Option<Reservation>)> {
        let reserved = reserve(usize::try_from(input.info.bytes).unwrap_or(usize::MAX))?;
        let bytes = self.0.runner.stored_bytes(key).await.map_err(|error| {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "an input could not be read");
            ServiceError::StorageUnavailable
        })?;
        let message = "names a file that was deleted";
        let bytes = bytes.ok_or_else(|| ServiceError::not_allowed(&input.param, message))?;
        Ok((bytes, reserved))
    }

    async fn find_upload_input(
        &self,
        caller: &Caller,
        param: &str,
        id: UploadId,
    ) -> Result<(MediaInfo, FoundFile)> {
        let (store, now) = (&self.0.store, self.0.clock.now());
        let found = store.upload(caller.account_id, id, now).await?;
        let found = found.and_then(|upload| {
            let key = upload_key(upload.file_id, &upload.content_type)?;
            let info = MediaInfo {
                kind: key.kind,
                bytes: u64::try_from(upload.bytes).ok()?,
                sha256: upload.sha256.try_into().ok()?,
                width: u32::try_from(upload.width).ok(),
                height: u32::try_from(upload.height).ok(),
                seconds: None,
            };
            Some((info, FoundFile::Upload(id, key)))
        });
        found.ok_or_else(|| missing_upload(param))
    }

    async fn find_output(
        &self,
        caller: &Caller,
        param: &str,
        (generation, output): (GenerationId, u16),
        kinds: &[MediaKind],
    ) -> Result<(MediaInfo, FoundFile)> {
        let not_allowed = |message: &str| ServiceError::not_allowed(param, message);
        let found = match self.generation(caller, generation).await {
            Err(ServiceError::NotFound) => {
                return Err(not_allowed("is not a generation of this account"));
            }
            found => found?,
        };
        let may_read = [Ability::ReadHistory, Ability::to_generate(found.modality)];
        if !may_read
            .iter()
            .any(|&ability| caller.abilities.grant(ability))
        {
            let message = format!("needs the ability {} or {}", may_read[0], may_read[1]);
            return Err(not_allowed(&message));
        }
        let (info, key) = file_of(&found, output, kinds).map_err(not_allowed)?;
        let file = FoundFile::Output {
            generation,
            output,
            key,
        };
        Ok((info, file))
    }

    /// Keeps the files of a plan's inputs until its generation no longer needs them, and adds them
    /// to the call and the stored parameters.
    pub(super) async fn keep_inputs(&self, plan: &mut Prepared<'_>) -> Result<()> {
        let caller = plan.caller;
        let period = if plan.is_queued() {
            self.0.settings.job_deadline + KEEP_AFTER_DEADLINE
        } else {
            KEEP_FOR_CALL
        };
        let kept_until = self.0.clock.now() + period;
        let ids = plan.inputs.iter();
        let ids = ids.map(|input| UploadId::of(caller.account_id, &input.info.sha256));
        plan.kept = Some((ids.collect(), kept_until));
        let mut stored = Vec::with_capacity(plan.inputs.len());
        for input in &plan.inputs {
            stored.push(self.keep_input(caller, input, kept_until).await?);
        }
        // From here on the inputs are read from their files, within a separate budget.
        plan.inputs = Vec::new();
        memory::release();
        for candidate in &mut plan.candidates {
            candidate.parameters[INPUTS] = serde_json::json!(stored);
            if let Some(Call::Image(image)) = &mut candidate.call {
                image.inputs.clone_from(&stored);
            }
        }
        Ok(())
    }

    /// Removes the inputs of a refused plan that nothing else uses.
    pub(super) async fn discard_inputs(&self, plan: &Prepared<'_>) {
        let Some((ids, kept_until)) = &plan.kept else {
            return;
        };
        let removing = self.remove_unused(plan.caller, ids, Some(*kept_until));
        if let Err(error) = removing.await {
            tracing::warn!(%error, "inputs of a refused request are removed later");
        }
    }

    async fn keep_input(
        &self,
        caller: &Caller,
        input: &FoundInput,
        kept_until: DateTime<Utc>,
    ) -> Result<StoredInput> {
        let now = self.0.clock.now();
        let mut term = UploadLifetime {
            // The owner sees only uploads, not images sent within requests.
            expires_at: now,
            kept_until,
        };
        let param = &input.param;
        let kept = match &input.file {
            FoundFile::Upload(id, _) => {
                term.expires_at = now + self.0.settings.upload_lifetime;
                let store = &self.0.store;
                let extending = store.extend_upload(caller.account_id, *id, term, true, now);
                extending.await?.ok_or_else(|| missing_upload(param))?
            }
            FoundFile::Data(bytes) => {
                self.keep(caller, param, &input.info, bytes.clone(), term)
                    .await?
            }
            FoundFile::Output { key, .. } => {
                let id = UploadId::of(caller.account_id, &input.info.sha256);
                let store = &self.0.store;
                let extending = store.extend_upload(caller.account_id, id, term, false, now);
                if let Some(kept) = extending.await? {
                    kept
                } else {
                    let (bytes, _reserved) = self.stored_input(input, key).await?;
                    self.keep(caller, param, &input.info, bytes, term).await?
                }
            }
        };
        let key = upload_key(kept.file_id, &kept.content_type);
        let key = key.ok_or_else(|| ServiceError::Internal(format!("{} has no file", kept.id)))?;
        let (width, height) = input.size();
        let (from, upload, generation, output) = match &input.file {
            FoundFile::Upload(id, _) => (InputOrigin::Upload, Some(id.to_string()), None, None),
            FoundFile::Output {
                generation, output, ..
            } => (
                InputOrigin::Generation,
                None,
                Some(generation.0),
                Some(*output),
            ),
            FoundFile::Data(_) => (InputOrigin::Data, None, None, None),
        };
        Ok(StoredInput {
            role: input.role,
            from,
            upload,
            generation,
            output,
            key: key.to_string(),
            content_type: kept.content_type,
            bytes: input.info.bytes,
            sha256: input.info.sha256_hex(),
            width,
            height,
        })
    }
}

fn missing_upload(param: &str) -> ServiceError {
    let message = "is not an upload of this account or has expired; upload the image again";
    ServiceError::not_allowed(param, message)
}

/// Returns a file of one of these kinds of a generation; `Err`: why there is none.
fn file_of(
    found: &Generation,
    output: u16,
    kinds: &[MediaKind],
) -> Result<(MediaInfo, MediaKey), &'static str> {
    match found.status {
        Status::Completed => {}
        Status::Failed => return Err("names a generation that failed"),
        Status::Pending | Status::Processing => {
            return Err("names a generation that is not finished");
        }
    }
    let file: &Output = found
        .outputs
        .get(usize::from(output))
        .ok_or("names a generation without such a file")?;
    let key: Option<MediaKey> = file.key.parse().ok();
    let key = key.filter(|key| kinds.contains(&key.kind));
    let key = key.ok_or(if kinds == VIDEO_KINDS {
        "names a file that is not a video"
    } else {
        "names a file that is not an image"
    })?;
    let info = MediaInfo {
        kind: key.kind,
        bytes: file.bytes,
        sha256: unhex(&file.sha256).ok_or("names a file without a digest")?,
        width: file.width,
        height: file.height,
        seconds: file.seconds,
    };
    Ok((info, key))
}

fn check_limits(input: &FoundInput, limits: &InputLimits) -> Result<()> {
    let (width, height) = input.size();
    let (code, message) = if input.info.bytes > limits.max_bytes as u64 {
        let message = format!("must have at most {} bytes", limits.max_bytes);
        (FieldCode::TooLong, message)
    } else if u64::from(width) * u64::from(height) > limits.max_pixels {
        let message = format!("must have at most {} pixels", limits.max_pixels);
        (FieldCode::OutOfRange, message)
    } else {
        return Ok(());
    };
    let message = format!("{message} for this model");
    Err(ServiceError::field(&input.param, code, message))
}

/// Checks the inputs together: their total size, and that a mask matches its source.
fn check_together(found: &[FoundInput], limits: &InputLimits, quota: i64) -> Result<()> {
    let bytes: u64 = found.iter().map(|input| input.info.bytes).sum();
    let most = limits.max_total_bytes.min(quota.unsigned_abs());
    if bytes > most {
        let message = format!("must have at most {most} bytes in total");
        return Err(ServiceError::field("inputs", FieldCode::TooLong, message));
    }
    let source = found.iter().find(|input| input.role == InputRole::Source);
    let Some((width, height)) = source.map(FoundInput::size) else {
        return Ok(());
    };
    let mut errors = Vec::new();
    for mask in found.iter().filter(|input| input.role == InputRole::Mask) {
        let message = if mask.info.kind != MediaKind::Png {
            "must be a PNG that is transparent where the source is changed".to_owned()
        } else if mask.size() != (width, height) {
            format!("must be {width}x{height}, like its source")
        } else {
            continue;
        };
        errors.push(FieldError::new(&mask.param, FieldCode::NotAllowed, message));
    }
    ServiceError::any(errors)
}
