//! POST /openai/v1/images/generations.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use futures_util::TryStreamExt as _;
use http::HeaderMap;

use super::{Call, Headers, RequestId, Sdk, SdkHeaders, file, idempotent, marked};
use crate::{
    api::{
        ApiState,
        admission::RequestPermit,
        body::JsonBody,
        error::ApiError,
        extract::{Authorized, GenerateImage},
    },
    domain::{
        dialect::images::{ImageAnswer, ImageFormat, ImagesAnswer, ImagesRequest},
        generation::Output,
    },
};

const IMAGES: &str = "/openai/v1/images/generations";

/// Generate images
///
/// For the `openai` packages. Held, charged and stored as by POST /v1/generate/image; each image is
/// answered as a link and in base64, unless `response_format` asks for one of them.
#[utoipa::path(
    post, path = IMAGES, tag = "openai", params(SdkHeaders),
    responses((status = 200, description = "The images", body = ImagesAnswer)),
)]
pub async fn images(
    State(state): State<ApiState>,
    auth: Authorized<GenerateImage>,
    headers: HeaderMap,
    permit: RequestPermit,
    request_id: RequestId,
    body: JsonBody<ImagesRequest>,
) -> Result<Response, ApiError> {
    let (key, body) = idempotent(&auth.caller, headers, IMAGES, body).await?;
    let ImagesRequest { request, format } = body.read()?;
    let call = Call {
        sdk: Sdk::OpenAi,
        state,
        caller: auth.caller,
        permit,
        request_id,
        key,
        names: &[],
    };
    let (record, is_replay) = call.files(request.into()).await?;
    let mut data = Vec::with_capacity(record.outputs.len());
    for output in &record.outputs {
        data.push(ImageAnswer {
            url: (format != Some(ImageFormat::Base64)).then(|| call.state.links().url(&output.key)),
            b64_json: match format {
                Some(ImageFormat::Url) => None,
                _ => Some(base64(&call.state, output).await?),
            },
        });
    }
    let answer = ImagesAnswer {
        created: record.created_at.timestamp(),
        data,
        output_format: "png",
        size: record.parameters["size"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    };
    let response = Headers::of(&record, &[]).on(Json(answer).into_response());
    Ok(marked(response, is_replay))
}

async fn base64(state: &ApiState, output: &Output) -> Result<String, ApiError> {
    let pieces = file(state, output).await?.body;
    let bytes = pieces.try_fold(Vec::new(), |mut bytes, piece| async move {
        bytes.extend_from_slice(&piece);
        Ok(bytes)
    });
    Ok(BASE64_STANDARD.encode(bytes.await?))
}
