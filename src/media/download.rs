//! Downloads a provider's output from the URL that the provider returned.
//!
//! The URL is untrusted: every hop is checked, by host name before connecting and by the resolved
//! addresses while connecting. Connections go to a checked address, never to the result of a second
//! lookup. Proxies from the environment are not used, since a proxy would resolve names itself.

use std::{error::Error as _, iter::successors, net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use reqwest::{Client, Response};
use url::Url;

use super::{MediaStoreError, Spool, Spooled};

mod gate;

pub use gate::{AddressPolicy, BoxError};

const MOST_REDIRECTS: usize = 3;
/// Maximum concurrent DNS lookups.
const LOOKUPS: usize = 32;

/// The permitted hosts, and the time limits of a download.
#[derive(Debug, Clone)]
pub struct DownloadSettings {
    /// Hosts (names or addresses, without scheme and port) for which http and private addresses are
    /// also allowed: those of configured base URLs.
    pub allowed_hosts: Vec<String>,
    /// Allows http and private addresses for every host; for tests.
    pub allow_private: bool,
    /// Maximum time from the first connection to the last byte.
    pub total_time: Duration,
    /// Maximum wait for a response, and between two of its chunks.
    pub idle_time: Duration,
    pub connect_time: Duration,
}

impl Default for DownloadSettings {
    /// Ten minutes in total, 30 seconds of silence, 10 for a connection; public hosts only.
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

/// Downloads files. Has a connection pool, so create one and share it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Downloader {
    client: Client,
    gate: Arc<AddressPolicy>,
    total_time: Duration,
    idle_time: Duration,
}

impl Downloader {
    /// Fails only if the TLS library cannot be set up.
    pub fn new(settings: &DownloadSettings) -> Result<Self, reqwest::Error> {
        let (hosts, all) = (&settings.allowed_hosts, settings.allow_private);
        let gate = Arc::new(AddressPolicy::new(hosts, all, LOOKUPS));
        Ok(Self {
            client: gate.client(settings.connect_time).build()?,
            gate,
            total_time: settings.total_time,
            idle_time: settings.idle_time,
        })
    }

    /// Downloads a file of at most `most` bytes into memory. `header` is only sent to `url`, not to
    /// targets of redirects.
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

    /// Downloads a file of at most `most` bytes to `spool`. `header` as in [`Self::to_bytes`].
    /// Removes the temporary file on failure.
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

    /// Returns the first response that is not a redirect, with its body unread.
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

    /// Counts the body as it arrives; the length in the header only allows failing early.
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

/// A failed download. Its text contains neither the URL, which may have a signature, nor anything
/// from the response.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The host resolves to this private address.
    #[error("the address {0} is not a public one")]
    Refused(IpAddr),
    /// A URL that is refused for any host.
    #[error("the URL of the file is refused: {0}")]
    BadUrl(&'static str),
    #[error("a redirect is not followed: {0}")]
    Redirect(&'static str),
    /// The body, or its announced length, is above the limit.
    #[error("the file has more than {most} bytes")]
    TooLarge { most: u64 },
    /// Connecting, the response, its next chunk or its end took too long.
    #[error("the download timed out")]
    Timeout,
    /// A status other than 200.
    #[error("the file's host answered with status {0}")]
    Status(u16),
    /// Connecting failed, including TLS.
    #[error("the file's host cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    /// The connection was closed early, or the response is not HTTP.
    #[error("the download was interrupted")]
    Cut(#[source] reqwest::Error),
    /// The bytes arrived but could not be stored, which is not the host's fault.
    #[error("the file could not be stored")]
    Store(#[from] MediaStoreError),
}

/// The error for a host with only private addresses; has one of them.
#[derive(Debug, thiserror::Error)]
#[error("the address {0} is not a public one")]
pub struct NoPublicAddress(pub IpAddr);

impl DownloadError {
    /// Whether a retry would fail the same way. False for a silent, unreachable or overloaded host,
    /// a broken connection, a full disk, and for 401, 403, 404 and 410: these can mean an expired
    /// URL, which the provider can replace.
    pub const fn is_final(&self) -> bool {
        match self {
            Self::Refused(_) | Self::BadUrl(_) | Self::Redirect(_) | Self::TooLarge { .. } => true,
            Self::Status(status) => {
                *status < 500 && !matches!(*status, 401 | 403 | 404 | 408 | 410 | 425 | 429)
            }
            Self::Timeout | Self::Unreachable(_) | Self::Cut(_) | Self::Store(_) => false,
        }
    }
}

impl From<reqwest::Error> for DownloadError {
    fn from(error: reqwest::Error) -> Self {
        let mut causes = successors(error.source(), |&cause| cause.source());
        let refused = causes.find_map(|cause| cause.downcast_ref::<NoPublicAddress>());
        if let Some(NoPublicAddress(address)) = refused {
            return Self::Refused(*address);
        }
        let (timeout, connect) = (error.is_timeout(), error.is_connect());
        let error = error.without_url();
        if timeout {
            Self::Timeout
        } else if connect {
            Self::Unreachable(error)
        } else {
            Self::Cut(error)
        }
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
