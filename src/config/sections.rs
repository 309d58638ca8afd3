//! The sections of the configuration, one struct each.
//!
//! `config/default.toml` documents units and bounds for the operator. The reader of settings
//! refuses unknown keys of every struct.

use std::{fs::read_to_string, net::SocketAddr, path::PathBuf, thread::available_parallelism};

use secrecy::SecretString;
use serde::{Deserialize, Deserializer, de::Error as _};
use toml::Value;
use tracing_subscriber::filter::{LevelFilter, Targets};
use url::Url;

use super::net::{address, database_url, networks, optional_url, origins, public_url};
use crate::domain::{
    credits::Credits,
    generation::Modality,
    party::Network,
    pricing::Markup,
    settings::{
        self, quoted,
        range::{Bounded, Millis, Seconds},
        shown,
    },
};

/// `[server]`
#[derive(Debug, Clone, Deserialize)]
pub struct Server {
    /// Address and port to listen on; port 0 takes a free one.
    #[serde(deserialize_with = "address")]
    pub bind: SocketAddr,
    /// The URL of the server for clients, without a trailing slash. `None`: the bound address. Use
    /// [`super::Config::public_url`].
    #[serde(deserialize_with = "public_url")]
    pub(super) public_url: Option<String>,
    /// Origins that browsers may call from (`https://host[:port]`, or `*` alone).
    #[serde(deserialize_with = "origins")]
    pub cors_origins: Vec<String>,
    /// Networks whose `X-Forwarded-For` is trusted.
    #[serde(deserialize_with = "networks")]
    pub trusted_proxies: Vec<Network>,
    /// 0: half of the cores. Use [`Self::threads`].
    pub(super) threads: Bounded<usize, 0, 1_024>,
    /// Seconds for which `/health` announces a stop before it begins.
    pub drain_seconds: Seconds<0, 300>,
    /// Maximum seconds for which a stop waits for synchronous work.
    pub shutdown_seconds: Seconds<0, 300>,
    /// Maximum seconds for the body of a request to arrive.
    pub body_timeout_seconds: Seconds<1, 300>,
    /// Maximum bytes of a request's body.
    pub max_body_bytes: Bounded<usize, 1024, 16_777_216>,
    /// Maximum bytes of an SDK request's body.
    pub max_sdk_body_bytes: Bounded<usize, 1024, 134_217_728>,
    /// Maximum seconds from a connection to the end of its first request's head.
    pub header_timeout_seconds: Seconds<1, 300>,
    /// Maximum bytes of a request's head.
    pub max_header_bytes: Bounded<usize, 8_192, 262_144>,
    /// Maximum seconds from a response to the end of the next request's head.
    pub keep_alive_seconds: Seconds<1, 3_600>,
    /// Maximum seconds in which a client reads nothing of a response.
    pub write_timeout_seconds: Seconds<1, 3_600>,
    /// Maximum seconds of a request that generates nothing.
    pub request_timeout_seconds: Seconds<1, 300>,
    pub max_connections: Bounded<usize, 1, 100_000>,
    /// Maximum concurrent requests.
    pub max_requests: Bounded<usize, 1, 100_000>,
    /// 0: a quarter of the machine's memory. Use [`Self::memory_bytes`].
    pub(super) memory_mib: Bounded<usize, 0, 1_048_576>,
    /// Maximum share of one account in concurrent synchronous generations, in percent.
    pub account_share_percent: Bounded<usize, 1, 100>,
    /// Maximum logins that wait for the check of their password.
    pub max_waiting_logins: Bounded<usize, 1, 10_000>,
}

/// Returns the memory of the machine, container or systemd unit in MiB, if it can be read.
fn machine_mib() -> Option<usize> {
    let text = read_to_string("/proc/meminfo").ok()?;
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let own = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::"));
    let limits = [
        // A container's control group, versions 2 and 1.
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        // A unit's.
        &format!("/sys/fs/cgroup{}/memory.max", own.unwrap_or_default()),
    ];
    let limits = limits.into_iter().filter_map(|file| {
        let bytes: usize = read_to_string(file).ok()?.trim().parse().ok()?;
        Some(bytes >> 20)
    });
    limits.chain([kib >> 10]).min()
}

/// Minimum of the default budget.
const MIN_MEMORY_MIB: usize = 512;

