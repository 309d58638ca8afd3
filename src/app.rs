//! The composition root: builds the parts of a server from the configuration.

pub mod config;
pub mod database;
mod demo;
pub mod listener;
mod media;
mod periodic;
mod providers;
mod reload;
pub mod serve;
mod stop;

use std::{iter::successors, sync::Arc};

use axum::Router;
use chrono::TimeDelta;

use self::{database::Database, reload::Reload};
use crate::{
    api::{self, ApiSettings, MediaLinks, MetricsEndpoint},
    config::Config,
    console,
    domain::clock::SharedClock,
    jobs::{
        self, Auditor, Runner, RunnerSettings, SubmitSettings,
        webhooks::{Dispatcher, Sender},
    },
    media::MediaStore,
    memory::Memory,
    observe::Metrics,
    providers::{Registry, http::HttpClient},
    service::{Service, ServiceSettings},
    store::Store,
};

/// The parts of a running server.
#[derive(Clone)]
pub struct App {
    pub service: Service,
    pub runner: Runner,
    pub dispatcher: Dispatcher,
    /// Audits the ledger while the server runs.
    pub auditor: Auditor,
    /// Creates links to stored files.
    pub links: MediaLinks,
    /// Applies a changed catalogue.
    pub reload: Reload,
    pub router: Router,
    /// The metrics, for a listener on this machine only.
    pub metrics_router: Router,
}

