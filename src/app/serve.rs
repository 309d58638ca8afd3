//! `gensvc serve`: starts and stops all parts in order.

use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use chrono::TimeDelta;
use nix::sys::stat::{Mode, umask};
use tokio::{
    net::{TcpListener, TcpSocket},
    signal::unix::{Signal, SignalKind, signal},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    App, AppError, causes,
    database::{Database, Schema},
    demo,
    listener::{self, Limits},
    media,
    periodic::repeat,
    stop::Stop,
};
use crate::{
    config::Config,
    domain::clock::SharedClock,
    jobs::{Auditor, Runner},
    local_postgres::{LocalPostgres, LocalPostgresError, Role},
    media::MediaStore,
    store::{Durability, Store, StoreError},
};

/// Interval of checks of the private Postgres, which is restarted within seconds.
const SUPERVISE_EVERY: Duration = Duration::from_millis(500);
/// Maximum interval of sweeps.
const SWEEP_AT_MOST: Duration = Duration::from_secs(5);
/// Maximum connections that the system queues until they are accepted.
const BACKLOG: u32 = 4_096;
/// Interval of attempts to bind the metrics port while it is in use.
const BIND_METRICS_EVERY: Duration = Duration::from_secs(10);
/// Maximum time for which a start ends generations of dead servers before it accepts requests.
const SWEEP_AT_START: Duration = Duration::from_secs(10);
/// Interval of the sums of usage.
const COUNT_USAGE_EVERY: Duration = Duration::from_secs(1);
/// Interval of purges of expired rows.
const PURGE_EVERY: Duration = Duration::from_mins(1);
/// Interval of deletions of files.
const REMOVE_EVERY: Duration = Duration::from_secs(10);
/// Interval of deletions of incomplete uploads.
const SWEEP_FILES_EVERY: Duration = Duration::from_hours(1);
/// Maximum generations of one deletion.
const REMOVAL_BATCH: i64 = 500;
/// Maximum rows of each kind of one purge.
const PURGE_BATCH: i64 = 5_000;
/// Maximum time of running webhook deliveries at a stop.
const CLOSE_DELIVERIES: Duration = Duration::from_secs(2);
/// Maximum wait for busy connections to the database at a stop.
const CLOSE_DATABASE: Duration = Duration::from_secs(3);

/// Maximum time of the file store's check at the start.
const STORAGE_CHECK: Duration = Duration::from_secs(15);

/// Time after the grace period at which interrupted work must be settled.
const WORK_ENDS: Duration = Duration::from_millis(2_250);
const ANSWERS_END: Duration = Duration::from_secs(3);
/// Time after the grace period at which the database connections must be closed.
const DATABASE_ENDS: Duration = Duration::from_millis(3_500);
/// Time after the grace period at which the private Postgres must be stopped.
const POSTGRES_ENDS: Duration = Duration::from_secs(4);

/// Serves until SIGTERM or SIGINT.
pub async fn serve(config: &Config) -> Result<(), AppError> {
    config.check_servable()?;
    listener::allow_files(*config.server.max_connections);
    // First, so that a second server on the same port does not use the database.
    let address = config.server.bind;
    let listener = match listen(address) {
        Ok(listener) => listener,
        Err(source) => return Err(bind_failure(config, source).await),
    };
    let metrics = metrics_port(config).await?;
    let stop = Stop::on_signals(&config.server).await?;
    // From here on, SIGHUP no longer terminates the process.
    let hangups = signal(SignalKind::hangup())?;
    stop.enter("the start");
    let mut database = Database::open(config, Role::Server, Schema::Migrate).await?;
    // Errors that prevent the start are printed before warnings.
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    // From here on, new files are readable by this user only.
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
    let local = database.local.take().map(Arc::new);
    let (store, clock) = (&database.store, &database.clock);
    let listeners = Listeners {
        api: listener,
        metrics,
        hangups,
    };
    let result = run(config, listeners, &stop, store, clock, local.as_ref()).await;
    let close = database.store.close(CLOSE_DATABASE);
    stop.step("connections to the database", DATABASE_ENDS, close)
        .await;
    if let Some(local) = local.and_then(Arc::into_inner) {
        tracing::info!("stopping the private Postgres");
        let closed = stop.step("the private Postgres", POSTGRES_ENDS, local.close());
        if let Some(Err(error)) = closed.await {
            tracing::error!(%error, "the private Postgres was not stopped");
        }
    }
    tracing::info!("stopped");
    stop.enter("traces or blocking work");
    result
}