impl Server {
    /// Returns the memory budget of requests, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let mib = match *self.memory_mib {
            0 => (machine_mib().unwrap_or_default() / 4).max(MIN_MEMORY_MIB),
            mib => mib,
        };
        mib << 20
    }

    /// Returns the number of threads that run requests.
    pub fn threads(&self) -> usize {
        match *self.threads {
            0 => available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)),
            threads => threads,
        }
    }
}

/// `[database]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Database {
    /// `None`: a private Postgres is started.
    #[serde(deserialize_with = "database_url")]
    pub url: Option<SecretString>,
    pub max_connections: Bounded<u32, 4, 1_000>,
    pub credit_connections: Bounded<u32, 1, 64>,
    pub locked_connections: Bounded<u32, 1, 64>,
    pub key_connections: Bounded<u32, 1, 64>,
    pub job_connections: Bounded<u32, 1, 64>,
    /// Maximum milliseconds for which a request waits for a free connection.
    pub acquire_timeout_ms: Millis<100, 60_000>,
}

/// `[data]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Data {
    /// Directory of the private Postgres and stored files.
    #[serde(deserialize_with = "directory")]
    pub dir: PathBuf,
}

/// `[log]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Log {
    /// A filter that `tracing_subscriber::filter::Targets` can parse.
    #[serde(deserialize_with = "filter")]
    pub filter: String,
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    /// One JSON object per line.
    Json,
}

/// `[jobs]`: background work.
#[derive(Debug, Clone, Deserialize)]
pub struct Jobs {
    /// Seconds for which a worker owns a row without a heartbeat.
    pub lease_seconds: Seconds<1, 3_600>,
    /// Milliseconds between two polls of a provider's task.
    pub poll_interval_ms: Millis<10, 600_000>,
    /// Age in seconds at which a job fails as `expired`.
    pub deadline_seconds: Seconds<1, 604_800>,
    /// Maximum unfinished generations of an account.
    pub max_per_account: Bounded<i32, 1, 1_000_000>,
    /// Maximum concurrent jobs of this process.
    pub workers: Bounded<usize, 1, 1_024>,
    /// Maximum concurrent jobs of one account in this process.
    pub max_workers_per_account: Bounded<usize, 1, 1_024>,
    /// Whether the server is paused: no generation is run, ended or deleted.
    pub paused: bool,
}

/// `[retention]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Retention {
    /// Days after which a finished generation is deleted with its files; 0 keeps all.
    pub days: Bounded<u32, 0, 36_500>,
}

/// `[submissions]`: retries of calls that the provider did not accept.
#[derive(Debug, Clone, Deserialize)]
pub struct Submissions {
    /// Maximum calls, including the first.
    pub attempts: Bounded<u32, 1, 10>,
    /// Maximum seconds between the first call and the start of a retry.
    pub window_seconds: Seconds<0, 3_600>,
    /// Backoff before the first retry in milliseconds, doubled for each further one.
    pub retry_base_ms: Millis<1, 60_000>,
}

/// `[webhooks]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Webhooks {
    /// Whether webhooks may go to private addresses.
    pub allow_private: bool,
    /// Maximum milliseconds for a receiver to respond.
    pub timeout_ms: Millis<100, 60_000>,
    /// Days for which finished deliveries are listed.
    pub log_days: Bounded<u32, 1, 3_650>,
}

/// `[sessions]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Sessions {
    /// Days after which a session expires.
    pub days: Bounded<i64, 1, 3_650>,
}

/// `[idempotency]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Idempotency {
    /// Hours for which an `Idempotency-Key` stays bound.
    pub hours: Bounded<i64, 1, 8_760>,
    /// Maximum seconds for which a replay waits for the first request.
    pub wait_seconds: Seconds<1, 600>,
    /// Minutes in which an SDK's retry joins the request before it; 0 disables joining.
    pub join_minutes: Bounded<i64, 0, 60>,
}

/// `[credits]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Holds {
    /// Maximum seconds for which an SDK request waits for credits on hold.
    pub hold_wait_seconds: Seconds<0, 60>,
}

/// `[defaults]`: providers of requests that name none, by preference.
#[derive(Debug, Clone, Deserialize)]
pub struct Defaults {
    pub text: Vec<String>,
    pub image: Vec<String>,
    pub video: Vec<String>,
    pub audio: Vec<String>,
}

