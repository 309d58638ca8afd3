//! The sections of the configuration, one struct each.
//!
//! Here: units and bounds, which `config/default.toml` repeats for the operator. Not here:
//! stored files ([`super::media`]), providers and models ([`super::providers`],
//! [`super::models`]).

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use secrecy::SecretString;
use serde::{Deserialize, Deserializer, de::Error as _};
use tracing_subscriber::EnvFilter;

use super::{
    net::{database_url, networks, origins, public_url},
    read::{Choice, millis, quoted, seconds, strict, whole},
};
use crate::domain::{credits::Credits, generation::Modality};

/// `[server]`: the HTTP side.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a section with keys")]
pub struct Server {
    /// Address and port to listen on; port 0 takes a free one.
    #[serde(deserialize_with = "strict")]
    pub bind: SocketAddr,
    /// The URL under which clients reach the server, without a trailing slash. `None`: as
    /// bound. Use [`super::Config::public_url`].
    #[serde(deserialize_with = "public_url")]
    pub(super) public_url: Option<String>,
    /// Origins that browsers may call from (`https://host[:port]`, or `*` alone).
    #[serde(deserialize_with = "origins")]
    pub cors_origins: Vec<String>,
    /// Networks whose `X-Forwarded-For` is believed: the address with its host bits cleared,
    /// and the length of its prefix in bits.
    #[serde(deserialize_with = "networks")]
    pub trusted_proxies: Vec<(IpAddr, u8)>,
    /// How long a stop is announced by `/health` before it begins, 0 to 300 s.
    #[serde(rename = "drain_seconds", deserialize_with = "seconds::<0, 300, _>")]
    pub drain: Duration,
    /// How long a stop waits for running synchronous work, 0 to 300 s.
    #[serde(rename = "shutdown_seconds", deserialize_with = "seconds::<0, 300, _>")]
    pub shutdown: Duration,
    /// How long a request's body may take to arrive, 1 to 300 s.
    #[serde(
        rename = "body_timeout_seconds",
        deserialize_with = "seconds::<1, 300, _>"
    )]
    pub body_timeout: Duration,
    /// Largest body of a request, 1 KiB to 16 MiB, in bytes.
    #[serde(deserialize_with = "whole::<usize, 1024, 16_777_216, _>")]
    pub max_body_bytes: usize,
    /// From a connection to the end of its first request's head, 1 to 300 s.
    #[serde(
        rename = "header_timeout_seconds",
        deserialize_with = "seconds::<1, 300, _>"
    )]
    pub header_timeout: Duration,
    /// Largest head of a request, 8 KiB to 256 KiB, in bytes.
    #[serde(deserialize_with = "whole::<usize, 8_192, 262_144, _>")]
    pub max_header_bytes: usize,
    /// From an answer to the end of the next request's head, 1 to 3,600 s.
    #[serde(
        rename = "keep_alive_seconds",
        deserialize_with = "seconds::<1, 3_600, _>"
    )]
    pub keep_alive: Duration,
    /// How long a client may take nothing of an answer, 1 to 3,600 s.
    #[serde(
        rename = "write_timeout_seconds",
        deserialize_with = "seconds::<1, 3_600, _>"
    )]
    pub write_timeout: Duration,
    /// How long a request that makes nothing may take in all, 1 to 300 s.
    #[serde(
        rename = "request_timeout_seconds",
        deserialize_with = "seconds::<1, 300, _>"
    )]
    pub request_timeout: Duration,
    /// Connections at once, 1 to 100,000.
    #[serde(deserialize_with = "whole::<usize, 1, 100_000, _>")]
    pub max_connections: usize,
    /// Requests at work at once, 1 to 100,000.
    #[serde(deserialize_with = "whole::<usize, 1, 100_000, _>")]
    pub max_requests: usize,
    /// Logins that wait for their password to be checked, 1 to 10,000.
    #[serde(deserialize_with = "whole::<usize, 1, 10_000, _>")]
    pub max_waiting_logins: usize,
}

/// `[database]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a section with keys")]
pub struct Database {
    /// Where Postgres is. `None`: a private one is started.
    #[serde(deserialize_with = "database_url")]
    pub url: Option<SecretString>,
    /// Connections at once, 4 to 1,000.
    #[serde(deserialize_with = "whole::<u32, 4, 1_000, _>")]
    pub max_connections: u32,
    /// How long a request waits for a free connection, 100 to 60,000 ms.
    #[serde(
        rename = "acquire_timeout_ms",
        deserialize_with = "millis::<100, 60_000, _>"
    )]
    pub acquire_timeout: Duration,
}

/// `[data]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a section with keys")]
pub struct Data {
    /// Where the private Postgres and stored files live.
    #[serde(deserialize_with = "directory")]
    pub dir: PathBuf,
}

/// `[log]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a section with keys")]
pub struct Log {
    /// A filter that `tracing_subscriber::EnvFilter` can parse.
    #[serde(deserialize_with = "filter")]
    pub filter: String,
    /// How a line looks.
    #[serde(deserialize_with = "strict")]
    pub format: LogFormat,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Choice for LogFormat {
    const NAMES: &'static [(&'static str, Self)] = &[("text", Self::Text), ("json", Self::Json)];
}

