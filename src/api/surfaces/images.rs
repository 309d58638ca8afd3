//! POST /openai/v1/images/generations and /openai/v1/images/edits.

use std::io;

use axum::{
    Json,
    body::{Body, Bytes},
    response::{IntoResponse as _, Response},
};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use http::header;
use serde_json::json;
use tokio::task::yield_now;

use super::{SdkHeaders, SdkRequest};
use crate::{
    api::{
        ApiState,
        body::JsonBody,
        context::Sdk,
        error::ApiError,
        extract::{Authorized, GenerateImage},
        multipart,
        record::mark_replay,
    },
    dialect::images::{EditsRequest, ImageFormat, ImagesRequest},
    domain::{generation::Output, pricing::Quality},
    media::{MediaKey, MediaStoreError},
};

const IMAGES: &str = "/openai/v1/images/generations";
const EDITS: &str = "/openai/v1/images/edits";

/// Generate images
///
/// For the `openai` packages. Holds, charges and stores like POST /v1/generate/image. Each image is
/// returned as a link and in base64, unless `response_format` selects one of them.
#[utoipa::path(
    post, path = IMAGES, tag = "openai", params(SdkHeaders),
    responses((status = 200, description = "The images, only those that were made and billed", body = Object)),
)]
pub async fn images(
    auth: Authorized<GenerateImage>,
    body: JsonBody<ImagesRequest>,
) -> Result<Response, ApiError> {
    let reading = SdkRequest::new(Sdk::OpenAi, auth, IMAGES, &[], body);
    let (call, body) = reading.await?;
    answered(call, body.read()?).await
}

/// Edit images
///
/// For the `openai` packages, which send `multipart/form-data` with the files `image` or `image[]`
/// and `mask`; the other fields are the same as in JSON. Holds, charges and stores like POST
/// /v1/generate/image: the first image is the source, the others are references.
#[utoipa::path(
    post, path = EDITS, tag = "openai", params(SdkHeaders),
    responses((status = 200, description = "The images, only those that were made and billed", body = Object)),
)]
pub async fn edits(
    auth: Authorized<GenerateImage>,
    body: JsonBody<EditsRequest>,
) -> Result<Response, ApiError> {
    let reading = SdkRequest::new(Sdk::OpenAi, auth, EDITS, &[("inputs", "images")], body);
    let (mut call, body) = reading.await?;
    let is_form = body.is_form;
    let EditsRequest(mut request) = body.off_thread(JsonBody::read).await?;
    if is_form {
        call.names = &[("inputs", "image")];
        for input in &mut request.request.inputs {
            input.sdk_field = input.sdk_field.as_deref().map(multipart::field);
        }
    }
    answered(call, request).await
}

async fn answered(call: SdkRequest, request: ImagesRequest) -> Result<Response, ApiError> {
    let ImagesRequest {
        request,
        format,
        left_out,
    } = request;
    let (record, is_replay) = call.files(request.into()).await?;
    let image = |output: &Output| {
        let mut image = json!({});
        if format != Some(ImageFormat::Base64) {
            image["url"] = call.state.links().url(&output.key).into();
        }
        if format != Some(ImageFormat::Url) {
            image["b64_json"] = PLACE.into();
        }
        image
    };
    let is_hd = record.parameters["quality"] == Quality::Hd.as_str();
    let mut answer = json!({
        "created": record.created_at.timestamp(),
        "data": record.outputs.iter().map(image).collect::<Vec<_>>(),
        "output_format": "png",
        "quality": if is_hd { "high" } else { "medium" },
        "size": record.parameters["size"].as_str().unwrap_or_default(),
    });
    if let Some(background) = record.parameters.get("background") {
        answer["background"] = background.clone();
    }
    let made = if format == Some(ImageFormat::Url) {
        Ok(Json(answer).into_response())
    } else {
        streamed(&call.state, &answer.to_string(), &record.outputs).await
    };
    let response = call.of_files(made, &record, &left_out);
    Ok(mark_replay(response, is_replay))
}