/// Returns the error of a failed bind. It says if a server of the same data directory has the port,
/// since another port would not help then.
async fn bind_failure(config: &Config, source: io::Error) -> AppError {
    let address = config.server.bind;
    if source.kind() == io::ErrorKind::AddrInUse && config.database.url.is_none() {
        let second = LocalPostgres::refuse_second_server(&config.data.dir).await;
        if let Err(running @ LocalPostgresError::ServerRunning { .. }) = second {
            return running.into();
        }
    }
    AppError::Bind { address, source }
}

struct Listeners {
    api: TcpListener,
    metrics: Option<MetricsPort>,
    hangups: Signal,
}

/// The port of metrics without a token.
enum MetricsPort {
    Bound(TcpListener),
    Taken(SocketAddr),
}

/// Listens with a backlog that is large enough for a burst of connections. If the backlog is full,
/// the kernel drops handshakes and resets connections that clients consider established.
/// `net.core.somaxconn` limits it.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Binds the metrics port. If another server of this machine uses it, the start continues.
async fn metrics_port(config: &Config) -> Result<Option<MetricsPort>, AppError> {
    if config.metrics.token.is_some() {
        return Ok(None);
    }
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *config.metrics.port));
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(Some(MetricsPort::Bound(listener))),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            tracing::warn!(
                "the metrics are not served while {address} is taken; set metrics.port to a free \
                 port, or metrics.token"
            );
            Ok(Some(MetricsPort::Taken(address)))
        }
        Err(source) => Err(AppError::MetricsBind { address, source }),
    }
}

/// Waits until a port is free, and listens on it.
async fn freed(address: SocketAddr) -> TcpListener {
    loop {
        tokio::time::sleep(BIND_METRICS_EVERY).await;
        if let Ok(listener) = TcpListener::bind(address).await {
            tracing::info!("the metrics are served at http://{address}/metrics");
            return listener;
        }
    }
}

async fn run(
    config: &Config,
    listeners: Listeners,
    stop: &Stop,
    store: &Store,
    clock: &SharedClock,
    local: Option<&Arc<LocalPostgres>>,
) -> Result<(), AppError> {
    warn_of_risks(store.durability().await?);
    let url = config.public_url_at(listeners.api.local_addr()?);
    let storage = media::open(config).await?;
    let clock = Arc::clone(clock);
    let app = App::build_over(config, store.clone(), clock, &url, storage.clone(), None).await?;
    // End the generations of a killed server before the first request.
    let paused = config.jobs.paused;
    if !paused && local.is_some_and(|local| local.is_sole_server()) {
        app.runner.assume_sole_instance().await?;
    }
    let beat = (*config.jobs.lease_seconds / 3).min(SWEEP_AT_MOST);
    let mut background = JoinSet::new();
    background.spawn(heartbeats(app.runner.clone(), beat));
    if !paused {
        sweep_at_start(&app.runner).await?;
    }
    background.spawn(check(storage));
    background.spawn(count_usage(app.runner.clone()));
    let listening = app.runner.clone();
    background.spawn(async move { listening.listen().await });
    reload_when_asked(&app, listeners.hangups, &mut background).await?;
    if paused {
        tracing::warn!("paused: no work is taken, and what is unfinished is left as it is");
    } else {
        take_work(config, &app, beat, &mut background);
    }
    if !config.metrics.audit_seconds.is_zero() {
        background.spawn(audits(app.auditor.clone(), *config.metrics.audit_seconds));
    }
    let is_empty = store.is_empty().await?;
    if let Some(local) = local {
        background.spawn(supervision(Arc::clone(local), store.clone()));
        local.announce(&url)?;
        if is_empty && !config.jobs.paused {
            demo::create(&app, config, &url).await?;
        } else {
            demo::remind(&app, &config.data.dir, &url).await?;
        }
    } else if is_empty {
        tracing::info!(
            "the database has no account: create one with `gensvc account create --email EMAIL \
             --credits NUMBER`, which asks for its password"
        );
    }
    log_providers(config);
    let (close, limits) = (CancellationToken::new(), listener_limits(config));
    let mut metrics = None;
    if let Some(port) = listeners.metrics {
        if let MetricsPort::Bound(listener) = &port {
            metrics = Some(format!("http://{}/metrics", listener.local_addr()?));
        }
        let (router, limits, close) = (app.metrics_router.clone(), limits.clone(), close.clone());
        background.spawn(async move {
            let listener = match port {
                MetricsPort::Bound(listener) => listener,
                MetricsPort::Taken(address) => freed(address).await,
            };
            listener::serve(listener, router, limits, close).await;
        });
    }
    let (version, docs) = (env!("CARGO_PKG_VERSION"), format!("{url}/docs"));
    tracing::info!(version, docs, metrics, "listening on {url}");
    let server = listener::serve(listeners.api, app.router.clone(), limits, close.clone());
    let mut server = tokio::spawn(server);

    stop.announced.cancelled().await;
    app.runner.leave();
    let drain = *config.server.drain_seconds;
    if !drain.is_zero() {
        tracing::info!(
            ?drain,
            "/health answers 503; work is still taken; Ctrl-C again begins the stop"
        );
    }
    stop.begun.cancelled().await;
    match app.runner.running() {
        0 => tracing::info!("stopping"),
        running => tracing::info!(
            running,
            grace = ?*config.server.shutdown_seconds,
            "stopping: no new work; running work may finish; Ctrl-C again ends it now"
        ),
    }
    let work = async {
        tokio::join!(
            app.runner
                .drain(*config.server.shutdown_seconds, &stop.grace_over),
            app.dispatcher.stop(CLOSE_DELIVERIES),
        )
    };
    stop.step("running work", WORK_ENDS, work).await;
    close.cancel();
    // Running deliveries also get the grace period.
    stop.step("an answer", ANSWERS_END, &mut server).await;
    server.abort();
    let rest = async {
        background.shutdown().await;
        app.runner.deregister().await;
    };
    stop.step("background work", DATABASE_ENDS, rest).await;
    Ok(())
}

