//! Why a download failed.

use std::{error::Error, net::IpAddr};

use crate::media::MediaStoreError;

/// A failed download. Its text contains neither the URL, which may carry a signature, nor
/// anything from the response.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The host resolves to this private address.
    #[error("the address {0} is not a public one")]
    Refused(IpAddr),
    /// A URL that is refused whatever its host.
    #[error("the URL of the file is refused: {0}")]
    BadUrl(&'static str),
    #[error("a redirect is not followed: {0}")]
    Redirect(&'static str),
    /// The body, or its announced length, is over the limit.
    #[error("the file has more than {most} bytes")]
    TooLarge { most: u64 },
    /// Connecting, the response, its next chunk or its end took too long.
    #[error("the download timed out")]
    Timeout,
    /// A status other than 200.
    #[error("the file's host answered with status {0}")]
    Status(u16),
    /// Connecting failed, TLS included.
    #[error("the file's host cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    /// The response broke off, or is not HTTP.
    #[error("the download was interrupted")]
    Cut(#[source] reqwest::Error),
    /// The bytes arrived and could not be stored: not the host's fault.
    #[error("the file could not be stored")]
    Store(#[from] MediaStoreError),
}

/// A host that has only private addresses; one of them.
#[derive(Debug, thiserror::Error)]
#[error("the address {0} is not a public one")]
pub struct NoPublicAddress(pub IpAddr);

impl DownloadError {
    /// Whether a retry would fail the same way. False for a silent, unreachable or overloaded
    /// host, a broken connection, a full disk, and for 401, 403, 404 and 410: these can mean an
    /// expired URL, for which the provider can be asked for a fresh one.
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
        let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
        while let Some(error) = cause {
            if let Some(NoPublicAddress(address)) = error.downcast_ref() {
                return Self::Refused(*address);
            }
            cause = error.source();
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
