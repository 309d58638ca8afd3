//! Calls the server: finds its URL and key, and maps its errors to exit codes.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
    time::Duration,
};

use reqwest::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use super::Env;
use crate::cli::Failure;

/// Pauses between attempts, in seconds; half a minute in total.
const PAUSES: [u64; 6] = [1, 2, 4, 8, 8, 8];
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Maximum silence of the server: longer than any provider's timeout.
const READ_LIMIT: Duration = Duration::from_mins(6);
pub(super) const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// The credentials that `gensvc login` stores.
#[derive(Serialize, Deserialize)]
pub(super) struct Credentials {
    pub(super) base_url: String,
    pub(super) api_key: String,
}

/// Returns the path of the file in the user's configuration folder.
pub(super) fn file(env: &Env) -> Result<PathBuf, Failure> {
    let folder = |name: &str| {
        env.get(name)
            .filter(|text| !text.is_empty())
            .map(PathBuf::from)
    };
    let base = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
    let base = base.ok_or("there is no folder for the API key: set HOME, or set GENSVC_API_KEY")?;
    Ok(base.join("gensvc").join("credentials.json"))
}

/// Writes the file, readable by this user only.
pub(super) fn keep(path: &PathBuf, credentials: &Credentials) -> Result<(), Failure> {
    let folder = path.parent().ok_or("the file has no folder")?;
    fs::create_dir_all(folder)?;
    // Writes a new file, so that the old one stays complete until it is replaced.
    let part = folder.join(format!(".credentials-{}", uuid::Uuid::now_v7()));
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&part)?;
    file.write_all(serde_json::to_string_pretty(credentials)?.as_bytes())?;
    file.sync_all()?;
    fs::rename(&part, path)?;
    Ok(())
}

fn kept(env: &Env) -> Result<Option<Credentials>, Failure> {
    let Ok(path) = file(env) else { return Ok(None) };
    match fs::read_to_string(&path) {
        Ok(text) => {
            let read = serde_json::from_str(&text);
            let read = read.map_err(|error| format!("{} cannot be read: {error}", path.display()));
            Ok(Some(read?))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{} cannot be read: {error}", path.display()).into()),
    }
}

pub(super) struct Connection {
    client: reqwest::Client,
    pub(super) base_url: String,
    key: String,
    key_source: KeySource,
}

/// The source of an API key, for the error of its refusal.
#[derive(Debug, Clone, Copy)]
pub(super) enum KeySource {
    /// `GENSVC_API_KEY`
    Variable,
    /// The file of `gensvc login`.
    Stored,
    /// Entered in `gensvc login`, and not stored yet.
    Typed,
}

impl KeySource {
    /// Returns the message for a key that the server does not know.
    const fn unknown(self) -> &'static str {
        match self {
            Self::Variable => "the server does not know the API key in GENSVC_API_KEY",
            Self::Stored => "the server does not know the stored API key; run gensvc login",
            Self::Typed => "the server does not know this key; nothing was saved",
        }
    }

    /// Returns advice to append to the server's message about a known key, such as an expired one.
    const fn advice(self) -> &'static str {
        match self {
            Self::Variable => "; set another key in GENSVC_API_KEY",
            Self::Stored => "; run gensvc login with another key",
            Self::Typed => "; nothing was saved",
        }
    }
}

/// An error of the server.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    pub(super) body: Value,
    key_source: KeySource,
}

/// The error if neither the environment nor the file has a key.
#[derive(Debug, thiserror::Error)]
#[error("there is no API key: set GENSVC_API_KEY, or run gensvc login")]
pub(super) struct NoKey;

impl NoKey {
    /// The same as for a key that the server refuses.
    pub(super) const EXIT_CODE: u8 = 3;
}

/// The error if no response arrived.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
struct Unreachable {
    sentence: String,
    /// Whether the request may have arrived.
    was_sent: bool,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let error = &self.body["error"];
        if error["code"] == "invalid_token" {
            return f.write_str(self.key_source.unknown());
        }
        match error["message"].as_str() {
            Some(message) => f.write_str(message)?,
            None => write!(f, "the server answered {}", self.status)?,
        }
        let errors = error["errors"].as_array().map_or(&[][..], Vec::as_slice);
        for error in errors.iter().skip(1) {
            let text = |name: &str| error[name].as_str().unwrap_or_default();
            write!(f, "\n        {} {}", text("param"), text("message"))?;
        }
        if let Some(shortfall) = error["shortfall"].as_str() {
            write!(f, " ({shortfall} credits short)")?;
        }
        if self.status == StatusCode::UNAUTHORIZED {
            f.write_str(self.key_source.advice())?;
        }
        Ok(())
    }
}

impl std::error::Error for Refused {}

impl Refused {
    /// Whether an identical request may soon succeed.
    fn passes(&self) -> bool {
        self.body["error"]["retryable"] == true && self.body["generation"].is_null()
    }

    pub(super) fn exit_code(&self) -> u8 {
        match self.status.as_u16() {
            400 | 404 | 405 | 413 | 415 | 422 => 2,
            401 | 403 => 3,
            402 => 4,
            429 | 503 => 5,
            409 | 502 | 504 => 6,
            _ => 1,
        }
    }
}

