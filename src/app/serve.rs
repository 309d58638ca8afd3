//! `gensvc serve`: start in order, serve, stop in order.

use std::{sync::Arc, time::Duration};

use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    App, AppError,
    database::Database,
    demo,
    listener::{self, Limits},
};
use crate::{
    config::Config,
    domain::clock::{Clock as _, SystemClock},
    jobs::{Auditor, Runner, webhooks::Dispatcher},
    local_postgres::{LocalPostgres, Role},
    store::{Store, StoreError},
};

/// Between two looks at the private Postgres: what revives it within seconds.
const SUPERVISE_EVERY: Duration = Duration::from_millis(500);
/// The longest wait between two sweeps.
const SWEEP_AT_MOST: Duration = Duration::from_secs(5);
/// How long a start ends what others left before it takes requests; the rest follows.
const SWEEP_AT_START: Duration = Duration::from_secs(10);
/// Between two purges of what has expired.
const PURGE_EVERY: Duration = Duration::from_mins(1);
/// Between two removals of files.
const REMOVE_EVERY: Duration = Duration::from_secs(10);
/// Between two looks for files that were left on their way in.
const SWEEP_FILES_EVERY: Duration = Duration::from_hours(1);
/// Generations that one removal takes.
const REMOVAL_BATCH: i64 = 500;
/// Rows that one purge removes of each kind.
const PURGE_BATCH: i64 = 5_000;
/// How long answers may take to be written once all work has ended.
const CLOSE_CONNECTIONS: Duration = Duration::from_secs(3);

/// How long deliveries to webhooks that are under way may take at the end.
const CLOSE_DELIVERIES: Duration = Duration::from_secs(2);
/// How long busy connections to the database are waited for at the end.
const CLOSE_DATABASE: Duration = Duration::from_secs(3);

/// Serves until SIGTERM or SIGINT.
pub async fn serve(config: &Config) -> Result<(), AppError> {
    config.check_servable()?;
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    listener::allow_files(*config.server.max_connections);
    // The port first: a second server on it should not touch the database.
    let address = config.server.bind;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|source| AppError::Bind { address, source })?;
    let stop = Stop::on_signals()?;
    let mut database = Database::open(config, Role::Server).await?;
    let local = database.local.take().map(Arc::new);
    let result = run(config, listener, &stop, &database.store, local.as_ref()).await;
    database.store.close(CLOSE_DATABASE).await;
    if let Some(local) = local.and_then(Arc::into_inner) {
        local.close().await?;
    }
    tracing::info!("stopped");
    result
}

async fn run(
    config: &Config,
    listener: TcpListener,
    stop: &Stop,
    store: &Store,
    local: Option<&Arc<LocalPostgres>>,
) -> Result<(), AppError> {
    let url = config.public_url_at(listener.local_addr()?);
    let app = App::build(config, store.clone(), Arc::new(SystemClock), &url).await?;
    // What a killed server left is ended before the first request is taken.
    if local.is_some_and(|local| local.is_sole_server()) {
        app.runner.declare_alone().await?;
    }
    let mut background = JoinSet::new();
    background.spawn(signs_of_life(app.runner.clone(), *config.jobs.lease));
    // Bounded: on a slow database others may leave new work as fast as it is ended.
    let begun = Instant::now();
    while app.runner.sweep_step().await? > 0 && begun.elapsed() < SWEEP_AT_START {}

    background.spawn(sweeps(app.runner.clone(), *config.jobs.lease));
    background.spawn(work(app.runner.clone()));
    background.spawn(deliveries(app.dispatcher.clone()));
    background.spawn(purges(store.clone(), *config.webhooks.log_days));
    background.spawn(file_sweeps(app.runner.clone()));
    background.spawn(removals(
        app.runner.clone(),
        store.clone(),
        *config.retention.days,
    ));
    if !config.metrics.audit_every.is_zero() {
        background.spawn(audits(app.auditor.clone(), *config.metrics.audit_every));
    }
    if let Some(local) = local {
        background.spawn(supervision(Arc::clone(local), store.clone()));
        if store.is_empty().await? {
            demo::create(&app, config.demo.credits, &url).await?;
        }
    }
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "listening on {url}");

    let close = CancellationToken::new();
    let limits = listener_limits(config);
    let server = listener::serve(listener, app.router.clone(), limits, close.clone());
    let mut server = tokio::spawn(server);

    stop.requested.cancelled().await;
    tracing::info!(
        running = app.runner.running(),
        "stopping: no new work; running work may finish"
    );
    tokio::join!(
        app.runner.drain(*config.server.shutdown, &stop.hurry),
        app.dispatcher.stop(CLOSE_DELIVERIES),
    );
    close.cancel();
    if tokio::time::timeout(CLOSE_CONNECTIONS, &mut server)
        .await
        .is_err()
    {
        server.abort();
    }
    background.shutdown().await;
    app.runner.retire().await;
    Ok(())
}

