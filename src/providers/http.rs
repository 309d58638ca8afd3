//! The HTTP client of all adapters: timeouts, size limits, secrets, no redirects.
//!
//! Submodules: the client of one API ([`client`]), endpoint URLs ([`base_url`]), form bodies
//! ([`form`]), error classification ([`classify`]), error messages ([`vendor_message`]) and retry
//! delays ([`retry_after`]). Vendors' fields are elsewhere, and so are retries, since only the
//! caller knows the cost of a second submission.

pub mod base_url;
pub mod classify;
pub mod client;
pub mod form;
mod request_json;
pub mod retry_after;
pub mod vendor_message;

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use reqwest::{Response, header::CONTENT_TYPE, redirect::Policy};
use serde_json::Value;

use super::{ProviderError, sse::Events, surrogates};
use crate::{
    memory::{self, Reservation},
    offload::offload,
};
use base_url::BaseUrlError;
use classify::Head;
pub use client::VendorClient;
pub use request_json::RequestJson;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum bytes of a text response: 128,000 tokens are some 600 KiB; the rest is room for escapes,
/// reasoning and unrequested log probabilities.
pub const TEXT_BODY_CAP: usize = 16 << 20;
/// Larger bodies are parsed off the async threads.
const LARGE_JSON: usize = 256 << 10;
/// Maximum bytes of images in JSON: four in base64, some 12 MiB each.
pub const IMAGES_BODY_CAP: usize = 64 << 20;
pub const IMAGE_CAP: usize = 20 << 20;
/// Maximum bytes of all parts of one recording.
pub const SPEECH_CAP: usize = 100 << 20;
/// Maximum bytes of a streamed response, including framing (some 300 bytes per token at OpenAI).
pub const STREAM_CAP: usize = 64 << 20;
/// Maximum bytes of an error response. Longer ones are a gateway's HTML page.
const ERROR_BODY_CAP: usize = 64 << 10;
/// The possible beginnings of lines in an event stream, and the length of the longest in bytes.
const FIELDS: [&[u8]; 5] = [b"data:", b"event:", b"id:", b"retry:", b":"];
const FIELDS_LENGTH: usize = 6;
/// Maximum gap in an open stream; keep-alives count as data. Generous, because a model may think
/// before its first token, and a local server may have to load the model.
const STREAM_IDLE: Duration = Duration::from_mins(2);
/// Maximum duration of a call, and of a configured timeout. A stream needs most of it for 128,000
/// tokens at 40 per second.
pub const MAX_CALL_TIME: Duration = Duration::from_hours(1);

/// Why an adapter cannot be built from its settings.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error(transparent)]
    BaseUrl(#[from] BaseUrlError),
    #[error("the API key holds characters that a header cannot carry")]
    Key,
    #[error("the HTTP client cannot be built: {0}")]
    Client(reqwest::Error),
}

/// A shared connection pool. Cheap to clone.
#[derive(Debug, Clone)]
pub struct HttpClient {
    inner: reqwest::Client,
}

impl HttpClient {
    /// Builds the client. Redirects are not followed, since a key must never reach another host.
    /// reqwest's built-in retries stay enabled: they only repeat requests that the server declared
    /// unprocessed (RFC 9113, section 8.7).
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
}

/// A response whose body was not read yet.
#[derive(Debug)]
pub struct Answer {
    head: Head,
    response: Response,
    /// The part of the body read so far.
    begun: Vec<u8>,
    /// Maximum gap of a stream.
    idle: Duration,
}

impl Answer {
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Returns the content type in lower case, without its parameters.
    fn content_type(&self) -> Option<String> {
        let content_type = self.response.headers().get(CONTENT_TYPE)?.to_str().ok()?;
        let essence = content_type.split(';').next()?;
        Some(essence.trim().to_ascii_lowercase())
    }

    /// Whether the body is an event stream: by its content type or its beginning, since some
    /// servers send another type or none. If neither decides, as `requested`.
    pub async fn is_stream(&mut self, requested: bool) -> Result<bool, ProviderError> {
        let content_type = self.content_type().unwrap_or_default();
        if content_type == "text/event-stream" {
            return Ok(true);
        }
        // Some servers send empty lines while they are working.
        while self.begun.trim_ascii_start().len() < FIELDS_LENGTH
            && self.begun.len() < ERROR_BODY_CAP
        {
            match self.next_chunk().await? {
                Some(chunk) => self.begun.extend_from_slice(&chunk),
                None => break,
            }
        }
        let begun = self.begun.trim_ascii_start();
        let is_json = content_type == "application/json"
            || content_type.ends_with("+json")
            || begun.starts_with(b"{");
        let is_stream = FIELDS.iter().any(|field| begun.starts_with(field));
        Ok(is_stream || requested && !is_json)
    }

    async fn next_chunk(&mut self) -> Result<Option<Bytes>, ProviderError> {
        let chunk = self.response.chunk().await;
        chunk.map_err(|error| self.head.with_context(classify::transport(&error)))
    }