impl Connection {
    /// Opens a connection with the settings of the environment, or else of `gensvc login`.
    pub(super) fn open(env: &Env) -> Result<Self, Failure> {
        let given = |name: &str| env.get(name).filter(|text| !text.is_empty()).cloned();
        let (url, key) = (given("GENSVC_BASE_URL"), given("GENSVC_API_KEY"));
        let kept = match (&url, &key) {
            (_, Some(_)) => None,
            // A stored key is only sent to the server for which it was stored.
            (Some(url), None) => kept(env)?.filter(|kept| plain(&kept.base_url) == plain(url)),
            (None, None) => kept(env)?,
        };
        let key_source = match key {
            Some(_) => KeySource::Variable,
            None => KeySource::Stored,
        };
        let (kept_url, kept_key) = kept.map(|kept| (kept.base_url, kept.api_key)).unzip();
        let key = key.or(kept_key);
        let key = key.ok_or(NoKey)?;
        let url = url.or(kept_url).unwrap_or_else(|| DEFAULT_URL.to_owned());
        Self::new(&url, key, key_source)
    }

    pub(super) fn new(base_url: &str, key: String, key_source: KeySource) -> Result<Self, Failure> {
        let client =
            reqwest::Client::builder().user_agent(concat!("gensvc/", env!("CARGO_PKG_VERSION")));
        let is_http = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
        if !Url::parse(base_url).is_ok_and(|url| is_http(&url)) {
            return Err(format!(
                "the server's address is {base_url:?} and must be a URL such as {DEFAULT_URL}: set \
                 GENSVC_BASE_URL"
            )
            .into());
        }
        Ok(Self {
            client: client
                .connect_timeout(CONNECT_LIMIT)
                .read_timeout(READ_LIMIT)
                .build()?,
            base_url: plain(base_url).to_owned(),
            key,
            key_source,
        })
    }

    /// Sends one request. A refusal is an error.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Response, Failure> {
        let mut request = self
            .client
            .request(method, format!("{}{path}", self.base_url));
        request = request.bearer_auth(&self.key);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        self.answered(request).await
    }

    /// Uploads a file. Retries if the response is lost, because the same bytes are one upload.
    pub(super) async fn upload(
        &self,
        path: &str,
        media_type: &str,
        bytes: Vec<u8>,
    ) -> Result<Response, Failure> {
        let bytes = bytes::Bytes::from(bytes);
        let send = || {
            let request = self.client.post(format!("{}{path}", self.base_url));
            let request = request.bearer_auth(&self.key);
            let request = request.header("content-type", media_type);
            self.answered(request.body(bytes.clone()))
        };
        again(send, |error| error.was_sent).await
    }

    async fn answered(&self, request: reqwest::RequestBuilder) -> Result<Response, Failure> {
        let sent = request.send().await;
        let response = sent.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = response.json().await.unwrap_or_default();
        Err(Box::new(Refused {
            status,
            body,
            key_source: self.key_source,
        }))
    }

    /// Sends a request that creates something, and repeats it if its response may have been lost.
    /// Its Idempotency-Key prevents a second creation.
    pub(super) async fn make(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Result<Response, Failure> {
        let send = || self.send(Method::POST, path, headers, Some(body));
        again(send, |error| error.was_sent).await
    }

    /// Reads a generation. Retries while the server is briefly unavailable.
    pub(super) async fn look(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Value, Failure> {
        let send = || self.send(Method::GET, path, headers, None);
        Ok(again(send, |_| true).await?.json().await?)
    }

    pub(super) async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, Failure> {
        let mut text = url::form_urlencoded::Serializer::new(String::new());
        text.extend_pairs(query);
        let path = match text.finish() {
            query if query.is_empty() => path.to_owned(),
            query => format!("{path}?{query}"),
        };
        Ok(self
            .send(Method::GET, &path, &[], None)
            .await?
            .json()
            .await?)
    }

    /// Downloads a stored file by its signed link, without the key, which is only for the API.
    pub(super) async fn file(&self, url: &str) -> Result<Response, Failure> {
        let response = self.client.get(url).send().await?;
        Ok(response
            .error_for_status()
            .map_err(reqwest::Error::without_url)?)
    }

    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let mut cause: &dyn std::error::Error = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        Box::new(Unreachable {
            sentence: format!(
                "cannot reach {} ({cause}): start the server, or set GENSVC_BASE_URL to its address",
                self.base_url
            ),
            was_sent: !error.is_connect(),
        })
    }
}

/// Sends until there is a response, a few times.
async fn again<F: Future<Output = Result<Response, Failure>>>(
    send: impl Fn() -> F,
    may_repeat: impl Fn(&Unreachable) -> bool,
) -> Result<Response, Failure> {
    for pause in PAUSES {
        let error = match send().await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        let passes = match error.downcast_ref::<Refused>() {
            Some(refused) => refused.passes(),
            None => error.downcast_ref().is_some_and(&may_repeat),
        };
        if !passes {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_secs(pause)).await;
    }
    send().await
}

/// Returns the URL of a server without its version path.
fn plain(url: &str) -> &str {
    let url = url.trim_end_matches('/');
    url.strip_suffix("/v1").unwrap_or(url)
}