impl Defaults {
    pub fn lists(&self) -> [(Modality, &[String]); 4] {
        [
            (Modality::Text, &self.text),
            (Modality::Image, &self.image),
            (Modality::Video, &self.video),
            (Modality::Audio, &self.audio),
        ]
    }
}

/// `[metrics]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Metrics {
    /// Bearer token of GET /metrics. `None`: metrics are only on `port`.
    #[serde(deserialize_with = "token")]
    pub token: Option<SecretString>,
    /// Port on 127.0.0.1, without a token; 0 takes a free one.
    pub port: Bounded<u16, 0, 65_535>,
    /// Seconds between two self-audits; zero disables them.
    pub audit_seconds: Seconds<0, 86_400>,
}

/// `[traces]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Traces {
    /// The collector, without the path of its signal. `None` disables traces.
    #[serde(deserialize_with = "optional_url")]
    pub otlp_endpoint: Option<Url>,
    #[serde(deserialize_with = "service_name")]
    pub service_name: String,
    /// Fraction of requests that are traced, 0 to 1.
    #[serde(deserialize_with = "ratio")]
    pub sample_ratio: f64,
}

/// `[pricing]`.
#[derive(Debug, Clone, Deserialize)]
pub struct Pricing {
    /// The factor for models and providers without their own.
    pub markup: Markup,
}

/// `[demo]`: the account that a first start creates.
#[derive(Debug, Clone, Deserialize)]
pub struct Demo {
    #[serde(deserialize_with = "demo_credits")]
    pub credits: Credits,
}

/// Maximum credits of the demo account.
const MAX_DEMO: Credits = Credits::from_micros(1_000_000_000_000_000);

fn demo_credits<'de, D: Deserializer<'de>>(source: D) -> Result<Credits, D::Error> {
    let credits = Credits::deserialize(source)?;
    if credits > MAX_DEMO {
        return Err(D::Error::custom(format!(
            "is \"{credits}\": must be at most \"{MAX_DEMO}\""
        )));
    }
    Ok(credits)
}

/// Reads text that must not be empty. `must`: the error.
fn not_empty<'de, D: Deserializer<'de>>(source: D, must: &str) -> Result<String, D::Error> {
    let text = String::deserialize(source)?;
    if text.is_empty() {
        return Err(D::Error::custom(format_args!("is empty: must be {must}")));
    }
    Ok(text)
}

fn directory<'de, D: Deserializer<'de>>(source: D) -> Result<PathBuf, D::Error> {
    not_empty(source, "a directory, such as \"data\"").map(PathBuf::from)
}

fn filter<'de, D: Deserializer<'de>>(source: D) -> Result<String, D::Error> {
    let text = not_empty(source, "a log filter, such as \"info\" or \"off\"")?;
    // A bare word would be a target, so a misspelled level would log nothing.
    let bare = text.split(',').map(str::trim).find(|part| {
        !part.is_empty() && !part.contains('=') && part.parse::<LevelFilter>().is_err()
    });
    let problem = match (bare, text.parse::<Targets>()) {
        (None, Ok(_)) => return Ok(text),
        (None, Err(error)) => error.to_string(),
        (Some(word), _) => format!("{} is no level", quoted(word)),
    };
    Err(D::Error::custom(format!(
        "is {}: must be a level (error, warn, info, debug, trace, off), or levels by target, such \
         as \"info,sqlx=warn\" ({problem})",
        quoted(&text)
    )))
}

/// Reads a token. Errors never repeat the value.
fn token<'de, D: Deserializer<'de>>(source: D) -> Result<Option<SecretString>, D::Error> {
    let problem = "is no token (its value is not shown): must be text without spaces";
    let text = String::deserialize(source).map_err(|_| D::Error::custom(problem))?;
    if text.is_empty() {
        return Ok(None);
    }
    if !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(D::Error::custom(problem));
    }
    Ok(Some(text.into()))
}

fn service_name<'de, D: Deserializer<'de>>(source: D) -> Result<String, D::Error> {
    not_empty(source, "a name, such as \"gensvc\"")
}

fn ratio<'de, D: Deserializer<'de>>(source: D) -> Result<f64, D::Error> {
    let value = Value::deserialize(source)?;
    settings::read(value.clone())
        .ok()
        .filter(|number: &f64| (0.0..=1.0).contains(number))
        .ok_or_else(|| {
            let bad = shown(&value);
            D::Error::custom(format_args!(
                "is {bad}: must be a number from 0 to 1, such as 0.1"
            ))
        })
}
