//! The one HTTP client of all adapters: time-outs, caps, secrets, and no redirects.
//!
//! Here: sending a request and reading an answer within bounds. In the files below: where
//! to send it ([`base_url`]), a form as its body ([`form`]), what a bad end means
//! ([`classify`]) and how long to wait after it ([`retry_after`]). Not here: any vendor's fields, and no repeating, since
//! only the service knows what a second submission would cost.

pub mod base_url;
pub mod classify;
pub mod form;
pub mod retry_after;

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use reqwest::{
    Method, RequestBuilder, Response,
    header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue},
    redirect::Policy,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::Url;

use super::{ProviderError, sse::Events};
use base_url::BaseUrlError;
use classify::Head;
use form::Form;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A text answer in one piece: 4096 tokens are some 20 KiB; 4 MiB leaves room for
/// escapes, reasoning and log probabilities nobody asked for.
pub const TEXT_BODY_CAP: usize = 4 << 20;
/// Images in JSON: four of them in base64, at some 12 MiB each.
pub const IMAGES_BODY_CAP: usize = 64 << 20;
pub const IMAGE_CAP: usize = 20 << 20;
/// All files of one speech.
pub const SPEECH_CAP: usize = 100 << 20;
/// A streamed answer, framing included (some 300 bytes a token at OpenAI).
pub const STREAM_CAP: usize = 16 << 20;
/// Of an error answer only a code is wanted; what is longer is a gateway's page.
const ERROR_BODY_CAP: usize = 64 << 10;
/// Silence on an open stream, keep-alives counted as sound. Generous, because a model may
/// think before its first token and a local server may load one.
const STREAM_IDLE: Duration = Duration::from_mins(2);

/// Why an adapter cannot be built from its settings.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The base URL cannot be used.
    #[error(transparent)]
    BaseUrl(#[from] BaseUrlError),
    /// The key cannot be put into a header. The key itself is not told.
    #[error("the API key holds characters that a header cannot carry")]
    Key,
    /// A header value from the settings (such as an API version) cannot be sent.
    #[error("a configured header value cannot be sent")]
    Header,
    /// TLS could not be set up.
    #[error("the HTTP client cannot be built: {0}")]
    Client(reqwest::Error),
}

/// A shared connection pool. Cheap to clone.
#[derive(Debug, Clone)]
pub struct HttpClient {
    inner: reqwest::Client,
}

#[derive(Debug)]
pub struct JsonPost<'a> {
    pub url: Url,
    /// Authentication and version headers; secrets are marked sensitive.
    pub headers: HeaderMap,
    pub body: &'a Value,
    /// From the first byte of the connection to the last of the body.
    pub timeout: Duration,
}