fn listener_limits(config: &Config) -> Limits {
    let server = &config.server;
    Limits {
        max_connections: *server.max_connections,
        header_timeout: *server.header_timeout,
        keep_alive: *server.keep_alive,
        write_timeout: *server.write_timeout,
        max_header_bytes: *server.max_header_bytes,
    }
}

/// The first signal asks to stop; the second, to stop waiting for running work.
struct Stop {
    requested: CancellationToken,
    hurry: CancellationToken,
}

impl Stop {
    fn on_signals() -> Result<Self, AppError> {
        let stop = Self {
            requested: CancellationToken::new(),
            hurry: CancellationToken::new(),
        };
        let (requested, hurry) = (stop.requested.clone(), stop.hurry.clone());
        let mut term = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = term.recv() => {}
                    _ = interrupt.recv() => {}
                }
                if requested.is_cancelled() {
                    hurry.cancel();
                }
                requested.cancel();
            }
        });
        Ok(stop)
    }
}

/// On their own: a sweep with much to end may take longer than the lease, and others would
/// take this process for dead.
async fn signs_of_life(runner: Runner, lease: Duration) {
    let every = (lease / 3).min(SWEEP_AT_MOST);
    loop {
        tokio::time::sleep(every).await;
        // The sweep meets the same trouble and tells of it.
        if let Err(error) = runner.sign_of_life().await {
            tracing::debug!(%error, "a sign of life was not taken");
        }
    }
}

async fn sweeps(runner: Runner, lease: Duration) {
    let every = (lease / 3).min(SWEEP_AT_MOST);
    loop {
        tokio::time::sleep(every).await;
        if let Err(error) = runner.sweep_step().await {
            tracing::warn!(error = &error as &dyn std::error::Error, "a sweep failed");
        }
    }
}

/// Takes jobs, one round after the other.
async fn work(runner: Runner) {
    loop {
        if let Err(error) = runner.work_step().await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "jobs cannot be taken"
            );
        }
        runner.due().await;
    }
}

/// Removes the files of deleted and failed generations, and what is older than its retention
/// (0 days: for ever).
async fn removals(runner: Runner, store: Store, days: u32) {
    loop {
        if days > 0 {
            let now = SystemClock.now();
            let before = now - chrono::TimeDelta::days(days.into());
            let deleted = store
                .delete_old_generations(before, now, REMOVAL_BATCH)
                .await;
            if let Err(error) = deleted {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "old generations could not be deleted");
            }
        }
        match runner.empty_trash(REMOVAL_BATCH).await {
            Ok(true) => continue,
            Ok(false) => {}
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "files could not be removed");
            }
        }
        tokio::time::sleep(REMOVE_EVERY).await;
    }
}

/// Tells webhooks what happened.
async fn deliveries(dispatcher: Dispatcher) {
    dispatcher.run().await;
}

async fn file_sweeps(runner: Runner) {
    loop {
        // The start has swept.
        tokio::time::sleep(SWEEP_FILES_EVERY).await;
        if let Err(error) = runner.sweep_files().await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "files on their way in could not be swept");
        }
    }
}

async fn purges(store: Store, log_days: u32) {
    loop {
        tokio::time::sleep(PURGE_EVERY).await;
        loop {
            match purge(&store, log_days).await {
                Ok(true) => tokio::task::yield_now().await,
                Ok(false) => break,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "a purge failed");
                    break;
                }
            }
        }
    }
}

/// One round; `true`: there may be more.
async fn purge(store: &Store, log_days: u32) -> Result<bool, StoreError> {
    let now = SystemClock.now();
    let before = now - chrono::TimeDelta::days(log_days.into());
    let expired = store.purge_expired(now, PURGE_BATCH).await?;
    let told = store.purge_deliveries(before, now, PURGE_BATCH).await?;
    Ok(expired || told)
}

async fn audits(auditor: Auditor, every: Duration) {
    loop {
        if let Err(error) = auditor.step().await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "a self-audit could not be done");
        }
        tokio::time::sleep(every).await;
    }
}

async fn supervision(local: Arc<LocalPostgres>, store: Store) {
    loop {
        tokio::time::sleep(SUPERVISE_EVERY).await;
        match local.supervise_step().await {
            Ok(true) => {
                store.distrust_connections();
                tracing::warn!("the private Postgres had died and was started again");
            }
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "the private Postgres could not be revived"),
        }
    }
}
