//! Creates the file store, the downloader and the signer of links.

use chrono::TimeDelta;
use url::Url;

use super::AppError;
use crate::{
    api::MediaLinks,
    config::Config,
    domain::{clock::SharedClock, token},
    media::{DownloadSettings, Downloader, MediaSigner, MediaStore, S3Settings},
    store::Store,
};

/// Name of the links' secret in the database.
const SECRET: &str = "media";

pub(super) async fn open(config: &Config) -> Result<MediaStore, AppError> {
    let path = config.data.dir.join("media");
    match &config.media.s3 {
        None => MediaStore::open(path.clone())
            .await
            .map_err(|source| AppError::Folder { path, source }),
        Some(s3) => {
            let settings = S3Settings {
                bucket: s3.bucket.clone(),
                region: s3.region.clone(),
                endpoint: s3.endpoint.clone(),
                virtual_hosted: s3.virtual_hosted,
                credentials: s3.credentials.clone(),
                session_token: s3.session_token.clone(),
                prefix: s3.prefix.clone(),
            };
            Ok(MediaStore::open_s3(&settings, path.join("incoming")).await?)
        }
    }
}

/// Creates the downloader for public addresses and the hosts of configured base URLs.
pub(super) fn downloader(config: &Config) -> Result<Downloader, AppError> {
    let providers = config.enabled_providers();
    let hosts = providers
        .iter()
        .filter_map(|p| p.base_url.as_ref()?.host_str());
    let settings = DownloadSettings {
        allowed_hosts: hosts.map(str::to_owned).collect(),
        allow_private: config.media.allow_private_urls,
        ..DownloadSettings::default()
    };
    Downloader::new(&settings).map_err(AppError::Downloader)
}

/// Creates the signer of links. The first start creates the secret, which all replicas share.
pub(super) async fn links(
    config: &Config,
    store: &Store,
    clock: &SharedClock,
    public_url: &str,
) -> Result<MediaLinks, AppError> {
    let fresh = token::random::<32>().map_err(|e| AppError::Links(e.to_string()))?;
    let secret = store.secret(SECRET, &fresh).await?;
    let signer = MediaSigner::new(&secret).map_err(|e| AppError::Links(e.to_string()))?;
    let base = Url::parse(public_url).map_err(|e| AppError::Links(e.to_string()))?;
    let lifetime = TimeDelta::from_std(*config.media.url_seconds).unwrap_or(TimeDelta::days(1));
    Ok(MediaLinks::new(signer, base, lifetime, clock.clone()))
}
