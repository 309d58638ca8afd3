//! Fetching a provider's output from wherever it says that it lies.
//!
//! The address is a foreign word: what may be reached is decided for every hop, by the host's
//! name before a connection and by its resolved addresses while it is made, and the connection
//! goes to an address that was looked at, never to a second answer of the name server. The
//! environment's proxies are not used, since a proxy would resolve names out of our sight.

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

/// How many redirects are followed.
const MOST_REDIRECTS: usize = 3;

/// What is fetched, and how long it may take.
#[derive(Debug, Clone)]
pub struct DownloadSettings {
    /// Hosts (names or addresses, without scheme and port) from which http and private
    /// addresses are taken too: those of configured base URLs.
    pub allowed_hosts: Vec<String>,
    /// Takes http and private addresses from every host: for tests.
    pub allow_private: bool,
    /// The longest time for a file, from the first connection to the last byte.
    pub total_time: Duration,
    /// The longest wait for an answer, and between two pieces of it.
    pub idle_time: Duration,
    /// The longest time for a connection.
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

/// Fetches files. Holds a connection pool: make one and share it. Cheap to clone.
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

    /// A file of at most `most` bytes, held in memory. `header` goes to `url` itself and to no
    /// address that it redirects to.
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

    /// A file of at most `most` bytes, written to `spool` as it comes, so that its size is not
    /// held in memory. `header` as in [`Self::to_bytes`]. When it fails, nothing stays.
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

    /// The answer that is not a redirect. The body was not read yet.
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

    /// The body, counted as it comes: what a header says about its length is only good for
    /// giving up early.
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

/// Where the bytes go.
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
