//! The client that posts to receivers: to public addresses only, signed, in bounded time.
//!
//! A receiver's URL is untrusted, as a file's is: the addresses of a name are checked when a
//! webhook is made, and again for every connection, which goes only to what was checked. No
//! redirects, no proxies of the environment, no cookies.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::CONTENT_TYPE;
use reqwest::{Client, Response, redirect};
use sha2::Sha256;
use url::Url;

use crate::{
    domain::ids::AccountId,
    media::{AddressPolicy, BoxError, NoPublicAddress, Resolver},
    resource::Resource,
};

/// The longest time for a connection.
const CONNECT_AT_MOST: Duration = Duration::from_secs(5);
/// The longest time for a name, when a webhook is made.
const RESOLVE_AT_MOST: Duration = Duration::from_secs(5);
/// Names that are looked up at once for deliveries: as many as there are deliveries at once.
const DELIVERY_LOOKUPS: usize = 128;
/// The same, when webhooks are made, and those that wait.
const CHECK_LOOKUPS: (usize, usize) = (16, 64);
/// How long one waits.
const CHECK_WAIT: Duration = Duration::from_secs(2);
/// How long a connection is kept for the next delivery.
const KEEP_IDLE: Duration = Duration::from_secs(30);
/// Bytes of an answer that are read, so that its connection can be used again.
const READ_AT_MOST: usize = 64 << 10;
/// How long that may take.
const READ_FOR: Duration = Duration::from_secs(1);

/// How deliveries are sent.
#[derive(Debug, Clone, Copy)]
pub struct SenderSettings {
    /// Takes private addresses too.
    pub allow_private: bool,
    /// The longest time for an attempt, from the first connection to the answer's head.
    pub timeout: Duration,
}

/// Posts to receivers. Holds a connection pool: make one and share it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sender {
    client: Client,
    gate: Arc<AddressPolicy>,
    checks: Arc<Resource>,
    settings: SenderSettings,
}

/// Why a webhook cannot go to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressRefusal {
    /// It has no public address.
    Private,
    /// The name has no address at all, or its name server does not answer.
    Unresolvable,
    /// Too many names are looked up already, or the account's share of them.
    Busy,
}

/// Why an attempt got no answer, in words that the owner may read: nothing of what a name
/// server or an address inside the operator's network has said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Never made by the API.
    #[error("the URL cannot be used")]
    BadUrl,
    /// What it is about is gone, or unreadable.
    #[error("the generation cannot be read any more")]
    Unreadable,
    /// Its name had a public address once.
    #[error("the host has no public address")]
    Private,
    /// No connection, or no answer, in time.
    #[error("there was no answer in time")]
    Timeout,
    /// Refused, unresolvable, or not to be trusted.
    #[error("no connection could be made")]
    Unreachable,
    /// The connection broke off, or what came is no HTTP.
    #[error("the connection broke off before an answer")]
    Cut,
}

/// One delivery as it goes out.
#[derive(Debug)]
pub struct Message<'a> {
    /// The same for every attempt.
    pub id: &'a str,
    /// When this attempt is made, in Unix seconds.
    pub timestamp: i64,
    pub body: Vec<u8>,
}

impl Message<'_> {
    /// `v1,` and the base64 of the HMAC-SHA-256 of `id.timestamp.body`.
    pub fn signature(&self, secret: &[u8]) -> Result<String, SendError> {
        let mac = Hmac::<Sha256>::new_from_slice(secret).map_err(|_| SendError::BadUrl)?;
        let mac = mac
            .chain_update(format!("{}.{}.", self.id, self.timestamp))
            .chain_update(&self.body);
        Ok(format!(
            "v1,{}",
            STANDARD.encode(mac.finalize().into_bytes())
        ))
    }
}

