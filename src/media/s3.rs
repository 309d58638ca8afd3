//! An S3-compatible store.

use std::{path::Path, time::Duration};

use bytes::BytesMut;
use object_store::{
    Attribute, Attributes, BackoffConfig, ClientOptions, RetryConfig, WriteMultipart,
    aws::{AmazonS3, AmazonS3Builder},
};
use secrecy::{ExposeSecret, SecretString};
use tokio::io::AsyncReadExt;
use url::{Host, Origin, Url};

use super::{MediaKey, MediaStoreError};

/// Bytes of a part of a multipart upload; S3 requires at least 5 MiB.
pub(super) const PART: usize = 8 << 20;

/// Parts that are uploaded concurrently.
const PARTS_AT_ONCE: usize = 2;

/// Bytes that are read from a file at a time.
const PIECE: usize = 256 << 10;

/// Maximum time of a request, including its body of at most a part.
const REQUEST_TIME: Duration = Duration::from_mins(1);

const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Maximum time of a request's retries.
const RETRY_TIME: Duration = Duration::from_secs(20);

/// Maximum number of a request's retries.
const RETRIES: usize = 3;

/// Address and credentials of an S3-compatible store.
#[derive(Debug, Clone)]
pub struct S3Settings {
    /// Must exist.
    pub bucket: String,
    /// The region; `us-east-1` for a compatible server without regions.
    pub region: String,
    /// The URL of a server other than AWS: `https://host:port` or http. Clients are redirected to
    /// it, so they must be able to reach it.
    pub endpoint: Option<Url>,
    /// Whether the bucket is part of the host name instead of the path.
    pub virtual_hosted: bool,
    /// Key id and secret; without them, the instance's role on AWS.
    pub credentials: Option<(String, SecretString)>,
    /// The session token of temporary credentials.
    pub session_token: Option<SecretString>,
    /// Prefix of all keys, without leading or trailing slash; may be empty.
    pub prefix: String,
}

impl S3Settings {
    pub(super) fn origin(&self) -> Origin {
        match &self.endpoint {
            Some(endpoint) => endpoint.origin(),
            None => {
                let region = format!("s3.{}.amazonaws.com", self.region);
                let host = if self.virtual_hosted {
                    format!("{}.{region}", self.bucket)
                } else {
                    region
                };
                Origin::Tuple("https".to_owned(), Host::Domain(host), 443)
            }
        }
    }
}

/// Builds the client without sending anything.
pub(super) fn connect(settings: &S3Settings) -> Result<AmazonS3, object_store::Error> {
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: RETRIES,
        retry_timeout: RETRY_TIME,
    };
    let plain = settings
        .endpoint
        .as_ref()
        .is_some_and(|endpoint| endpoint.scheme() == "http");
    let client = ClientOptions::new()
        .with_timeout(REQUEST_TIME)
        .with_connect_timeout(CONNECT_TIME)
        .with_allow_http(plain);
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&settings.bucket)
        .with_region(&settings.region)
        .with_virtual_hosted_style_request(settings.virtual_hosted)
        .with_retry(retry)
        .with_client_options(client);
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_endpoint(endpoint.as_str().trim_end_matches('/'));
    }
    if let Some((id, secret)) = &settings.credentials {
        builder = builder
            .with_access_key_id(id)
            .with_secret_access_key(secret.expose_secret());
    }
    if let Some(token) = &settings.session_token {
        builder = builder.with_token(token.expose_secret());
    }
    builder.build()
}

/// Returns the response headers that the bucket sends when a link is opened.
pub(super) fn attributes(key: &MediaKey) -> Attributes {
    Attributes::from_iter([
        (Attribute::ContentType, key.kind.content_type()),
        (Attribute::ContentDisposition, "inline"),
        (Attribute::CacheControl, "private, max-age=3600"),
    ])
}

/// Uploads a file, with at most three parts in memory.
pub(super) async fn send(upload: &mut WriteMultipart, path: &Path) -> Result<(), MediaStoreError> {
    let mut file = tokio::fs::File::open(path).await?;
    loop {
        let mut piece = BytesMut::with_capacity(PIECE);
        if file.read_buf(&mut piece).await? == 0 {
            return Ok(());
        }
        upload.wait_for_capacity(PARTS_AT_ONCE).await?;
        upload.put(piece.freeze());
    }
}