/// Why a start failed.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    #[error("providers.{name}: {source}")]
    Provider {
        name: String,
        source: crate::providers::http::SetupError,
    },
    #[error("the HTTP client could not be made: {0}")]
    HttpClient(crate::providers::http::SetupError),
    #[error(transparent)]
    LocalPostgres(#[from] crate::local_postgres::LocalPostgresError),
    #[error(transparent)]
    DatabaseUrl(#[from] crate::store::HostsError),
    #[error("cannot {verb} {place} ({cause}){advice}")]
    Database {
        verb: &'static str,
        place: String,
        cause: String,
        advice: String,
    },
    #[error("{}{}", .0, causes(.0))]
    Store(#[from] crate::store::StoreError),
    #[error("{0}")]
    Service(#[from] crate::service::ServiceError),
    #[error("cannot listen on {address} ({source}); choose another with GENSVC_BIND")]
    Bind {
        address: std::net::SocketAddr,
        source: std::io::Error,
    },
    #[error("cannot serve the metrics on {address} ({source}); choose another with metrics.port")]
    MetricsBind {
        address: std::net::SocketAddr,
        source: std::io::Error,
    },
    #[error("cannot use the folder {} ({source}); choose another with GENSVC_DATA_DIR", .path.display())]
    Folder {
        path: std::path::PathBuf,
        source: std::io::Error,
    },
    #[error("the store of files cannot be used: {}{}", .0, causes(.0))]
    Media(#[from] crate::media::MediaStoreError),
    #[error("the client that fetches files could not be made: {0}")]
    Downloader(reqwest::Error),
    #[error("the client that posts to webhooks could not be made: {0}")]
    Sender(reqwest::Error),
    #[error("links to files cannot be made: {0}")]
    Links(String),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("the OpenAPI document could not be made: {0}")]
    Document(#[from] serde_json::Error),
}

/// Joins the causes of an error, without those that the error itself names.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let own = text.len();
    for cause in successors(error.source(), |&cause| cause.source()) {
        let words = cause.to_string();
        if !text.ends_with(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
    }
    text.split_off(own)
}

impl App {
    /// Builds a server with a store whose schema is up to date. Clients use `public_url`.
    pub async fn build(
        config: &Config,
        store: Store,
        clock: SharedClock,
        public_url: &str,
    ) -> Result<Self, AppError> {
        let storage = media::open(config).await?;
        Self::build_over(config, store, clock, public_url, storage, None).await
    }

    /// As [`Self::build`], with another file store than the configured one, and with `adapters`
    /// instead of the configured ones.
    pub async fn build_over(
        config: &Config,
        store: Store,
        clock: SharedClock,
        public_url: &str,
        storage: MediaStore,
        adapters: Option<Registry>,
    ) -> Result<Self, AppError> {
        let http = HttpClient::new().map_err(AppError::HttpClient)?;
        let providers = match adapters {
            Some(adapters) => adapters,
            None => providers::registry(config, config.enabled_providers(), &http, &clock)?,
        };
        let metrics = Metrics::default();
        let (providers, adapters) = jobs::observed(&providers, &metrics);
        let memory = Memory::new(config.server.memory_bytes());
        let links = media::links(config, &store, &clock, public_url).await?;
        let runner = Runner::new(
            store.clone(),
            Arc::clone(&clock),
            providers.clone(),
            storage.clone(),
            media::downloader(config)?,
            metrics.clone(),
            RunnerSettings {
                submit: SubmitSettings {
                    attempts: *config.submissions.attempts,
                    window: *config.submissions.window_seconds,
                    retry_base: *config.submissions.retry_base_ms,
                },
                lease: *config.jobs.lease_seconds,
                poll_interval: *config.jobs.poll_interval_ms,
                workers: *config.jobs.workers,
                workers_per_account: *config.jobs.max_workers_per_account,
                memory: memory.clone(),
            },
        );
        let webhooks = &config.webhooks;
        let sender = Sender::new(webhooks.allow_private, *webhooks.timeout_ms);
        let sender = sender.map_err(AppError::Sender)?;
        let dispatcher = Dispatcher::new(&runner, sender.clone(), api::renderer(links.clone()));
        let auditor = Auditor::new(
            store.clone(),
            Arc::clone(&clock),
            metrics.clone(),
            *config.jobs.lease_seconds,
        );
        let metrics = MetricsEndpoint::new(metrics, config.metrics.token.as_ref());
        let (console_clock, reload_clock) = (Arc::clone(&clock), Arc::clone(&clock));
        let service = Service::new(
            store,
            clock,
            &config.catalogue(),
            providers,
            runner.clone(),
            sender,
            service_settings(config),
        );
        let bucket = storage.origin().cloned();
        let settings = ApiSettings {
            max_body_bytes: *config.server.max_body_bytes,
            max_sdk_body_bytes: *config.server.max_sdk_body_bytes,
            body_timeout: *config.server.body_timeout_seconds,
            max_requests: *config.server.max_requests,
            request_timeout: *config.server.request_timeout_seconds,
            trusted_proxies: config.server.trusted_proxies.clone(),
            cors_origins: config.server.cors_origins.clone(),
            storage,
            links: links.clone(),
            metrics,
            memory,
        };
        let api::Routers {
            api,
            observer,
            metrics,
        } = api::routers(service.clone(), settings)?;
        Ok(Self {
            reload: Reload::new(config, service.clone(), adapters, http, reload_clock),
            service,
            runner,
            dispatcher,
            auditor,
            links,
            router: console::router(api, observer, console_clock, public_url, bucket.as_ref()),
            metrics_router: metrics,
        })
    }

    /// Builds the parts for a command that checks stored files.
    pub async fn with_files(config: &Config, database: &Database) -> Result<Self, AppError> {
        let (store, clock) = (database.store.clone(), Arc::clone(&database.clock));
        Self::build(config, store, clock, &config.public_url()).await
    }

    /// Builds the parts for a command, which serves nothing and stores no files.
    pub async fn for_command(config: &Config, database: &Database) -> Result<Self, AppError> {
        let (store, clock) = (database.store.clone(), Arc::clone(&database.clock));
        let (url, storage) = (config.public_url(), MediaStore::nowhere());
        Self::build_over(config, store, clock, &url, storage, None).await
    }
}

fn service_settings(config: &Config) -> ServiceSettings {
    ServiceSettings {
        max_jobs_per_account: *config.jobs.max_per_account,
        idempotency_period: TimeDelta::hours(*config.idempotency.hours),
        idempotency_wait: *config.idempotency.wait_seconds,
        hold_wait: *config.credits.hold_wait_seconds,
        join_period: TimeDelta::minutes(*config.idempotency.join_minutes),
        job_deadline: TimeDelta::from_std(*config.jobs.deadline_seconds).unwrap_or(TimeDelta::MAX),
        session_period: TimeDelta::days(*config.sessions.days),
        max_waiting_logins: *config.server.max_waiting_logins,
        max_requests: *config.server.max_requests,
        account_share_percent: *config.server.account_share_percent,
        upload_lifetime: TimeDelta::hours(*config.media.upload_hours),
        upload_bytes_per_account: *config.media.upload_bytes_per_account,
        paused: config.jobs.paused,
    }
}
