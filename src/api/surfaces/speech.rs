//! POST /openai/v1/audio/speech.

use axum::{
    body::Body,
    response::{IntoResponse as _, Response},
};
use bytes::BytesMut;
use futures_util::TryStreamExt as _;
use http::header;

use super::{SdkHeaders, SdkRequest};
use crate::{
    api::{
        body::JsonBody,
        context::Sdk,
        error::ApiError,
        extract::{Authorized, GenerateAudio},
        record::mark_replay,
    },
    dialect::speech::SpokenRequest,
    domain::{
        generation::Generation,
        validate::{FieldCode, FieldError},
    },
    media::{MediaKey, MediaStore, WAV_HEADER_BYTES, is_bare_pcm},
};

const SPEECH: &str = "/openai/v1/audio/speech";
/// Fields whose names in POST /v1/generate/audio differ.
const RENAMED: &[(&str, &str)] = &[("prompt", "input"), ("format", "response_format")];

/// Generate speech
///
/// For the `openai` packages. Holds, charges and stores like POST /v1/generate/audio. The response
/// is the stored file, or its samples for `pcm`.
#[utoipa::path(
    post, path = SPEECH, tag = "openai", params(SdkHeaders),
    responses(
        (status = 200, description = "The file",
            content((String = "audio/mpeg"), (String = "audio/wav"), (String = "audio/pcm"))),
    ),
)]
pub async fn speech(
    auth: Authorized<GenerateAudio>,
    body: JsonBody<SpokenRequest>,
) -> Result<Response, ApiError> {
    let reading = SdkRequest::new(Sdk::OpenAi, auth, SPEECH, RENAMED, body);
    let (call, body) = reading.await?;
    let SpokenRequest(request) = body.read()?;
    let is_pcm = request.is_pcm;
    let (record, is_replay) = call.files(request.into()).await?;
    let made = file(&call, &record, is_pcm).await;
    let response = call.of_files(made, &record, &[]);
    Ok(mark_replay(response, is_replay))
}

/// Returns the file of a generation, or its samples.
async fn file(call: &SdkRequest, record: &Generation, is_pcm: bool) -> Result<Response, ApiError> {
    let output = record.outputs.first().ok_or_else(ApiError::internal)?;
    let key: MediaKey = output.key.parse().map_err(|_| ApiError::internal())?;
    let storage = &call.state.settings.storage;
    let deleted = || ApiError::not_found("the file was deleted");
    let (range, content_type) = if is_pcm {
        let bytes = pcm_file_bytes(storage, &key).await?;
        (
            Some(WAV_HEADER_BYTES..bytes.ok_or_else(deleted)?),
            "audio/pcm",
        )
    } else {
        (None, &*output.content_type)
    };
    let file = storage.get(&key, range).await?.ok_or_else(deleted)?;
    let about = [
        (header::CONTENT_TYPE, content_type.to_owned()),
        (
            header::CONTENT_LENGTH,
            (file.range.end - file.range.start).to_string(),
        ),
    ];
    Ok((about, Body::from_stream(file.body)).into_response())
}

/// Returns the size of a stored WAV, or `None` if it does not exist. Fails unless its samples are
/// 24 kHz mono, because PCM has no header that could describe another format.
async fn pcm_file_bytes(storage: &MediaStore, key: &MediaKey) -> Result<Option<u64>, ApiError> {
    let Some(file) = storage.get(key, Some(0..WAV_HEADER_BYTES)).await? else {
        return Ok(None);
    };
    let header: BytesMut = file.body.try_collect().await?;
    if is_bare_pcm(&header) {
        return Ok(Some(file.head.bytes));
    }
    let message = "cannot be pcm: the provider did not produce 24 kHz mono; request wav. The \
                   recording was charged and is in the history";
    let error = FieldError::new("response_format", FieldCode::NotSupported, message);
    Err(ApiError::invalid(vec![error]))
}
