//! `[media]`: stored files, their URLs, and their store.
//!
//! The keys of an S3-compatible store come from the environment.

use std::collections::BTreeMap;

use secrecy::SecretString;
use serde::{Deserialize, Deserializer, de::Error as _};
use url::Url;

use super::{
    ConfigError,
    net::optional_url,
    providers::{check_names, value},
};
use crate::domain::settings::{
    quoted,
    range::{Bounded, Seconds},
};

/// Stored files of generations.
#[derive(Debug, Clone, Deserialize)]
pub struct Media {
    /// Validity of a signed URL.
    pub url_seconds: Seconds<60, 604_800>,
    /// Whether files may be downloaded from private addresses and over http; for tests.
    pub allow_private_urls: bool,
    /// Hours for which an upload is kept after its last use.
    pub upload_hours: Bounded<i64, 1, 8_760>,
    /// Maximum total bytes of an account's uploads.
    pub upload_bytes_per_account: Bounded<i64, 1_048_576, 1_099_511_627_776>,
    storage: Storage,
    /// `None`: the folder `media` of `data.dir`.
    pub s3: Option<S3>,
}

/// A bucket of an S3-compatible store.
#[derive(Debug, Clone, Deserialize)]
pub struct S3 {
    /// The bucket, which must exist.
    #[serde(deserialize_with = "bucket")]
    pub bucket: String,
    #[serde(deserialize_with = "region")]
    pub region: String,
    /// The URL of a server other than AWS.
    #[serde(deserialize_with = "optional_url")]
    pub endpoint: Option<Url>,
    /// Whether the bucket is in the host name instead of the path.
    pub virtual_hosted: bool,
    /// Prefix of all keys, without slashes at its ends; may be empty.
    #[serde(deserialize_with = "prefix")]
    pub prefix: String,
    access_key_id_env: String,
    secret_access_key_env: String,
    session_token_env: String,
    /// Key id and secret. `None`, only on AWS: the credentials of the machine's role.
    #[serde(skip)]
    pub credentials: Option<(String, SecretString)>,
    /// The session token of temporary credentials.
    #[serde(skip)]
    pub session_token: Option<SecretString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Storage {
    Local,
    S3,
}

impl Media {
    /// Checks related settings, and reads the keys from the environment.
    pub(super) fn resolve(&mut self, env: &BTreeMap<String, String>) -> Result<(), ConfigError> {
        if self.storage == Storage::Local {
            self.s3 = None;
        }
        self.s3.as_mut().map_or(Ok(()), |s3| s3.resolve(env))
    }
}

impl S3 {
    fn resolve(&mut self, env: &BTreeMap<String, String>) -> Result<(), ConfigError> {
        if self.bucket.is_empty() {
            let problem = "is empty: name the bucket, as media.storage is \"s3\"";
            return Err(problem_at("bucket", problem));
        }
        let key = |setting: &str, name: &String| {
            let names = std::slice::from_ref(name);
            check_names(names).map_err(|problem| problem_at(setting, problem))?;
            value(names, env)
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
        self.session_token = session_token
            .filter(|_| credentials.is_some())
            .map(Into::into);
        self.credentials = credentials;
        Ok(())
    }
}

fn problem_at(setting: &str, problem: impl Into<String>) -> ConfigError {
    ConfigError::new(format!("media.s3.{setting}"), problem)
}

/// Whether a text has only letters, digits and `signs`.
fn plain(text: &str, signs: &[u8]) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_alphanumeric() || signs.contains(&b))
}

fn bucket<'de, D: Deserializer<'de>>(source: D) -> Result<String, D::Error> {
    let text = String::deserialize(source)?;
    if text.is_empty() || ((3..=63).contains(&text.len()) && plain(&text, b".-_")) {
        return Ok(text);
    }
    Err(D::Error::custom(format!(
        "is {}: must be the name of a bucket, 3 to 63 letters, digits, dots and hyphens",
        quoted(&text)
    )))
}

fn region<'de, D: Deserializer<'de>>(source: D) -> Result<String, D::Error> {
    let text = String::deserialize(source)?;
    if !text.is_empty() && plain(&text, b"-") {
        return Ok(text);
    }
    Err(D::Error::custom(format!(
        "is {}: must be a region, such as \"us-east-1\"",
        quoted(&text)
    )))
}

fn prefix<'de, D: Deserializer<'de>>(source: D) -> Result<String, D::Error> {
    let text = String::deserialize(source)?;
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
