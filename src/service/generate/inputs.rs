//! The inputs of a request: found and checked before the hold, and kept until the generation no
//! longer needs them.

use std::sync::Arc;

use bytes::Bytes;
use chrono::TimeDelta;

use super::Prepared;
use crate::{
    domain::{
        ability::Ability,
        catalogue::InputLimits,
        generation::{Generation, Output, Status},
        ids::{GenerationId, UploadId},
        inputs::{INPUTS, InputOrigin, StoredInput},
        request::{InputFrom, InputRequest, InputRole, MAX_ALL_INPUT_BYTES},
        validate::{FieldCode, FieldError},
    },
    jobs::{Call, upload_key},
    media::{MediaInfo, MediaKey, MediaKind, PICTURE_KINDS},
    memory,
    service::{
        Service, ServiceError,
        auth::Caller,
        uploads::{check, invalid},
    },
    store::uploads::UploadTerm,
};

/// How much longer than its deadline a job's inputs are kept: a request may wait for credits before
/// its job is created, and its last step may run late.
const KEPT_LONGER: TimeDelta = TimeDelta::hours(1);

/// An input that was found and checked.
pub(super) struct FoundInput {
    role: InputRole,
    /// The field that names it, for errors.
    param: String,
    info: MediaInfo,
    file: FoundFile,
}

enum FoundFile {
    Upload(UploadId),
    Output {
        generation: GenerationId,
        output: u16,
        key: MediaKey,
    },
    Data(Bytes),
}

impl FoundInput {
    pub(super) const fn role(&self) -> InputRole {
        self.role
    }

    pub(super) fn size(&self) -> (u32, u32) {
        let side = |side: Option<u32>| side.unwrap_or_default();
        (side(self.info.width), side(self.info.height))
    }

    /// Its line of an estimate: role, SHA-256 and pixels.
    pub(super) fn described(&self) -> (InputRole, String, (u32, u32)) {
        (self.role, self.info.sha256_hex(), self.size())
    }
}

impl Service {
    /// Finds and checks inputs. Stores nothing.
    pub(super) async fn find_inputs(
        &self,
        caller: &Caller,
        inputs: Vec<InputRequest>,
        limits: Option<&InputLimits>,
    ) -> Result<Vec<FoundInput>, ServiceError> {
        let mut found = Vec::with_capacity(inputs.len());
        for (at, InputRequest { role, from }) in inputs.into_iter().enumerate() {
            let param = format!("inputs[{at}].{}", from.field());
            let (info, file) = match from {
                InputFrom::Upload(id) => self.find_upload_input(caller, &param, id).await?,
                InputFrom::Output { generation, output } => {
                    let finding = self.find_output(caller, &param, generation, output);
                    finding.await?
                }
                InputFrom::Data(bytes) => {
                    let reserved = memory::current();
                    if reserved.is_some_and(|reserved| !reserved.try_add(bytes.len())) {
                        return Err(ServiceError::Overloaded);
                    }
                    let info = check(caller, &param, bytes.clone()).await?;
                    (info, FoundFile::Data(bytes))
                }
            };
            if let Some(limits) = limits
                && info.bytes > limits.max_bytes as u64
            {
                let message = format!(
                    "must have at most {} bytes for this model",
                    limits.max_bytes
                );
                return Err(invalid(&param, FieldCode::TooLong, message));
            }
            found.push(FoundInput {
                role,
                param,
                info,
                file,
            });
        }
        check_together(&found)?;
        Ok(found)
    }

    async fn find_upload_input(
        &self,
        caller: &Caller,
        param: &str,
        id: UploadId,
    ) -> Result<(MediaInfo, FoundFile), ServiceError> {
        let (store, now) = (&self.0.store, self.0.clock.now());
        let found = store.upload(caller.account_id, id, now).await?;
        let info = found.and_then(|upload| {
            let mut kinds = PICTURE_KINDS.into_iter();
            Some(MediaInfo {
                kind: kinds.find(|kind| kind.content_type() == upload.content_type)?,
                bytes: u64::try_from(upload.bytes).ok()?,
                sha256: upload.sha256.try_into().ok()?,
                width: u32::try_from(upload.width).ok(),
                height: u32::try_from(upload.height).ok(),
                seconds: None,
            })
        });
        let info = info.ok_or_else(|| gone(param))?;
        Ok((info, FoundFile::Upload(id)))
    }

