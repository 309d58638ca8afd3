//! Work in progress: each generation in a task of its own, and the sweep that ends what a
//! dead process left behind.
//!
//! Here: running, settling, draining. Not here: whether a request is allowed, what it costs,
//! how a provider speaks. A task never holds a connection or a transaction while it waits for
//! a provider.

pub mod audit;
mod cancel;
mod files;
mod image;
mod observed;
mod peers;
mod retention;
mod running;
mod speech;
mod step;
mod submit;
mod sweep;
mod task;
mod text;
mod video;
pub mod webhooks;
mod worker;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use chrono::TimeDelta;
use tokio::sync::{Notify, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

pub use audit::Auditor;
pub use cancel::Cancel;
pub use image::ImageJob;
pub use observed::observed;
pub use running::{Handle, RunningGuard};
pub use submit::SubmitSettings;
pub use task::Started;
pub use text::TextJob;

use crate::{
    domain::{
        clock::SharedClock,
        credits::Credits,
        generation::{Failure, FailureCode, Generation, Modality},
        ids::{AccountId, GenerationId, InstanceId},
        limiter::Limiter,
    },
    media::{Downloader, MediaStore},
    observe::{Metrics, Settled},
    providers::Registry,
    store::{
        Store, StoreError,
        generations::{HoldOutcome, NewGeneration, Outcome, Settlement},
    },
};
use peers::Peers;
use running::Running;

/// The longest wait between two tries to settle while the database is away.
const SETTLE_BACKOFF_MAX: Duration = Duration::from_secs(2);
/// Refusals, other than the database being away, after which a settlement is given up.
const SETTLE_REFUSALS: u32 = 10;
/// Tries to settle that are left once the process must end.
const SETTLE_TRIES_AT_END: u32 = 3;
/// Files that are read or converted at once.
const CONVERSIONS: usize = 3;
/// How long interrupted work may take to settle at shutdown, beyond the grace period.
const INTERRUPTED_SETTLE: Duration = Duration::from_secs(2);

/// What runs generations on this process. Cheap to clone.
#[derive(Clone)]
pub struct Runner(Arc<Inner>);

/// How work is run.
#[derive(Debug, Clone, Copy)]
pub struct RunnerSettings {
    /// How submissions are repeated.
    pub submit: SubmitSettings,
    /// How long a silent process keeps its work.
    pub lease: Duration,
    /// Between two looks at a provider's task.
    pub poll_interval: Duration,
    /// Jobs that this process works on at once.
    pub workers: usize,
    /// How many of these one account may have.
    pub workers_per_account: usize,
}

/// How many workers each account has.
type WorkerQuota = Limiter<AccountId>;

/// Where files come from and go to.
#[derive(Clone)]
pub struct Media {
    pub store: MediaStore,
    pub downloader: Downloader,
}

struct Inner {
    store: Store,
    clock: SharedClock,
    providers: Registry,
    media: Media,
    metrics: Metrics,
    instance: InstanceId,
    submit: SubmitSettings,
    lease: Duration,
    poll_interval: Duration,
    /// One for each job that this process works on.
    workers: Arc<Semaphore>,
    worker_count: usize,
    /// Which accounts the workers work for.
    quota: WorkerQuota,
    busy: AtomicUsize,
    /// For reading and converting files: each may take hundreds of MiB for a moment.
    conversions: Arc<Semaphore>,
    /// Held while rows are claimed and registered, and while the sweep compares both.
    claims: tokio::sync::Mutex<()>,
    /// A job may be due.
    wake: Notify,
    tasks: TaskTracker,
    running: Running,
    /// When the other processes were last heard.
    peers: Mutex<Peers>,
    /// How far the machine's clock was said to be ahead.
    logged_skew: Mutex<TimeDelta>,
    /// Set: a stop is near.
    leaving: AtomicBool,
    /// Cancelled: no new work, and no more waiting for what others run.
    stopping: CancellationToken,
    /// Cancelled: the grace period is over.
    interrupt: CancellationToken,
}

impl Runner {
    /// A runner with an identity of its own.
    pub fn new(
        store: Store,
        clock: SharedClock,
        providers: Registry,
        media: Media,
        metrics: Metrics,
        settings: RunnerSettings,
    ) -> Self {
        Self(Arc::new(Inner {
            store,
            clock,
            providers,
            media,
            metrics,
            instance: InstanceId(Uuid::now_v7()),
            submit: settings.submit,
            lease: settings.lease,
            poll_interval: settings.poll_interval,
            workers: Arc::new(Semaphore::new(settings.workers)),
            worker_count: settings.workers,
            quota: WorkerQuota::new(settings.workers, settings.workers_per_account),
            busy: AtomicUsize::new(0),
            conversions: Arc::new(Semaphore::new(CONVERSIONS)),
            claims: tokio::sync::Mutex::new(()),
            wake: Notify::new(),
            tasks: TaskTracker::new(),
            running: Running::default(),
            peers: Mutex::default(),
            logged_skew: Mutex::default(),
            leaving: AtomicBool::new(false),
            stopping: CancellationToken::new(),
            interrupt: CancellationToken::new(),
        }))
    }

    /// The identity under which this process works.
    pub fn instance(&self) -> InstanceId {
        self.0.instance
    }

    /// Whether new work is refused.
    pub fn is_draining(&self) -> bool {
        self.0.stopping.is_cancelled()
    }

    /// Cancelled once new work is refused.
    pub fn stopping(&self) -> &CancellationToken {
        &self.0.stopping
    }

    /// Announces a stop; work is taken until [`Self::drain`].
    pub fn leave(&self) {
        self.0.leaving.store(true, Ordering::Release);
    }

    /// Whether a stop was announced or has begun.
    pub fn is_leaving(&self) -> bool {
        self.0.leaving.load(Ordering::Acquire) || self.is_draining()
    }

    /// How many generations run in this process.
    pub fn running(&self) -> usize {
        self.0.running.len()
    }

    /// The handle of a generation that runs in this process.
    pub fn handle(&self, id: GenerationId) -> Option<Handle> {
        self.0.running.handle(id)
    }

    /// Runs a future to its end whatever becomes of the caller; the shutdown waits for it.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.tasks.spawn(work);
    }

    /// Refuses new work and ends waits at once, lets running work finish within `grace` or until
    /// `hurry`, then interrupts and settles what is left. Afterwards nothing runs.
    pub async fn drain(&self, grace: Duration, hurry: &CancellationToken) {
        self.0.stopping.cancel();
        self.0.tasks.close();
        let ended = async {
            // A claim that is under way ends first, so that its jobs are waited for. Within
            // the grace period: the database may hang just now.
            drop(self.0.claims.lock().await);
            self.0.tasks.wait().await;
        };
        tokio::select! {
            () = ended => {}
            () = tokio::time::sleep(grace) => {}
            () = hurry.cancelled() => {}
        }
        self.0.interrupt.cancel();
        if tokio::time::timeout(INTERRUPTED_SETTLE, self.0.tasks.wait())
            .await
            .is_err()
        {
            tracing::error!(
                running = self.running(),
                "work could not be settled before the stop; the next start settles it"
            );
        }
    }

    /// Returns once a stop no longer waits for what runs to be settled.
    pub async fn given_up(&self) {
        self.0.interrupt.cancelled().await;
        tokio::time::sleep(INTERRUPTED_SETTLE).await;
    }

    /// Takes this process off the list, once nothing sweeps any more: what it could not
    /// settle is then anybody's to end.
    pub async fn deregister(&self) {
        if let Err(error) = self.0.store.deregister(self.0.instance).await {
            tracing::warn!(%error, "this instance could not be taken off the list");
        }
    }

    async fn open(&self, new: &NewGeneration) -> Result<HoldOutcome, StoreError> {
        self.0.store.open(new).await
    }

    /// Settles, however long the database is away; a paid answer is not given up while the
    /// process lives. Returns the record as it then is; `None` when the process had to end
    /// first.
    async fn settle(&self, mut opened: Generation, mut finish: Settlement) -> Option<Generation> {
        let (mut tries, mut refusals) = (0_u32, 0_u32);
        let about = MetricLabels::from(&opened);
        loop {
            let error = match self.end(&about, &finish).await {
                Ok(true) => {
                    opened.finished(&finish);
                    return Some(opened);
                }
                // Ended by a cancel, a sweep, or by an earlier try whose answer was lost.
                Ok(false) => match self.0.store.generation(opened.account_id, opened.id).await {
                    Ok(record) => return record,
                    Err(error) => error,
                },
                Err(error) => error,
            };
            tries += 1;
            match error {
                // The answer itself is what the database will not take; it must not keep its
                // hold for ever.
                StoreError::Constraint(..) | StoreError::OutOfRange(_) => {
                    log_refused(&finish, &error);
                    refusals += 1;
                    finish.outcome = Outcome::Failed(Failure::new(
                        FailureCode::ProviderError,
                        "the provider's answer could not be stored",
                    ));
                }
                StoreError::Unavailable(_) => {
                    if tries == 1 {
                        tracing::warn!(generation = %finish.id, %error, "settling later");
                    }
                }
                _ => {
                    log_refused(&finish, &error);
                    refusals += 1;
                }
            }
            if refusals >= SETTLE_REFUSALS {
                // The row stays on hold, without an owner: the sweep and the audit tell of it.
                return None;
            }
            if self.0.interrupt.is_cancelled() && tries >= SETTLE_TRIES_AT_END {
                return None;
            }
            self.0.metrics.settle_retried();
            let wait = Duration::from_millis(50) * 2_u32.saturating_pow(tries.min(8));
            tokio::time::sleep(wait.min(SETTLE_BACKOFF_MAX)).await;
        }
    }

    /// The one way to a settlement, which is counted when it was carried out. One whose answer
    /// was lost is carried out all the same and missing in the metrics; the books have it.
    async fn end(&self, about: &MetricLabels, finish: &Settlement) -> Result<bool, StoreError> {
        let ended = self.0.store.finish(finish).await?;
        if ended {
            self.0.metrics.settled(Settled {
                modality: about.modality,
                provider: &about.provider,
                model: &about.model,
                held: about.held,
                outcome: match &finish.outcome {
                    Outcome::Completed { charged, .. } => Ok(*charged),
                    Outcome::Failed(failure) => Err(failure.code),
                },
            });
        }
        Ok(ended)
    }
}