/// `[jobs]`: work in the background.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a section with keys")]
pub struct Jobs {
    /// How long a worker owns a row without a sign of life, 1 to 3,600 s.
    #[serde(rename = "lease_seconds", deserialize_with = "seconds::<1, 3_600, _>")]
    pub lease: Duration,
    /// Time between two looks at a provider's task, 10 to 600,000 ms.
    #[serde(
        rename = "poll_interval_ms",
        deserialize_with = "millis::<10, 600_000, _>"
    )]
    pub poll_interval: Duration,
    /// How long after its creation a job is given up, 1 to 604,800 s.
    #[serde(
        rename = "deadline_seconds",
        deserialize_with = "seconds::<1, 604_800, _>"
    )]
    pub deadline: Duration,
    /// Unfinished generations an account may have, 1 to 1,000,000.
    #[serde(deserialize_with = "whole::<u32, 1, 1_000_000, _>")]
    pub max_per_account: u32,
    /// Jobs that run at once in this process, 1 to 1,024.
    #[serde(deserialize_with = "whole::<usize, 1, 1_024, _>")]
    pub workers: usize,
    /// How many of these one account may have at once, 1 to 1,024.
    #[serde(deserialize_with = "whole::<usize, 1, 1_024, _>")]
    pub max_workers_per_account: usize,
}

/// `[retention]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a section with keys")]
pub struct Retention {
    /// Days after which a finished generation is deleted with its files, 0 to 36,500; 0 keeps
    /// all for ever.
    #[serde(deserialize_with = "whole::<u32, 0, 36_500, _>")]
    pub days: u32,
}

/// `[submissions]`: repeating a call that the provider did not take up.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a section with keys")]
pub struct Submissions {
    /// Calls in all, the first included, 1 to 10.
    #[serde(deserialize_with = "whole::<u32, 1, 10, _>")]
    pub attempts: u32,
    /// No new attempt begins later than this after the first, 0 to 3,600 s.
    #[serde(rename = "window_seconds", deserialize_with = "seconds::<0, 3_600, _>")]
    pub window: Duration,
    /// Wait before the second attempt, doubled for each further one, 1 to 60,000 ms.
    #[serde(rename = "retry_base_ms", deserialize_with = "millis::<1, 60_000, _>")]
    pub retry_base: Duration,
}

/// `[webhooks]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a section with keys")]
pub struct Webhooks {
    /// Whether webhooks may go to private addresses.
    #[serde(deserialize_with = "strict")]
    pub allow_private: bool,
    /// How long a receiver may take to answer, 100 to 60,000 ms.
    #[serde(rename = "timeout_ms", deserialize_with = "millis::<100, 60_000, _>")]
    pub timeout: Duration,
    /// Days for which finished deliveries are listed, 1 to 3,650.
    #[serde(deserialize_with = "whole::<u32, 1, 3_650, _>")]
    pub log_days: u32,
}

/// `[sessions]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a section with keys")]
pub struct Sessions {
    /// Days after which a session is logged out, 1 to 3,650.
    #[serde(deserialize_with = "whole::<u32, 1, 3_650, _>")]
    pub days: u32,
}

/// `[idempotency]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a section with keys")]
pub struct Idempotency {
    /// Hours for which an `Idempotency-Key` stays bound, 1 to 8,760.
    #[serde(deserialize_with = "whole::<u32, 1, 8_760, _>")]
    pub hours: u32,
    /// How long a replay waits for the first request, 1 to 600 s.
    #[serde(rename = "wait_seconds", deserialize_with = "seconds::<1, 600, _>")]
    pub wait: Duration,
}

/// `[defaults]`: who serves requests that name no provider.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a section with keys")]
pub struct Defaults {
    /// Providers of text, the most wanted first.
    #[serde(deserialize_with = "strict")]
    pub text: Vec<String>,
    /// Providers of images, the most wanted first.
    #[serde(deserialize_with = "strict")]
    pub image: Vec<String>,
    /// Providers of video, the most wanted first.
    #[serde(deserialize_with = "strict")]
    pub video: Vec<String>,
    /// Providers of speech, the most wanted first.
    #[serde(deserialize_with = "strict")]
    pub audio: Vec<String>,
}

impl Defaults {
    /// The list of each modality.
    pub fn lists(&self) -> [(Modality, &[String]); 4] {
        [
            (Modality::Text, &self.text),
            (Modality::Image, &self.image),
            (Modality::Video, &self.video),
            (Modality::Audio, &self.audio),
        ]
    }
}

/// `[demo]`: the account of a first start.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a section with keys")]
pub struct Demo {
    /// Credits it is given, 0 to 1,000,000,000.
    #[serde(deserialize_with = "demo_credits")]
    pub credits: Credits,
}

/// Largest grant to the demo account.
const MAX_DEMO: Credits = Credits::from_micros(1_000_000_000_000_000);

fn demo_credits<'de, D: Deserializer<'de>>(source: D) -> Result<Credits, D::Error> {
    let credits: Credits = strict(source)?;
    if credits > MAX_DEMO {
        return Err(D::Error::custom(format!(
            "is \"{credits}\": must be at most \"{MAX_DEMO}\""
        )));
    }
    Ok(credits)
}

fn directory<'de, D: Deserializer<'de>>(source: D) -> Result<PathBuf, D::Error> {
    let text: String = strict(source)?;
    if text.is_empty() {
        return Err(D::Error::custom(
            "is empty: must be a directory, such as \"data\"",
        ));
    }
    Ok(PathBuf::from(text))
}

fn filter<'de, D: Deserializer<'de>>(source: D) -> Result<String, D::Error> {
    let text: String = strict(source)?;
    if text.is_empty() {
        return Err(D::Error::custom(
            "is empty: must be a log filter, such as \"info\" or \"off\"",
        ));
    }
    match EnvFilter::builder().parse(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(D::Error::custom(format!(
            "is {}: must be a log filter, such as \"info,sqlx=warn\" ({error})",
            quoted(&text)
        ))),
    }
}
