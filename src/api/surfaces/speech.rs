//! POST /openai/v1/audio/speech.

use axum::{
    body::Body,
    response::{IntoResponse as _, Response},
};
use http::header;

use super::{SdkHeaders, SdkRequest, headers};
use crate::{
    api::{
        body::JsonBody,
        context::Sdk,
        error::ApiError,
        extract::{Authorized, GenerateAudio},
        record::mark_replay,
    },
    domain::dialect::speech::SpokenRequest,
    media::MediaKey,
};

const SPEECH: &str = "/openai/v1/audio/speech";
/// Fields that POST /v1/generate/audio has under other names.
const RENAMED: &[(&str, &str)] = &[("prompt", "input"), ("format", "response_format")];

/// Generate speech
///
/// For the `openai` packages. Held, charged and stored as by POST /v1/generate/audio; the answer is
/// the stored file.
#[utoipa::path(
    post, path = SPEECH, tag = "openai", params(SdkHeaders),
    responses(
        (status = 200, description = "The file",
            content((String = "audio/mpeg"), (String = "audio/wav"))),
    ),
)]
pub async fn speech(
    auth: Authorized<GenerateAudio>,
    body: JsonBody<SpokenRequest>,
) -> Result<Response, ApiError> {
    let reading = SdkRequest::new(Sdk::OpenAi, auth, SPEECH, RENAMED, body);
    let (call, body) = reading.await?;
    let SpokenRequest(request) = body.read()?;
    let (record, is_replay) = call.files(request.into()).await?;
    let output = record.outputs.first().ok_or_else(ApiError::internal)?;
    let key: MediaKey = output.key.parse().map_err(|_| ApiError::internal())?;
    let file = call.state.settings.storage.get(&key, None).await?;
    let file = file.ok_or_else(|| ApiError::not_found("the file was deleted"))?;
    let about = [
        (header::CONTENT_TYPE, output.content_type.clone()),
        (header::CONTENT_LENGTH, file.head.bytes.to_string()),
    ];
    let mut response = (about, Body::from_stream(file.body)).into_response();
    let headers = headers(&call.state.service, &record, &[], true);
    response.headers_mut().extend(headers);
    Ok(mark_replay(response, is_replay))
}
