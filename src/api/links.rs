//! Signed, expiring links to stored files.

use std::{sync::Arc, time::Duration};

use chrono::TimeDelta;
use url::Url;

use crate::{
    domain::clock::SharedClock,
    media::{LinkError, MediaKey, MediaSigner},
};

/// Signs and checks links to stored files.
#[derive(Clone)]
pub struct MediaLinks {
    signer: MediaSigner,
    base: Arc<Url>,
    lifetime: TimeDelta,
    clock: SharedClock,
}

impl MediaLinks {
    /// Creates links below `base` that are valid for `lifetime`.
    pub fn new(signer: MediaSigner, base: Url, lifetime: TimeDelta, clock: SharedClock) -> Self {
        Self {
            signer,
            base: Arc::new(base),
            lifetime,
            clock,
        }
    }

    /// Checks the signature of a link. Returns how long the link remains valid.
    pub fn verify(
        &self,
        key: &MediaKey,
        expires: i64,
        signature: &str,
    ) -> Result<Duration, LinkError> {
        let now = self.clock.now().timestamp();
        self.signer.verify(key, expires, signature, now)?;
        Ok(Duration::from_secs(expires.abs_diff(now)))
    }

    /// Returns a new link to a stored file.
    pub fn url(&self, key: &str) -> String {
        let expires = (self.clock.now() + self.lifetime).timestamp();
        match key.parse::<MediaKey>() {
            Ok(key) => self.signer.url(&self.base, &key, expires),
            Err(error) => {
                tracing::error!(key, %error, "a stored file has a name that cannot be");
                String::new()
            }
        }
    }
}