    /// Returns the head and the JSON body, of at most `cap` bytes after decompression.
    pub async fn json(self, cap: usize) -> Result<(Head, Value), ProviderError> {
        let read = |head: &Head, root| Ok((head.clone(), root));
        self.json_files(cap, read).await
    }

    /// As [`Self::json`], and converts the value with `read`. Large bodies are parsed and converted
    /// off the async threads.
    pub async fn json_files<T: Send + 'static>(
        mut self,
        cap: usize,
        read: impl FnOnce(&Head, Value) -> Result<T, ProviderError> + Send + 'static,
    ) -> Result<T, ProviderError> {
        let (body, _reserved) = self.whole_body(cap).await?;
        let (head, is_large) = (self.head, body.len() >= LARGE_JSON);
        let read = move || {
            let root = json(&head, &body);
            drop(body);
            root.and_then(|root| read(&head, root))
        };
        if !is_large {
            return read();
        }
        let answer = offload(read).await;
        answer.unwrap_or_else(|| Err(ProviderError::failed("reading it failed")))
    }

    /// Returns the body as a file of at most `cap` bytes. Fails on an empty body, JSON or HTML; the
    /// caller validates the format.
    pub async fn file(mut self, cap: usize) -> Result<Bytes, ProviderError> {
        let (body, _) = self.whole_body(cap).await?;
        match body.trim_ascii_start().first() {
            None => Err(self.head.failed("empty body")),
            Some(b'{' | b'[' | b'<') => Err(self.head.failed("body is no file")),
            Some(_) => Ok(body.into()),
        }
    }

    /// Returns the JSON of an error response, or its plain text. Never fails: if a gateway sends
    /// HTML, nothing or too much, the status alone decides.
    pub async fn error_json(mut self) -> (Head, Option<Value>) {
        let is_text = self.content_type().is_some_and(|kind| kind == "text/plain");
        let text = |body: &[u8]| {
            let text = str::from_utf8(body).ok().map(str::trim);
            let text = text.filter(|text| is_text && !text.starts_with('<'));
            text.map(|text| Value::String(text.to_owned()))
        };
        let body = match self.take_body(ERROR_BODY_CAP, None).await {
            Ok((body, true)) => surrogates::parse_whole(&body).ok().or_else(|| text(&body)),
            Ok((_, false)) | Err(_) => None,
        };
        (self.head, body)
    }

    /// Returns the body as server-sent events of at most `event_cap` bytes.
    pub fn events(self, event_cap: usize) -> Events {
        let begun = (!self.begun.is_empty()).then(|| Ok(Bytes::from(self.begun)));
        let begun = stream::iter(begun);
        let chunks = begun.chain(chunks(self.response));
        Events::new(chunks, self.idle, STREAM_CAP, event_cap)
    }

    /// Reads the body, and returns its memory reservation. It is paid for, so it is kept even if
    /// the budget is used up.
    async fn whole_body(
        &mut self,
        cap: usize,
    ) -> Result<(Vec<u8>, Option<Reservation>), ProviderError> {
        let reserved = memory::reservation();
        match self.take_body(cap, reserved.as_ref()).await? {
            (body, true) => Ok((body, reserved)),
            (_, false) => Err(self.head.failed("body over the cap")),
        }
    }

    /// Reads up to `cap` bytes. Returns whether the body is complete.
    async fn take_body(
        &mut self,
        cap: usize,
        reserved: Option<&Reservation>,
    ) -> Result<(Vec<u8>, bool), ProviderError> {
        let mut body = std::mem::take(&mut self.begun);
        if let Some(reserved) = reserved {
            reserved.add(body.len());
        }
        while let Some(chunk) = self.next_chunk().await? {
            if body.len() + chunk.len() > cap {
                return Ok((body, false));
            }
            if let Some(reserved) = reserved {
                reserved.add(chunk.len());
            }
            body.extend_from_slice(&chunk);
        }
        Ok((body, true))
    }
}

fn json(head: &Head, body: &[u8]) -> Result<Value, ProviderError> {
    surrogates::parse_whole(body).map_err(|_| {
        let what = if body.is_empty() {
            "empty body"
        } else {
            "body is not JSON"
        };
        head.failed(what)
    })
}

/// Returns the chunks of a streamed body; ends after the first error. Has only the timeout of the
/// whole stream: [`Events`] limits gaps.
fn chunks(response: Response) -> impl Stream<Item = Result<Bytes, ProviderError>> + Send {
    stream::try_unfold(response, |mut response| async move {
        let chunk = response.chunk().await.map_err(|error| {
            let is_over_limit = error.is_timeout();
            ProviderError {
                is_over_limit,
                ..classify::transport(&error)
            }
        })?;
        Ok(chunk.map(|bytes| (bytes, response)))
    })
}

#[cfg(test)]
mod tests;