impl Sender {
    /// Fails only when the TLS library cannot be set up.
    pub fn new(settings: SenderSettings) -> Result<Self, reqwest::Error> {
        let gate = AddressPolicy::new(&[], settings.allow_private).looking_up(DELIVERY_LOOKUPS);
        let gate = Arc::new(gate);
        let (places, queue) = CHECK_LOOKUPS;
        let checks = Resource::new("host lookups of webhooks", places, queue, CHECK_WAIT);
        let client = Client::builder()
            .user_agent(concat!("gensvc/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .referer(false)
            .no_proxy()
            .no_gzip()
            .connect_timeout(CONNECT_AT_MOST)
            .pool_idle_timeout(KEEP_IDLE)
            .pool_max_idle_per_host(2)
            .dns_resolver(Resolver(Arc::clone(&gate)))
            .build()?;
        Ok(Self {
            client,
            gate,
            checks: Arc::new(checks),
            settings,
        })
    }

    /// The longest time for an attempt.
    pub fn timeout(&self) -> Duration {
        self.settings.timeout
    }

    /// Whether a webhook may go to `url`, as its name resolves now.
    pub async fn check(&self, account: AccountId, url: &Url) -> Result<(), AddressRefusal> {
        if self.settings.allow_private {
            return Ok(());
        }
        self.gate
            .check_literal(url)
            .map_err(|_| AddressRefusal::Private)?;
        let Some(url::Host::Domain(name)) = url.host() else {
            return Ok(());
        };
        // Apart from deliveries: names that lead nowhere must not keep those waiting.
        let permit = self.checks.acquire(account).await;
        let permit = permit.ok_or(AddressRefusal::Busy)?;
        let resolving = tokio::time::timeout(RESOLVE_AT_MOST, self.gate.resolve(name, permit));
        match resolving.await {
            Ok(Ok(found)) if !found.is_empty() => Ok(()),
            Ok(Err(error)) if is_private(&error) => Err(AddressRefusal::Private),
            _ => Err(AddressRefusal::Unresolvable),
        }
    }

    /// Posts a message and answers the status, whatever it is.
    pub async fn send(
        &self,
        url: &str,
        message: Message<'_>,
        secret: &[u8],
    ) -> Result<u16, SendError> {
        let url = Url::parse(url).map_err(|_| SendError::BadUrl)?;
        self.gate
            .check_literal(&url)
            .map_err(|_| SendError::Private)?;
        let request = self
            .client
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", message.id)
            .header("webhook-timestamp", message.timestamp)
            .header("webhook-signature", message.signature(secret)?)
            .body(message.body);
        let response = tokio::time::timeout(self.settings.timeout, request.send())
            .await
            .map_err(|_elapsed| SendError::Timeout)?
            .map_err(|error| SendError::of(&error))?;
        let status = response.status().as_u16();
        // The status is the answer; the rest is only read so that the connection can serve
        // again.
        let _ = tokio::time::timeout(READ_FOR, read(response)).await;
        Ok(status)
    }
}

async fn read(mut response: Response) {
    let mut left = READ_AT_MOST;
    while let Ok(Some(piece)) = response.chunk().await {
        match left.checked_sub(piece.len()) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}

fn is_private(error: &BoxError) -> bool {
    error.is::<NoPublicAddress>()
}

impl SendError {
    fn of(error: &reqwest::Error) -> Self {
        let mut cause = std::error::Error::source(error);
        while let Some(found) = cause {
            if found.is::<NoPublicAddress>() {
                return Self::Private;
            }
            cause = found.source();
        }
        if error.is_timeout() {
            Self::Timeout
        } else if error.is_connect() {
            Self::Unreachable
        } else {
            Self::Cut
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use standardwebhooks::Webhook;

    use super::*;
    use crate::domain::clock::machine_time;

    #[test]
    fn receivers_that_follow_the_standard_accept_the_signature() {
        let secret = [7; 32];
        let message = Message {
            id: "msg_0197c0de-0000-7000-8000-000000000000",
            timestamp: machine_time().timestamp(),
            body: br#"{"type":"generation.completed"}"#.to_vec(),
        };
        let headers = |signature: &str| {
            let timestamp = message.timestamp.to_string();
            HeaderMap::from_iter([
                ("webhook-id".parse().unwrap(), message.id.parse().unwrap()),
                (
                    "webhook-timestamp".parse().unwrap(),
                    timestamp.parse().unwrap(),
                ),
                (
                    "webhook-signature".parse().unwrap(),
                    signature.parse().unwrap(),
                ),
            ])
        };
        let receiver = Webhook::new(&format!("whsec_{}", STANDARD.encode(secret))).unwrap();
        let good = headers(&message.signature(&secret).unwrap());
        receiver.verify(&message.body, &good).unwrap();
        let bad = headers(&message.signature(&[8; 32]).unwrap());
        receiver.verify(&message.body, &bad).unwrap_err();
        receiver.verify(b"{}", &good).unwrap_err();
    }

    #[tokio::test]
    async fn addresses_are_judged_when_a_webhook_is_made() {
        let sender = |allow_private| {
            let timeout = Duration::from_secs(1);
            Sender::new(SenderSettings {
                allow_private,
                timeout,
            })
            .unwrap()
        };
        let (strict, lax) = (sender(false), sender(true));
        for (url, expected) in [
            ("https://8.8.8.8/hook", Ok(())),
            ("http://[2606:4700::1]:8080/", Ok(())),
            ("https://127.0.0.1/", Err(AddressRefusal::Private)),
            ("https://127.1:80/", Err(AddressRefusal::Private)),
            ("https://0x7f000001/", Err(AddressRefusal::Private)),
            ("http://10.1.2.3/", Err(AddressRefusal::Private)),
            ("http://169.254.169.254/", Err(AddressRefusal::Private)),
            ("https://[::1]/", Err(AddressRefusal::Private)),
            ("https://[::ffff:10.0.0.1]/", Err(AddressRefusal::Private)),
            ("https://localhost/", Err(AddressRefusal::Private)),
            (
                "https://nowhere.invalid/",
                Err(AddressRefusal::Unresolvable),
            ),
        ] {
            let parsed = Url::parse(url).unwrap();
            assert_eq!(strict.check(AccountId(1), &parsed).await, expected, "{url}");
            assert_eq!(lax.check(AccountId(1), &parsed).await, Ok(()), "{url}");
        }
    }
}