impl HttpClient {
    /// A client that follows no redirect: a `Location` chosen by someone else must never
    /// receive a key. reqwest's own repeating stays as it is, since it covers only
    /// requests that the server declared unprocessed (RFC 9113, section 8.7).
    pub fn new() -> Result<Self, SetupError> {
        let inner = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(Policy::none())
            .referer(false)
            .gzip(true)
            .user_agent(concat!("gensvc/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(SetupError::Client)?;
        Ok(Self { inner })
    }

    /// Sends once and reads the head of the answer, whatever its status. JSON is accepted,
    /// unless the headers say otherwise.
    pub async fn post_json(&self, post: JsonPost<'_>) -> Result<Answer, ProviderError> {
        let request = self.inner.post(post.url).json(post.body);
        send(request, post.headers, post.timeout).await
    }

    /// As [`Self::post_json`], with a form.
    pub async fn post_form(
        &self,
        url: Url,
        headers: HeaderMap,
        form: Form,
        timeout: Duration,
    ) -> Result<Answer, ProviderError> {
        let (kind, body) = form.encoded();
        let request = self.inner.post(url).header(CONTENT_TYPE, kind).body(body);
        send(request, headers, timeout).await
    }

    /// As [`Self::post_json`], without a body: a look (GET), or an end (DELETE, POST).
    pub async fn bare(
        &self,
        method: Method,
        url: Url,
        headers: HeaderMap,
        timeout: Duration,
    ) -> Result<Answer, ProviderError> {
        let request = match method {
            // Google's front end answers 411 to a POST that does not say its length.
            Method::POST => self.inner.post(url).header(CONTENT_LENGTH, 0),
            other => self.inner.request(other, url),
        };
        send(request, headers, timeout).await
    }
}

async fn send(
    request: RequestBuilder,
    mut headers: HeaderMap,
    timeout: Duration,
) -> Result<Answer, ProviderError> {
    headers
        .entry(ACCEPT)
        .or_insert(HeaderValue::from_static("application/json"));
    let response = request
        .headers(headers)
        .timeout(timeout)
        .send()
        .await
        .map_err(|error| classify::transport(&error))?;
    let head = Head::read(response.status().as_u16(), response.headers());
    Ok(Answer { head, response })
}

/// An answer whose body has not been read yet.
#[derive(Debug)]
pub struct Answer {
    head: Head,
    response: Response,
}

impl Answer {
    /// What the status line and the headers said.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The body as JSON, read in pieces up to `cap` bytes (after decompression).
    pub async fn json(mut self, cap: usize) -> Result<Value, ProviderError> {
        let (body, whole) = self.take_body(cap).await?;
        if !whole {
            return Err(self.head.failed("body over the cap"));
        }
        serde_json::from_slice(&body).map_err(|_| {
            let what = if body.is_empty() {
                "empty body"
            } else {
                "body is not JSON"
            };
            self.head.failed(what)
        })
    }

    /// The body as a file of at most `cap` bytes. Nothing, JSON or a page in its place is a
    /// failure; what else it is must be checked by whoever knows the format.
    pub async fn file(mut self, cap: usize) -> Result<Bytes, ProviderError> {
        let (body, whole) = self.take_body(cap).await?;
        if !whole {
            return Err(self.head.failed("body over the cap"));
        }
        match body.trim_ascii_start().first() {
            None => Err(self.head.failed("empty body")),
            Some(b'{' | b'[' | b'<') => Err(self.head.failed("body is no file")),
            Some(_) => Ok(body.into()),
        }
    }

    /// The JSON of an error answer, if it is any. Never fails: the status alone decides
    /// when a gateway sends HTML, nothing, or too much.
    pub async fn error_json(mut self) -> (Head, Option<Value>) {
        let body = match self.take_body(ERROR_BODY_CAP).await {
            Ok((body, true)) => serde_json::from_slice(&body).ok(),
            Ok((_, false)) | Err(_) => None,
        };
        (self.head, body)
    }

    /// The body as server-sent events.
    pub fn events(self) -> Events {
        Events::new(chunks(self.response), STREAM_IDLE, STREAM_CAP)
    }

    /// Up to `cap` bytes, and whether that was all.
    async fn take_body(&mut self, cap: usize) -> Result<(Vec<u8>, bool), ProviderError> {
        let mut body = Vec::new();
        loop {
            match self.response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() > cap => return Ok((body, false)),
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => return Ok((body, true)),
                Err(error) => return Err(self.head.with_context(classify::transport(&error))),
            }
        }
    }
}

/// The raw pieces of a body; ends after the first error.
fn chunks(response: Response) -> impl Stream<Item = Result<Bytes, ProviderError>> + Send {
    stream::try_unfold(response, |mut response| async move {
        let chunk = response
            .chunk()
            .await
            .map_err(|error| classify::transport(&error))?;
        Ok(chunk.map(|bytes| (bytes, response)))
    })
}

/// A secret as a header value: `prefix` + key, marked sensitive so that no `Debug` shows
/// it. White space around the key (a file's last newline) is not part of it.
pub fn secret_header(prefix: &str, key: &SecretString) -> Result<HeaderValue, SetupError> {
    let text = format!("{prefix}{}", key.expose_secret().trim());
    let mut value = HeaderValue::from_str(&text).map_err(|_| SetupError::Key)?;
    value.set_sensitive(true);
    Ok(value)
}

/// The constructors try the base URL, so that a call does not see this.
impl From<BaseUrlError> for ProviderError {
    fn from(error: BaseUrlError) -> Self {
        Self::failed(&error.to_string())
    }
}

#[cfg(test)]
mod tests;