/// Bytes that are encoded at a time; a multiple of 3.
const PIECE: usize = 48 << 10;
/// Placeholder of a file's data until it is sent. No other string of the response contains it.
const PLACE: &str = "\u{0}";

/// Sends a response and replaces each [`PLACE`] by a file. Files are read as fast as the client
/// reads.
async fn streamed(
    state: &ApiState,
    answer: &str,
    outputs: &[Output],
) -> Result<Response, ApiError> {
    let mut files = Vec::with_capacity(outputs.len());
    let mut length = 0;
    // All files exist before the 200 is sent. If one cannot be read later, the connection closes.
    for output in outputs {
        let key: MediaKey = output.key.parse().map_err(|_| ApiError::internal())?;
        let head = state.settings.storage.head(&key).await?;
        let head = head.ok_or_else(|| ApiError::not_found("the file was deleted"))?;
        length += head.bytes.div_ceil(3) * 4;
        files.push(Some(key));
    }
    files.push(None);
    let texts: Vec<_> = answer.split("\\u0000").map(str::to_owned).collect();
    length += texts.iter().map(|text| text.len() as u64).sum::<u64>();
    let storage = state.settings.storage.clone();
    let pieces = stream::iter(texts.into_iter().zip(files)).then(move |(text, key)| {
        let storage = storage.clone();
        async move {
            let text = stream::once(async { Ok(Bytes::from(text)) });
            let Some(key) = key else {
                return Ok(text.boxed());
            };
            let file = storage.get(&key, None).await.map_err(io::Error::other)?;
            let file = file.ok_or(io::ErrorKind::NotFound)?;
            Ok::<_, io::Error>(text.chain(base64(file.body)).boxed())
        }
    });
    let about = [
        (header::CONTENT_TYPE, "application/json".to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
    ];
    Ok((about, Body::from_stream(pieces.try_flatten())).into_response())
}

/// Encodes a file in pieces.
fn base64(
    file: impl Stream<Item = Result<Bytes, MediaStoreError>> + Send + Unpin + 'static,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    // Bytes that are not encoded yet, and whether the file has ended.
    let state = (file, Bytes::new(), false);
    stream::try_unfold(state, |(mut file, mut rest, mut has_ended)| async move {
        while rest.len() < 3 && !has_ended {
            match file.try_next().await.map_err(io::Error::other)? {
                None => has_ended = true,
                Some(piece) if rest.is_empty() => rest = piece,
                Some(piece) => rest = [&rest[..], &piece].concat().into(),
            }
        }
        if rest.is_empty() {
            return Ok(None);
        }
        let length = match rest.len() {
            short @ ..3 => short,
            long => PIECE.min(long / 3 * 3),
        };
        // Yields between the pieces of a chunk.
        yield_now().await;
        let encoded = BASE64_STANDARD.encode(rest.split_to(length));
        Ok(Some((Bytes::from(encoded), (file, rest, has_ended))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_are_encoded_as_one_file() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        for sizes in [
            vec![],
            vec![1],
            vec![1, 1, 1, 1],
            vec![2, 3, 4, 5],
            vec![100_001, 1, 70_000],
        ] {
            let total: usize = sizes.iter().sum();
            let mut rest = Bytes::from(bytes[..total].to_vec());
            let pieces: Vec<_> = sizes.iter().map(|&size| Ok(rest.split_to(size))).collect();
            let encoded: Vec<Bytes> = base64(stream::iter(pieces)).try_collect().await.unwrap();
            assert!(encoded.iter().all(|piece| piece.len() <= PIECE / 3 * 4));
            let expected = BASE64_STANDARD.encode(&bytes[..total]);
            assert_eq!(encoded.concat(), expected.as_bytes(), "{sizes:?}");
        }
    }
}