fn log_refused(finish: &Settlement, error: &StoreError) {
    let error = error as &dyn std::error::Error;
    tracing::error!(generation = %finish.id, error, "a settlement was refused");
}

/// What is counted of a generation when it ends.
struct MetricLabels {
    modality: Modality,
    provider: String,
    model: String,
    held: Credits,
}

impl From<&Generation> for MetricLabels {
    fn from(generation: &Generation) -> Self {
        Self {
            modality: generation.modality,
            provider: generation.provider.clone(),
            model: generation.model.clone(),
            held: generation.estimated,
        }
    }
}

impl Generation {
    /// The record after a settlement that was carried out.
    fn finished(&mut self, finish: &Settlement) {
        use crate::domain::generation::Status;
        match &finish.outcome {
            Outcome::Completed {
                result,
                outputs,
                usage,
                charged,
                finish_reason,
            } => {
                self.status = Status::Completed;
                self.finish_reason = *finish_reason;
                self.result.clone_from(result);
                self.outputs.clone_from(outputs);
                self.usage = Some(usage.clone());
                self.charged = Some(*charged);
            }
            Outcome::Failed(failure) => {
                self.status = Status::Failed;
                self.failure = Some(failure.clone());
                self.charged = Some(Credits::ZERO);
            }
        }
        self.attempts = finish.attempts.unwrap_or(self.attempts);
        if finish.provider_request_id.is_some() {
            self.provider_request_id
                .clone_from(&finish.provider_request_id);
        }
        self.completed_at = Some(finish.now.max(self.created_at));
    }
}
