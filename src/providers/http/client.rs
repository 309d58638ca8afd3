//! The client of a provider's API: its address, credentials and timeout.

use std::time::Duration;

use reqwest::{
    Method, RequestBuilder,
    header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::time::timeout;
use url::Url;

use super::{
    Answer, HttpClient, MAX_CALL_TIME, RequestJson, STREAM_IDLE, SetupError,
    base_url::{VersionPath, base_url, endpoint},
    classify::{self, ErrorInfo, Head},
    form::Form,
};
use crate::providers::{ProviderError, ProviderErrorKind, Setup};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

#[derive(Debug, Clone)]
pub struct VendorClient {
    /// The provider's name, for the log.
    pub name: String,
    /// Headers of every request: credentials, marked sensitive, and others. `Accept` is JSON unless
    /// it is replaced.
    pub headers: HeaderMap,
    /// Maximum duration of a call, from connecting to the last byte of the body; for a stream, that
    /// of its head and of each gap.
    pub timeout: Duration,
    /// Interval between two polls of a task within one call.
    pub poll_interval: Duration,
    /// Reads the body of an error.
    pub error_info: fn(Option<&Value>) -> ErrorInfo,
    http: HttpClient,
    /// The base URL with its version path.
    base_url: Url,
}

impl VendorClient {
    /// Builds a client. The key is sent in a header, since query strings end up in logs. `key`: the
    /// header's name, and the prefix of the key. Without a key there is no such header.
    pub fn new(
        setup: &Setup,
        version: VersionPath,
        key: (HeaderName, &str),
        error_info: fn(Option<&Value>) -> ErrorInfo,
    ) -> Result<Self, SetupError> {
        let mut headers = HeaderMap::from_iter([(ACCEPT, JSON)]);
        if let Some(secret) = &setup.api_key {
            headers.insert(key.0, secret_header(key.1, secret)?);
        }
        Ok(Self {
            name: setup.name.clone(),
            headers,
            timeout: setup.timeout,
            poll_interval: setup.poll_interval,
            error_info,
            http: setup.http.clone(),
            base_url: base_url(&setup.base_url, version)?,
        })
    }

    /// Adds a header to each request.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.insert(name, HeaderValue::from_static(value));
        self
    }

    pub fn url(&self, path: &[&str]) -> Url {
        endpoint(&self.base_url, path)
    }

    /// Sends JSON once. Fails on an error status.
    pub async fn post(&self, url: Url, body: RequestJson) -> Result<Answer, ProviderError> {
        self.check(self.post_within(url, body, self.timeout).await?)
            .await
    }

    /// As [`Self::post`], for a stream. The timeout applies to its head and to each gap, at most
    /// [`STREAM_IDLE`]. A stream that keeps sending may last [`MAX_CALL_TIME`].
    pub async fn open_stream(&self, url: Url, body: RequestJson) -> Result<Answer, ProviderError> {
        let posting = self.post_within(url, body, MAX_CALL_TIME);
        let late = |_| ProviderError::new(ProviderErrorKind::Timeout, "no answer in time");
        let answer = timeout(self.timeout, posting).await.map_err(late)??;
        let idle = self.timeout.min(STREAM_IDLE);
        self.check(Answer { idle, ..answer }).await
    }

    /// As [`Self::post`], with a form.
    pub async fn post_form(&self, url: Url, form: Form) -> Result<Answer, ProviderError> {
        let encoded = form.encoded();
        let (kind, body) =
            encoded.map_err(|_| ProviderError::failed("no randomness").not_started())?;
        let request = self.http.inner.post(url).header(CONTENT_TYPE, kind);
        let answer = self.send(request.body(body), self.timeout).await?;
        self.check(answer).await
    }

    /// Sends a request without a body once, a poll (GET) or a cancel (DELETE, POST), and reads the
    /// response's head, whatever its status.
    pub async fn bare(&self, method: Method, url: Url) -> Result<Answer, ProviderError> {
        let request = match method {
            // Google's front end answers 411 to a POST without a length.
            Method::POST => self.http.inner.post(url).header(CONTENT_LENGTH, 0),
            other => self.http.inner.request(other, url),
        };
        self.send(request, self.timeout).await
    }

    /// Fails on an error status, refined by the body.
    pub async fn check(&self, answer: Answer) -> Result<Answer, ProviderError> {
        if answer.head.is_success() {
            return Ok(answer);
        }
        let (head, body) = answer.error_json().await;
        Err(self.error(&head, body.as_ref()))
    }

    /// Creates the error of a response with this status and body.
    pub fn error(&self, head: &Head, root: Option<&Value>) -> ProviderError {
        classify::error(&self.name, head, &(self.error_info)(root))
    }

    /// Creates the error of a successful response whose work failed with `code`, of this `kind`.
    pub fn error_of_code(
        &self,
        head: &Head,
        code: &str,
        kind: Option<ProviderErrorKind>,
    ) -> ProviderError {
        let error_info = ErrorInfo {
            code: Some(code.to_owned()),
            kind,
            ..ErrorInfo::default()
        };
        classify::error(&self.name, head, &error_info)
    }

    /// Sends once and reads the response's head, whatever its status.
    pub(super) async fn post_within(
        &self,
        url: Url,
        body: RequestJson,
        timeout: Duration,
    ) -> Result<Answer, ProviderError> {
        let request = self.http.inner.post(url).header(CONTENT_TYPE, JSON);
        self.send(request.body(body), timeout).await
    }

    async fn send(
        &self,
        request: RequestBuilder,
        timeout: Duration,
    ) -> Result<Answer, ProviderError> {
        let request = request.headers(self.headers.clone());
        let sending = request.timeout(timeout).send();
        let response = sending.await.map_err(|error| classify::transport(&error))?;
        Ok(Answer {
            head: Head::read(response.status().as_u16(), response.headers()),
            response,
            begun: Vec::new(),
            idle: STREAM_IDLE,
        })
    }
}

/// Returns `prefix` + key as a header value, marked sensitive so that `Debug` does not print it.
/// Trims whitespace around the key, such as a file's trailing newline.
pub(super) fn secret_header(prefix: &str, key: &SecretString) -> Result<HeaderValue, SetupError> {
    let text = format!("{prefix}{}", key.expose_secret().trim());
    let mut value = HeaderValue::from_str(&text).map_err(|_| SetupError::Key)?;
    value.set_sensitive(true);
    Ok(value)
}