/// Ends and releases generations of dead servers. Bounded, since other servers may leave new work as
/// fast as it is ended, and locks may delay each. A sweep may be dropped at any point: each of its
/// statements is complete in itself, and the next sweep finds the rest.
async fn sweep_at_start(runner: &Runner) -> Result<(), StoreError> {
    let sweeping = async {
        while runner.sweep_step().await? > 0 {}
        Ok(())
    };
    timeout(SWEEP_AT_START, sweeping).await.unwrap_or(Ok(()))
}

/// Starts the tasks that run, end or delete generations.
fn take_work(config: &Config, app: &App, beat: Duration, background: &mut JoinSet<()>) {
    let (runner, dispatcher) = (|| app.runner.clone(), app.dispatcher.clone());
    let step = |runner: Runner| async move { runner.sweep_step().await.map(|_| false) };
    background.spawn(repeat("the sweep", beat, runner(), step));
    let working = runner();
    background.spawn(async move { working.work().await });
    background.spawn(async move { dispatcher.run().await });
    // Expired rows.
    let log_age = TimeDelta::days((*config.webhooks.log_days).into());
    let step = move |runner: Runner| async move { runner.purge(log_age, PURGE_BATCH).await };
    background.spawn(repeat("the purge", PURGE_EVERY, runner(), step));
    let step = |runner: Runner| async move { runner.sweep_files().await.map(|()| false) };
    let sweeping = repeat("the sweep of files", SWEEP_FILES_EVERY, runner(), step);
    background.spawn(sweeping);
    // The files of deleted and failed generations.
    let step = |runner: Runner| async move { runner.empty_trash(REMOVAL_BATCH).await };
    background.spawn(repeat("the removal of files", REMOVE_EVERY, runner(), step));
    // Content and files of deleted accounts.
    let step = |runner: Runner| async move { runner.erase_deleted(REMOVAL_BATCH).await };
    let erasing = repeat("the erasure of accounts", REMOVE_EVERY, runner(), step);
    background.spawn(erasing);
    if *config.retention.days > 0 {
        let age = TimeDelta::days((*config.retention.days).into());
        let step = move |runner: Runner| async move { runner.delete_old(age, REMOVAL_BATCH).await };
        let name = "the removal of old generations";
        background.spawn(repeat(name, REMOVE_EVERY, runner(), step));
    }
}

