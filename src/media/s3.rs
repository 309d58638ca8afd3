//! An S3-compatible store as a place for files.

use std::{fmt, path::Path, time::Duration};

use bytes::BytesMut;
use object_store::{
    Attribute, Attributes, BackoffConfig, ClientOptions, RetryConfig, WriteMultipart,
    aws::{AmazonS3, AmazonS3Builder},
};
use secrecy::{ExposeSecret, SecretString};
use tokio::io::AsyncReadExt;
use url::Url;

use super::{MediaKey, MediaStoreError};

/// The size of a part of a large upload, in bytes; S3 takes 5 MiB at least.
pub(super) const PART: usize = 8 << 20;

/// How many parts are under way at once.
const PARTS_AT_ONCE: usize = 2;

/// What is read from a file at once, in bytes.
const PIECE: usize = 256 << 10;

/// How long one request may take, with its body of at most a part.
const REQUEST_TIME: Duration = Duration::from_mins(1);

/// How long the connection may take.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// How long a failing request is repeated.
const RETRY_TIME: Duration = Duration::from_secs(20);

/// How often a failing request is repeated.
const RETRIES: usize = 3;

/// Where an S3-compatible store is, and how to get in.
#[derive(Clone)]
pub struct S3Settings {
    /// The bucket, which must exist.
    pub bucket: String,
    /// Its region; `us-east-1` where a compatible server has none.
    pub region: String,
    /// The server, for others than AWS: `https://host:port`. It must be reachable for clients
    /// too, who are sent there. http is taken as written.
    pub endpoint: Option<Url>,
    /// Whether the bucket is a part of the host name instead of the path.
    pub virtual_hosted: bool,
    /// Key id and secret. Without them, those of the machine's role on AWS.
    pub credentials: Option<(String, SecretString)>,
    /// The token that belongs to temporary credentials.
    pub session_token: Option<SecretString>,
    /// What all keys begin with, without slashes at its ends; may be empty.
    pub prefix: String,
}

impl fmt::Debug for S3Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Settings")
            .field("bucket", &self.bucket)
            .field("region", &self.region)
            .field("endpoint", &self.endpoint.as_ref().map(Url::as_str))
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// The client. Nothing is sent yet.
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

/// What the bucket tells those who open a link to the file.
pub(super) fn attributes(key: &MediaKey) -> Attributes {
    Attributes::from_iter([
        (Attribute::ContentType, key.kind().content_type()),
        (Attribute::ContentDisposition, "inline"),
        (Attribute::CacheControl, "private, max-age=3600"),
    ])
}

/// Sends a file's bytes, holding three parts in memory at most.
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