    async fn find_output(
        &self,
        caller: &Caller,
        param: &str,
        generation: GenerationId,
        output: u16,
    ) -> Result<(MediaInfo, FoundFile), ServiceError> {
        let not_allowed = |message: &str| invalid(param, FieldCode::NotAllowed, message);
        let found = match self.generation(caller, generation).await {
            Err(ServiceError::NotFound) => {
                return Err(not_allowed("names no generation of this account"));
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
        let (info, key) = image_of(&found, output).map_err(not_allowed)?;
        let file = FoundFile::Output {
            generation,
            output,
            key,
        };
        Ok((info, file))
    }

    /// Keeps the files of a plan's inputs until its generation no longer needs them, and makes them
    /// part of what is run and stored.
    pub(super) async fn keep_inputs(
        &self,
        caller: &Caller,
        plan: &mut Prepared<'_>,
    ) -> Result<(), ServiceError> {
        let mut stored = Vec::with_capacity(plan.inputs.len());
        for input in &plan.inputs {
            stored.push(self.keep_input(caller, input).await?);
        }
        // From here on they are read from their files, within a budget of their own.
        plan.inputs = Vec::new();
        memory::release();
        let work = Arc::get_mut(&mut plan.work);
        let work =
            work.ok_or_else(|| ServiceError::Internal("an unplaced hold is in use".to_owned()))?;
        work.new.parameters[INPUTS] = serde_json::json!(stored);
        if let Some(Call::Image(image)) = &mut work.call {
            image.inputs = stored;
        }
        Ok(())
    }

    async fn keep_input(
        &self,
        caller: &Caller,
        input: &FoundInput,
    ) -> Result<StoredInput, ServiceError> {
        let (runner, now) = (&self.0.runner, self.0.clock.now());
        let kept_until = now + self.0.settings.job_deadline + KEPT_LONGER;
        let mut term = UploadTerm {
            // Only an upload is seen by its owner.
            expires_at: now,
            kept_until,
        };
        let param = &input.param;
        let kept = match &input.file {
            FoundFile::Upload(id) => {
                term.expires_at = now + self.0.settings.uploads.lifetime;
                let store = &self.0.store;
                let extending = store.extend_upload(caller.account_id, *id, term, true, now);
                extending.await?.ok_or_else(|| gone(param))?
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
                    let bytes = runner.stored_bytes(key).await.map_err(|error| {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(error, "an input could not be read");
                        ServiceError::StorageUnavailable
                    })?;
                    let message = "names a file that was deleted";
                    let bytes =
                        bytes.ok_or_else(|| invalid(param, FieldCode::NotAllowed, message))?;
                    self.keep(caller, param, &input.info, bytes, term).await?
                }
            }
        };
        let key = upload_key(kept.file_id, &kept.content_type);
        let key = key.ok_or_else(|| ServiceError::Internal(format!("{} has no file", kept.id)))?;
        let (width, height) = input.size();
        let mut stored = StoredInput {
            role: input.role,
            from: InputOrigin::Data,
            upload: None,
            generation: None,
            output: None,
            key: key.to_string(),
            content_type: kept.content_type,
            bytes: input.info.bytes,
            sha256: input.info.sha256_hex(),
            width,
            height,
        };
        match &input.file {
            FoundFile::Upload(id) => {
                stored.from = InputOrigin::Upload;
                stored.upload = Some(id.to_string());
            }
            FoundFile::Output {
                generation, output, ..
            } => {
                stored.from = InputOrigin::Generation;
                stored.generation = Some(generation.0);
                stored.output = Some(*output);
            }
            FoundFile::Data(_) => {}
        }
        Ok(stored)
    }
}

fn gone(param: &str) -> ServiceError {
    let message = "names no upload of this account; it may have expired: upload the picture again";
    invalid(param, FieldCode::NotAllowed, message)
}

/// An image among the files of a generation; `Err`: why there is none.
fn image_of(found: &Generation, output: u16) -> Result<(MediaInfo, MediaKey), &'static str> {
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
    let key = key.filter(|key| PICTURE_KINDS.contains(&key.kind()));
    let key = key.ok_or("names a file that is no image")?;
    let info = MediaInfo {
        kind: key.kind(),
        bytes: file.bytes,
        sha256: MediaInfo::unhex(&file.sha256).ok_or("names a file without a digest")?,
        width: file.width,
        height: file.height,
        seconds: None,
    };
    Ok((info, key))
}

/// What inputs must be together: not too large, and a mask like its source.
fn check_together(found: &[FoundInput]) -> Result<(), ServiceError> {
    let bytes: u64 = found.iter().map(|input| input.info.bytes).sum();
    if bytes > MAX_ALL_INPUT_BYTES {
        let message = format!("must have at most {MAX_ALL_INPUT_BYTES} bytes together");
        return Err(invalid("inputs", FieldCode::TooLong, message));
    }
    let mut errors = Vec::new();
    let source = found.iter().find(|input| input.role == InputRole::Source);
    let masks = found.iter().filter(|input| input.role == InputRole::Mask);
    for (mask, source) in masks.zip(std::iter::repeat(source)) {
        let Some((width, height)) = source.map(FoundInput::size) else {
            continue;
        };
        let mut refuse = |message: String| {
            errors.push(FieldError::new(&mask.param, FieldCode::NotAllowed, message));
        };
        if mask.info.kind != MediaKind::Png {
            refuse("must be a PNG, transparent where the source is to be changed".to_owned());
        } else if mask.size() != (width, height) {
            refuse(format!("must be {width}x{height}, as its source is"));
        }
    }
    ServiceError::any(errors)
}
