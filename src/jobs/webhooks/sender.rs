//! The HTTP client for webhook receivers: only public addresses, signed requests, timeouts.
//!
//! A receiver's URL is untrusted. The addresses of its host are checked when the webhook is created
//! and for each connection, which uses only checked addresses. Redirects, proxies of the
//! environment and cookies are not used.

use std::{error::Error, iter::successors, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::CONTENT_TYPE;
use reqwest::{Client, Response};
use sha2::Sha256;
use url::Url;

use crate::{
    domain::ids::AccountId,
    media::{AddressPolicy, BoxError, NoPublicAddress},
    resource::Resource,
};

/// Timeout of a connection attempt.
const CONNECT_AT_MOST: Duration = Duration::from_secs(5);
/// Timeout of the DNS lookup when a webhook is created.
const RESOLVE_AT_MOST: Duration = Duration::from_secs(5);
/// Maximum concurrent lookups for deliveries: as many as concurrent deliveries.
const DELIVERY_LOOKUPS: usize = 128;
/// Maximum concurrent lookups for new webhooks, and maximum queued ones.
const CHECK_LOOKUPS: (usize, usize) = (16, 64);
/// Maximum wait in that queue.
const CHECK_WAIT: Duration = Duration::from_secs(2);
/// How long an idle connection is kept.
const KEEP_IDLE: Duration = Duration::from_secs(30);
/// Maximum bytes of a response that are read to reuse its connection.
const READ_AT_MOST: usize = 64 << 10;
const READ_FOR: Duration = Duration::from_secs(1);

/// The HTTP client, with a connection pool. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sender {
    client: Client,
    gate: Arc<AddressPolicy>,
    checks: Arc<Resource>,
    /// Whether private addresses are allowed.
    allow_private: bool,
    /// Timeout of an attempt, from connecting to the response's head.
    timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressRefusal {
    Private,
    /// The host has no address, or its name server does not answer.
    Unresolvable,
    /// There are too many lookups, in total or by the account.
    Busy,
}

/// Reason for an attempt without a response, as shown to the owner. Contains nothing from name
/// servers and no addresses in the operator's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The API accepts no such URL.
    #[error("the URL cannot be used")]
    BadUrl,
    /// The generation was deleted or cannot be read.
    #[error("the generation cannot be read any more")]
    Unreadable,
    /// The host no longer has a public address.
    #[error("the host has no public address")]
    Private,
    #[error("there was no answer in time")]
    Timeout,
    /// Refused, unresolvable, or with an untrusted certificate.
    #[error("no connection could be made")]
    Unreachable,
    /// The connection was closed early, or the response is not HTTP.
    #[error("the connection broke off before an answer")]
    Cut,
}

#[derive(Debug)]
pub struct Message<'a> {
    /// The same for every attempt at a delivery.
    pub id: &'a str,
    /// Time of this attempt, in Unix seconds.
    pub timestamp: i64,
    pub body: Vec<u8>,
}

impl Message<'_> {
    /// Returns `v1,` and the base64 of the HMAC-SHA-256 of `id.timestamp.body`.
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
    /// Creates the client. Fails only if the TLS library cannot be set up.
    pub fn new(allow_private: bool, timeout: Duration) -> Result<Self, reqwest::Error> {
        let gate = AddressPolicy::new(&[], allow_private, DELIVERY_LOOKUPS);
        let gate = Arc::new(gate);
        let (places, queue) = CHECK_LOOKUPS;
        let checks = Resource::new("host lookups of webhooks", places, queue, CHECK_WAIT);
        let client = gate
            .client(CONNECT_AT_MOST)
            .pool_idle_timeout(KEEP_IDLE)
            .pool_max_idle_per_host(2)
            .build()?;
        Ok(Self {
            client,
            gate,
            checks: Arc::new(checks),
            allow_private,
            timeout,
        })
    }

    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Checks that `url` currently resolves to an allowed address.
    pub async fn check(&self, account: AccountId, url: &Url) -> Result<(), AddressRefusal> {
        if self.allow_private {
            return Ok(());
        }
        self.gate
            .check_literal(url)
            .map_err(|_| AddressRefusal::Private)?;
        let Some(url::Host::Domain(name)) = url.host() else {
            return Ok(());
        };
        // Separate from the lookups of deliveries, which unresolvable names must not delay.
        let permit = self.checks.acquire(account).await;
        let permit = permit.ok_or(AddressRefusal::Busy)?;
        let resolving = tokio::time::timeout(RESOLVE_AT_MOST, self.gate.resolve(name, permit));
        match resolving.await {
            Ok(Ok(found)) if !found.is_empty() => Ok(()),
            Ok(Err(error)) if is_private(&error) => Err(AddressRefusal::Private),
            _ => Err(AddressRefusal::Unresolvable),
        }
    }

    /// Posts a message. Returns the status of any response.
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
        let response = tokio::time::timeout(self.timeout, request.send())
            .await
            .map_err(|_elapsed| SendError::Timeout)?
            .map_err(|error| SendError::of(&error))?;
        let status = response.status().as_u16();
        // The body is only read to reuse the connection.
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
        let mut causes = successors(error.source(), |&cause| cause.source());
        let is_private = |cause: &(dyn Error + 'static)| cause.is::<NoPublicAddress>();
        if causes.any(is_private) {
            Self::Private
        } else if error.is_timeout() {
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
        let sender = |allow_private| Sender::new(allow_private, Duration::from_secs(1)).unwrap();
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
