//! Why a file could not be fetched.

use std::{error::Error, net::IpAddr};

use crate::media::MediaStoreError;

/// A failed download. Neither the address nor anything that it answered is in its text, since
/// addresses carry signatures.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The host has this address, which is not public.
    #[error("the address {0} is not a public one")]
    Refused(IpAddr),
    /// An address that is never asked, whatever its host: why.
    #[error("the address of the file is refused: {0}")]
    BadUrl(&'static str),
    /// A redirect that is not followed: why.
    #[error("a redirect is not followed: {0}")]
    Redirect(&'static str),
    /// There is more than we asked for, or it is announced.
    #[error("the file has more than {most} bytes")]
    TooLarge {
        /// How many were allowed.
        most: u64,
    },
    /// No connection, no answer, no further piece of it or no end of it in time.
    #[error("the file did not come in time")]
    Timeout,
    /// Another answer than 200.
    #[error("the file's host answered {0}")]
    Status(u16),
    /// No connection, or none that can be trusted.
    #[error("the file's host cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    /// The answer broke off, or is no HTTP.
    #[error("the file was cut off")]
    Cut(#[source] reqwest::Error),
    /// The bytes came, and could not be kept. This is not the host's fault.
    #[error("the file could not be kept")]
    Store(#[from] MediaStoreError),
}

/// A host that has only addresses which are not public; one of them.
#[derive(Debug, thiserror::Error)]
#[error("the address {0} is not a public one")]
pub struct NoPublicAddress(pub IpAddr);

impl DownloadError {
    /// Whether the same would happen again. False for what may pass: a silent, unreachable or
    /// overloaded host, a broken connection, a full disk, and 401, 403, 404 and 410, by which
    /// an expired address shows, where the provider should first be asked for a fresh one.
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
