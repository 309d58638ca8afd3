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
    offload::{for_account, offload},
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
    let (key, body) = idempotent(&auth, headers, IMAGES, body).await?;
    let ImagesRequest { request, format } = body.read()?;
    let account = auth.caller.account_id;
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
    let mut images = Vec::with_capacity(record.outputs.len());
    for output in &record.outputs {
        let url =
            (format != Some(ImageFormat::Base64)).then(|| call.state.links().url(&output.key));
        let bytes = match format {
            Some(ImageFormat::Url) => None,
            _ => Some(read(&call.state, output).await?),
        };
        images.push((url, bytes));
    }
    let created = record.created_at.timestamp();
    let size = record.parameters["size"].as_str().unwrap_or_default();
    let size = size.to_owned();
    let answered = offload(move || {
        let image = |(url, bytes): (_, Option<Vec<u8>>)| ImageAnswer {
            url,
            b64_json: bytes.map(|bytes| BASE64_STANDARD.encode(bytes)),
        };
        let answer = ImagesAnswer {
            created,
            data: images.into_iter().map(image).collect(),
            output_format: "png",
            size,
        };
        Json(answer).into_response()
    });
    let response = for_account(account, answered)
        .await
        .ok_or_else(ApiError::internal)?;
    Ok(marked(Headers::of(&record, &[]).on(response), is_replay))
}

async fn read(state: &ApiState, output: &Output) -> Result<Vec<u8>, ApiError> {
    let pieces = file(state, output).await?.body;
    let bytes = pieces.try_fold(Vec::new(), |mut bytes, piece| async move {
        bytes.extend_from_slice(&piece);
        Ok(bytes)
    });
    Ok(bytes.await?)
}
