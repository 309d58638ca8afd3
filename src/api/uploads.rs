//! Uploads: pictures to use as inputs of generations.

use axum::{
    Json,
    response::{IntoResponse as _, Response},
};
use chrono::{DateTime, Utc};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    MediaLinks,
    body::RawBody,
    error::ApiError,
    extract::{Authorized, NoQuery, PathId, Query, UsePictures},
    record::{self, PageBody},
};
use crate::{
    domain::{clock::rfc3339, ids::UploadId, page::PageOf},
    jobs::upload_key,
    media::{PICTURE_KINDS, hex},
    store::uploads::UploadRecord,
};

const UPLOADS: &str = "/v1/uploads";

/// An uploaded image.
#[derive(Debug, Serialize, ToSchema)]
pub struct UploadBody {
    /// Its id, for `inputs[].upload`.
    #[schema(value_type = String, pattern = "^upl_[0-9a-f]{32}$")]
    pub id: UploadId,
    /// Media type.
    #[schema(example = "image/png")]
    pub r#type: String,
    /// Pixels, as displayed.
    pub width: i32,
    /// Pixels, as displayed.
    pub height: i32,
    /// Length in bytes.
    pub bytes: i64,
    /// SHA-256, hexadecimal.
    pub sha256: String,
    /// Link to the file; every lookup signs a new one.
    pub url: String,
    /// When it was uploaded.
    #[serde(serialize_with = "rfc3339")]
    pub created_at: DateTime<Utc>,
    /// When it is deleted, unless it is used before then.
    #[serde(serialize_with = "rfc3339")]
    pub expires_at: DateTime<Utc>,
}

impl UploadBody {
    fn of(upload: UploadRecord, links: &MediaLinks) -> Self {
        let key = upload_key(upload.file_id, &upload.content_type);
        Self {
            id: upload.id,
            url: key.map_or_else(String::new, |key| links.url(&key.to_string())),
            r#type: upload.content_type,
            width: upload.width,
            height: upload.height,
            bytes: upload.bytes,
            sha256: hex(&upload.sha256),
            created_at: upload.created_at,
            expires_at: upload.expires_at,
        }
    }
}

/// Upload an image
///
/// For `inputs` of images and videos. The body is the file itself: a PNG, JPEG or WebP of at most
/// 20 MiB and 40 megapixels, not animated. Free. Equal bytes of an account have the same id;
/// another upload or use extends `expires_at`. Needs any ability `generate:*`.
#[utoipa::path(
    post, path = UPLOADS, tag = "uploads",
    request_body(content(
        (Vec<u8> = "image/png"), (Vec<u8> = "image/jpeg"), (Vec<u8> = "image/webp"),
    )),
    responses((status = 201, description = "The upload", body = UploadBody)),
)]
pub async fn create(
    auth: Authorized<UsePictures>,
    _query: NoQuery,
    body: RawBody,
) -> Result<Response, ApiError> {
    let claimed = PICTURE_KINDS
        .into_iter()
        .find(|kind| kind.content_type() == body.media_type)
        .ok_or_else(|| ApiError::media_type("image/png, image/jpeg or image/webp"))?;
    let made = auth.service.upload(&auth.caller, claimed, body.bytes);
    let body = UploadBody::of(made.await?, auth.links());
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

/// List uploads
///
/// Newest first.
#[utoipa::path(
    get, path = UPLOADS, tag = "uploads",
    responses((status = 200, description = "A page of uploads", body = PageBody<UploadBody>)),
)]
pub async fn list(
    auth: Authorized<UsePictures>,
    Query(PageOf(page)): Query<PageOf<b'g'>>,
) -> Result<Response, ApiError> {
    let (store, now) = (auth.service.store(), auth.service.now());
    let found = store.uploads(auth.caller.account_id, &page, now).await?;
    Ok(record::page(found, &auth.uri, |upload| {
        UploadBody::of(upload, auth.links())
    }))
}

/// Look up an upload
#[utoipa::path(
    get, path = "/v1/uploads/{id}", tag = "uploads",
    responses((status = 200, description = "The upload", body = UploadBody)),
)]
pub async fn get(
    auth: Authorized<UsePictures>,
    PathId(id): PathId<UploadId>,
    _query: NoQuery,
) -> Result<Json<UploadBody>, ApiError> {
    let found = auth.service.find_upload(&auth.caller, id).await?;
    Ok(Json(UploadBody::of(found, auth.links())))
}

/// Delete an upload
///
/// Accepted generations are not affected: the file is kept until they no longer need it, at most an
/// hour after their deadline. Otherwise the file is removed immediately.
#[utoipa::path(
    delete, path = "/v1/uploads/{id}", tag = "uploads",
    responses((status = 204, description = "Deleted")),
)]
pub async fn delete(
    auth: Authorized<UsePictures>,
    PathId(id): PathId<UploadId>,
    _query: NoQuery,
) -> Result<StatusCode, ApiError> {
    auth.service.delete_upload(&auth.caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
