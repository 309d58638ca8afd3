//! `[media]`: stored files, their URLs, and the store where they lie.
//!
//! Here: units, bounds, and the keys of an S3-compatible store from the environment. Not
//! here: talking to it.

use std::{collections::BTreeMap, time::Duration};

use secrecy::SecretString;
use serde::{Deserialize, Deserializer, de::Error as _};
use url::Url;

use super::{
    ConfigError, access,
    net::http_url,
    read::{Choice, quoted, seconds, strict},
};

/// Stored files of generations.
#[derive(Debug, Clone)]
pub struct Media {
    /// How long a signed URL is good for, 60 to 604,800 s.
    pub url_lifetime: Duration,
    /// Whether files are also downloaded from private addresses and over http: for tests.
    pub allow_private_urls: bool,
    /// The bucket where they lie. `None`: the folder `media` of `data.dir`.
    pub s3: Option<S3>,
}

/// A bucket of an S3-compatible store.
#[derive(Debug, Clone)]
pub struct S3 {
    /// The bucket, which must exist.
    pub bucket: String,
    /// Its region.
    pub region: String,
    /// The server, for others than AWS.
    pub endpoint: Option<Url>,
    /// Whether the bucket is a part of the host name instead of the path.
    pub virtual_hosted: bool,
    /// What all keys begin with, without slashes at its ends; may be empty.
    pub prefix: String,
    /// Key id and secret. `None`, on AWS only: those of the machine's role.
    pub credentials: Option<(String, SecretString)>,
    /// The token that belongs to temporary credentials.
    pub session_token: Option<SecretString>,
}

/// The names of the stores.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Storage {
    Local,
    S3,
}

impl Choice for Storage {
    const NAMES: &'static [(&'static str, Self)] = &[("local", Self::Local), ("s3", Self::S3)];
}

/// `[media]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a section with keys")]
pub(super) struct RawMedia {
    #[serde(deserialize_with = "seconds::<60, 604_800, _>")]
    url_seconds: Duration,
    #[serde(deserialize_with = "strict")]
    allow_private_urls: bool,
    #[serde(deserialize_with = "strict")]
    storage: Storage,
    s3: RawS3,
}

/// `[media.s3]` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with keys")]
struct RawS3 {
    #[serde(deserialize_with = "bucket")]
    bucket: String,
    #[serde(deserialize_with = "region")]
    region: String,
    #[serde(deserialize_with = "endpoint")]
    endpoint: Option<Url>,
    #[serde(deserialize_with = "strict")]
    virtual_hosted: bool,
    #[serde(deserialize_with = "prefix")]
    prefix: String,
    #[serde(deserialize_with = "strict")]
    access_key_id_env: String,
    #[serde(deserialize_with = "strict")]
    secret_access_key_env: String,
    #[serde(deserialize_with = "strict")]
    session_token_env: String,
}

impl RawMedia {
    /// Checks what belongs together, and takes the keys from the environment.
    pub(super) fn resolve(self, env: &BTreeMap<String, String>) -> Result<Media, ConfigError> {
        let s3 = match self.storage {
            Storage::Local => None,
            Storage::S3 => Some(self.s3.resolve(env)?),
        };
        Ok(Media {
            url_lifetime: self.url_seconds,
            allow_private_urls: self.allow_private_urls,
            s3,
        })
    }
}

impl RawS3 {
    fn resolve(self, env: &BTreeMap<String, String>) -> Result<S3, ConfigError> {
        if self.bucket.is_empty() {
            let problem = "is empty: name the bucket, as media.storage is \"s3\"";
            return Err(problem_at("bucket", problem));
        }
        let key = |setting: &str, name: &String| {
            let names: Vec<String> = [name.clone()]
                .into_iter()
                .filter(|n| !n.is_empty())
                .collect();
            access::check_names(&names).map_err(|problem| problem_at(setting, problem))?;
            access::value(&names, env)
        };
        let (id_env, secret_env) = (&self.access_key_id_env, &self.secret_access_key_env);
        let id = key("access_key_id_env", id_env)?;
        let secret = key("secret_access_key_env", secret_env)?;
        let session_token = key("session_token_env", &self.session_token_env)?;
        let unset = |setting: &str, name: &str, why: &str| {
            let problem = if name.is_empty() {
                format!("is empty, {why}: name the variable")
            } else {
                format!("is {name}, which is not set, {why}: set it")
            };
            Err(problem_at(setting, problem))
        };
        let credentials = match (id, secret) {
            (Some(id), Some(secret)) => Some((id.to_owned(), secret.into())),
            (None, None) if self.endpoint.is_none() => None,
            (None, None) => {
                let why = "and a server of your own needs keys";
                return unset("access_key_id_env", id_env, why);
            }
            (Some(_), None) => {
                let why = "but the key id is";
                return unset("secret_access_key_env", secret_env, why);
            }
            (None, Some(_)) => {
                let why = "but the secret is";
                return unset("access_key_id_env", id_env, why);
            }
        };
        Ok(S3 {
            bucket: self.bucket,
            region: self.region,
            endpoint: self.endpoint,
            virtual_hosted: self.virtual_hosted,
            prefix: self.prefix,
            session_token: session_token
                .filter(|_| credentials.is_some())
                .map(Into::into),
            credentials,
        })
    }
}

fn problem_at(setting: &str, problem: impl Into<String>) -> ConfigError {
    ConfigError::new(format!("media.s3.{setting}"), problem)
}

/// Text of letters, digits and `signs`.
fn plain(text: &str, signs: &[u8]) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_alphanumeric() || signs.contains(&b))
}

fn bucket<'de, D: Deserializer<'de>>(source: D) -> Result<String, D::Error> {
    let text: String = strict(source)?;
    if text.is_empty() || ((3..=63).contains(&text.len()) && plain(&text, b".-_")) {
        return Ok(text);
    }
    Err(D::Error::custom(format!(
        "is {}: must be the name of a bucket, 3 to 63 letters, digits, dots and hyphens",
        quoted(&text)
    )))
}

fn region<'de, D: Deserializer<'de>>(source: D) -> Result<String, D::Error> {
    let text: String = strict(source)?;
    if !text.is_empty() && plain(&text, b"-") {
        return Ok(text);
    }
    Err(D::Error::custom(format!(
        "is {}: must be a region, such as \"us-east-1\"",
        quoted(&text)
    )))
}

fn endpoint<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Url>, D::Error> {
    let text: String = strict(source)?;
    if text.is_empty() {
        return Ok(None);
    }
    http_url(&text).map(Some).map_err(D::Error::custom)
}

fn prefix<'de, D: Deserializer<'de>>(source: D) -> Result<String, D::Error> {
    let text: String = strict(source)?;
    let trimmed = text.trim_matches('/');
    let sound = |part: &str| !matches!(part, "" | "." | "..") && plain(part, b".-_");
    if trimmed.is_empty() || trimmed.split('/').all(sound) {
        return Ok(trimmed.to_owned());
    }
    Err(D::Error::custom(format!(
        "is {}: must be a path of letters, digits, dots, - and _, such as \"gensvc/media\"",
        quoted(&text)
    )))
}
