//! The stylesheet and the script, under names that change with what is in them.

use std::sync::LazyLock;

use axum::{
    extract::Path,
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as URL_SAFE_NO_PAD};
use http::{HeaderName, header};
use sha2::{Digest as _, Sha256};

use super::client::Problem;

/// Kept for a year: another content has another name.
const FOR_EVER: (HeaderName, &str) = (header::CACHE_CONTROL, "public, max-age=31536000, immutable");

pub struct Asset {
    name: String,
    content_type: &'static str,
    text: &'static str,
}

impl Asset {
    fn new(name: &str, extension: &str, content_type: &'static str, text: &'static str) -> Self {
        let digest = Sha256::digest(text.as_bytes());
        // 72 bits tell versions apart.
        let hash = URL_SAFE_NO_PAD.encode(&digest[..9]);
        Self {
            name: format!("{name}-{hash}.{extension}"),
            content_type,
            text,
        }
    }

    pub fn path(&self) -> String {
        format!("/assets/{}", self.name)
    }
}

pub static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("console.css");
    Asset::new("console", "css", "text/css; charset=utf-8", text)
});

pub static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("console.js");
    Asset::new("console", "js", "text/javascript; charset=utf-8", text)
});

pub async fn file(Path(name): Path<String>) -> Response {
    let found = [&*STYLE, &*SCRIPT]
        .into_iter()
        .find(|asset| asset.name == name);
    match found {
        Some(asset) => {
            let content_type = (header::CONTENT_TYPE, asset.content_type);
            let nosniff = (header::X_CONTENT_TYPE_OPTIONS, "nosniff");
            ([FOR_EVER, content_type, nosniff], asset.text).into_response()
        }
        None => Problem::not_found().into_response(),
    }
}