/// Logs each enabled provider with the reason, `openai (key in OPENAI_API_KEY)`, and the default of
/// each type.
fn log_providers(config: &Config) {
    let providers = config.enabled_providers().into_iter();
    let named = providers.map(|p| format!("{} ({})", p.name, p.reason()));
    let named = named.collect::<Vec<_>>().join(", ");
    tracing::info!("providers: {named}");
    tracing::info!("requests that name no provider: {}", config.routes());
}

fn warn_of_risks(durability: Durability) {
    if !durability.fsync {
        tracing::warn!(
            "the database's fsync is off: if its machine crashes, accounts, credits and \
             generations can be lost or damaged"
        );
    } else if !durability.synchronous_commit {
        tracing::warn!(
            "the database's synchronous_commit is off: if it crashes, grants, holds and charges \
             of its last second can be lost although they were answered"
        );
    }
}

/// Warns if files cannot be stored. The start does not wait for this, because text needs no files.
async fn check(storage: MediaStore) {
    let cause = match timeout(STORAGE_CHECK, storage.probe()).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => format!("{error}{}", causes(&error)),
        Err(_elapsed) => format!("no answer in {} s", STORAGE_CHECK.as_secs()),
    };
    tracing::warn!(
        "files cannot be stored, so images, speech and video fail until they can: {cause}"
    );
}

fn listener_limits(config: &Config) -> Limits {
    let server = &config.server;
    Limits {
        max_connections: *server.max_connections,
        trusted_proxies: server.trusted_proxies.clone(),
        header_timeout: *server.header_timeout_seconds,
        keep_alive: *server.keep_alive_seconds,
        write_timeout: *server.write_timeout_seconds,
        max_header_bytes: *server.max_header_bytes,
    }
}

/// Reloads the catalogue on SIGHUP and on `gensvc catalogue reload`.
async fn reload_when_asked(
    app: &App,
    mut hangups: Signal,
    background: &mut JoinSet<()>,
) -> Result<(), AppError> {
    let (runner, reload) = (app.runner.clone(), app.reload.clone());
    let mut requests = app.service.store().requested_catalogue_reloads().await?;
    // A request may have been made after the configuration was read.
    if let Err(error) = reload.run() {
        tracing::error!("the catalogue was not reloaded: {error}");
    }
    let on_hangup = reload.clone();
    background.spawn(async move {
        while hangups.recv().await.is_some() {
            on_hangup.clone().run_logged().await;
        }
    });
    background.spawn(async move {
        loop {
            requests = runner.reload_request(requests).await;
            reload.clone().run_logged().await;
        }
    });
    Ok(())
}

/// Sends heartbeats independently of sweeps, which may take longer than the lease, so that other
/// servers would consider this one dead.
async fn heartbeats(runner: Runner, every: Duration) {
    repeat("the heartbeat", every, runner, |runner| async move {
        // The sweep logs the same error.
        if let Err(error) = runner.heartbeat().await {
            tracing::debug!(%error, "the heartbeat failed");
        }
        Ok::<_, Infallible>(false)
    })
    .await;
}

async fn count_usage(runner: Runner) {
    let step = |runner: Runner| async move { runner.follow_settlements().await.map(|()| false) };
    repeat("the count of usage", COUNT_USAGE_EVERY, runner, step).await;
}

async fn audits(auditor: Auditor, every: Duration) {
    let step = |auditor: Auditor| async move { auditor.step().await.map(|()| false) };
    repeat("the self-audit", every, auditor, step).await;
}

/// Restarts the private Postgres if it dies.
async fn supervision(local: Arc<LocalPostgres>, store: Store) {
    let parts = (local, store);
    repeat(
        "reviving the private Postgres",
        SUPERVISE_EVERY,
        parts,
        |(local, store)| async move {
            match local.supervise_step().await {
                Ok(false) => {}
                Ok(true) => {
                    store.distrust_connections();
                    tracing::warn!("the private Postgres had died and was started again");
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "the private Postgres could not be revived");
                }
            }
            Ok::<_, LocalPostgresError>(false)
        },
    )
    .await;
}
