//! Downloading a provider's output from the URL that it gave.
//!
//! The URL is untrusted: every hop is checked, by host name before connecting and by the
//! resolved addresses while connecting. The connection goes to a checked address, never to the
//! result of a second lookup. Proxies from the environment are not used, since a proxy would
//! resolve names itself.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use reqwest::{Client, Response, redirect};
use url::Url;

use super::{MediaStoreError, Spool, Spooled};

mod error;
mod gate;

pub use error::{DownloadError, NoPublicAddress};
pub use gate::{AddressPolicy, BoxError, Resolver};

const MOST_REDIRECTS: usize = 3;

/// Where files may come from, and how long a download may take.
#[derive(Debug, Clone)]
pub struct DownloadSettings {
    /// Hosts (names or addresses, without scheme and port) for which http and private addresses
    /// are allowed too: those of configured base URLs.
    pub allowed_hosts: Vec<String>,
    /// Allows http and private addresses for every host: for tests.
    pub allow_private: bool,
    /// From the first connection to the last byte.
    pub total_time: Duration,
    /// The longest wait for a response, and between two chunks of it.
    pub idle_time: Duration,
    pub connect_time: Duration,
}

impl Default for DownloadSettings {
    /// Ten minutes in all, 30 seconds of silence, 10 for a connection; public hosts only.
    fn default() -> Self {
        Self {
            allowed_hosts: Vec::new(),
            allow_private: false,
            total_time: Duration::from_mins(10),
            idle_time: Duration::from_secs(30),
            connect_time: Duration::from_secs(10),
        }
    }
}

/// Downloads files. Holds a connection pool: make one and share it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Downloader {
    client: Client,
    gate: Arc<AddressPolicy>,
    total_time: Duration,
    idle_time: Duration,
}

impl Downloader {
    /// Fails only when the TLS library cannot be set up.
    pub fn new(settings: &DownloadSettings) -> Result<Self, reqwest::Error> {
        let gate = Arc::new(AddressPolicy::new(
            &settings.allowed_hosts,
            settings.allow_private,
        ));
        let client = Client::builder()
            .user_agent(concat!("gensvc/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .no_gzip()
            .connect_timeout(settings.connect_time)
            .dns_resolver(Resolver(Arc::clone(&gate)))
            .build()?;
        Ok(Self {
            client,
            gate,
            total_time: settings.total_time,
            idle_time: settings.idle_time,
        })
    }

    /// A file of at most `most` bytes, in memory. `header` is sent to `url` only, not to targets
    /// of redirects.
    pub async fn to_bytes(
        &self,
        url: &Url,
        header: Option<(HeaderName, HeaderValue)>,
        most: u64,
    ) -> Result<Bytes, DownloadError> {
        let mut bytes = Vec::new();
        self.fetch(url, header, most, &mut bytes).await?;
        Ok(bytes.into())
    }

    /// A file of at most `most` bytes, streamed to `spool`. `header` as in [`Self::to_bytes`]. On
    /// failure the temporary file is removed.
    pub async fn to_file(
        &self,
        url: &Url,
        header: Option<(HeaderName, HeaderValue)>,
        most: u64,
        mut spool: Spool,
    ) -> Result<Spooled, DownloadError> {
        self.fetch(url, header, most, &mut spool).await?;
        Ok(spool.finish().await?)
    }

    async fn fetch<S: Sink>(
        &self,
        url: &Url,
        header: Option<(HeaderName, HeaderValue)>,
        most: u64,
        sink: &mut S,
    ) -> Result<(), DownloadError> {
        let work = async {
            let response = self.open(url.clone(), header).await?;
            self.receive(response, most, sink).await
        };
        tokio::time::timeout(self.total_time, work)
            .await
            .map_err(|_elapsed| DownloadError::Timeout)?
    }

    /// The first response that is not a redirect, its body unread.
    async fn open(
        &self,
        mut url: Url,
        mut header: Option<(HeaderName, HeaderValue)>,
    ) -> Result<Response, DownloadError> {
        for _ in 0..=MOST_REDIRECTS {
            self.gate.check(&url)?;
            let mut request = self.client.get(url.clone());
            if let Some((name, mut value)) = header.take() {
                value.set_sensitive(true);
                request = request.header(name, value);
            }
            let response = self.in_time(request.send()).await??;
            let status = response.status();
            match status {
                StatusCode::OK => return Ok(response),
                StatusCode::MOVED_PERMANENTLY
                | StatusCode::FOUND
                | StatusCode::SEE_OTHER
                | StatusCode::TEMPORARY_REDIRECT
                | StatusCode::PERMANENT_REDIRECT => {
                    let to = response.headers().get(header::LOCATION);
                    url = to
                        .and_then(|to| to.to_str().ok())
                        .and_then(|to| url.join(to).ok())
                        .ok_or(DownloadError::Redirect("it leads nowhere"))?;
                }
                _ => return Err(DownloadError::Status(status.as_u16())),
            }
        }
        Err(DownloadError::Redirect("there are too many"))
    }

    /// Counts the body as it arrives; the length in the header only serves to give up early.
    async fn receive<S: Sink>(
        &self,
        mut response: Response,
        most: u64,
        sink: &mut S,
    ) -> Result<(), DownloadError> {
        let too_large = DownloadError::TooLarge { most };
        if response
            .content_length()
            .is_some_and(|length| length > most)
        {
            return Err(too_large);
        }
        let mut left = most;
        while let Some(piece) = self.in_time(response.chunk()).await?? {
            let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
            let Some(rest) = left.checked_sub(length) else {
                return Err(too_large);
            };
            left = rest;
            sink.write(piece).await?;
        }
        Ok(())
    }

    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, DownloadError> {
        tokio::time::timeout(self.idle_time, work)
            .await
            .map_err(|_elapsed| DownloadError::Timeout)
    }
}

trait Sink {
    async fn write(&mut self, piece: Bytes) -> Result<(), MediaStoreError>;
}

impl Sink for Vec<u8> {
    async fn write(&mut self, piece: Bytes) -> Result<(), MediaStoreError> {
        self.extend_from_slice(&piece);
        Ok(())
    }
}

impl Sink for Spool {
    async fn write(&mut self, piece: Bytes) -> Result<(), MediaStoreError> {
        Spool::write(self, &piece).await
    }
}

#[cfg(test)]
mod tests;
