//! Runs generations: one task per generation, and a sweep that recovers the work of dead processes.
//!
//! Covers execution, settlement and graceful shutdown. Permissions, prices and wire formats are
//! elsewhere. A task holds no connection or transaction while it waits for a provider.

mod audit;
mod cancel;
mod files;
mod health;
mod image;
mod moves;
mod observed;
mod running;
mod speech;
mod start;
mod step;
mod submit;
mod sweep;
mod text;
mod uploads;
mod video;
mod wakeups;
pub mod webhooks;
mod worker;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use chrono::TimeDelta;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{Instrument as _, Span};
use uuid::Uuid;

pub use audit::Auditor;
pub use files::{FilesAudit, VerifyFilesError};
pub use health::Circuit;
pub use observed::{Adapters, observed};
pub use running::{Handle, RunningGuard, UndecidedAttempt};
pub use start::{Call, Fallbacks, ImageWork, Permits, Started, TextWork, VideoWork, Work};
pub use submit::SubmitSettings;
pub use uploads::{KeepError, check_picture, upload_key};
pub use wakeups::Waiter;

use crate::{
    domain::{
        clock::SharedClock,
        generation::{Failure, FailureCode, Generation, Status},
        ids::{AccountId, GenerationId, GenerationIds, InstanceId},
        limiter::Limiter,
    },
    media::{Downloader, MediaStore},
    memory::Memory,
    observe::Metrics,
    providers::Registry,
    store::{
        Store, StoreError,
        generations::{NewGeneration, Outcome, SettledRow, Settlement},
    },
};
use health::Health;
use running::{Attempts, Running};
use sweep::Peers;
use wakeups::Wakeups;

/// Maximum backoff between attempts to settle while the database is unavailable.
const SETTLE_BACKOFF_MAX: Duration = Duration::from_secs(2);
/// Maximum attempts at a settlement that the database refuses (rather than being unavailable).
const SETTLE_REFUSALS: u32 = 10;
/// Attempts to settle after the end of the grace period.
const SETTLE_TRIES_AT_END: u32 = 3;
/// Time for interrupted work to settle at shutdown, after the grace period.
const INTERRUPTED_SETTLE: Duration = Duration::from_secs(2);

/// Executes generations in this process. Cheap to clone.
#[derive(Clone)]
pub struct Runner(Arc<Inner>);

#[derive(Debug, Clone)]
pub struct RunnerSettings {
    pub submit: SubmitSettings,
    /// How long a lease lasts without a heartbeat.
    pub lease: Duration,
    /// Interval between two polls of a provider's task.
    pub poll_interval: Duration,
    /// Maximum concurrent jobs of this process.
    pub workers: usize,
    /// Maximum concurrent jobs of one account in this process.
    pub workers_per_account: usize,
    /// The budget that jobs share with requests.
    pub memory: Memory,
}

struct Inner {
    store: Store,
    clock: SharedClock,
    providers: Registry,
    media: MediaStore,
    downloader: Downloader,
    metrics: Metrics,
    instance: InstanceId,
    /// Ids for files that belong to no generation.
    ids: GenerationIds,
    settings: RunnerSettings,
    /// Busy workers by account.
    quota: Limiter<AccountId>,
    /// Held while rows are claimed and registered, and while the sweep reads the register.
    claims: tokio::sync::Mutex<()>,
    wakeups: Arc<Wakeups>,
    tasks: TaskTracker,
    running: Running,
    attempts: Attempts,
    health: Health,
    /// Settlements of this process so far, the number at the last sum of usage, and the number at
    /// the last vacuum by `Runner::follow_settlements`.
    settled: AtomicU64,
    counted: AtomicU64,
    tidied: AtomicU64,
    /// When the heartbeats of the other processes were last seen.
    peers: Mutex<Peers>,
    /// Whether the warning was logged that another process may not see this one's files.
    told_of_peers: AtomicBool,
    /// The last logged clock skew.
    logged_skew: Mutex<TimeDelta>,
    leaving: AtomicBool,
    /// Cancelled when draining begins: no new work starts, and nothing waits for running work.
    stopping: CancellationToken,
    /// Cancelled at the end of the grace period.
    interrupt: CancellationToken,
}

impl Runner {
    pub fn new(
        store: Store,
        clock: SharedClock,
        providers: Registry,
        media: MediaStore,
        downloader: Downloader,
        metrics: Metrics,
        settings: RunnerSettings,
    ) -> Self {
        let quota = Limiter::new(settings.workers, settings.workers_per_account);
        Self(Arc::new(Inner {
            store,
            clock,
            providers,
            media,
            downloader,
            metrics,
            instance: InstanceId(Uuid::now_v7()),
            ids: GenerationIds::default(),
            settings,
            quota,
            claims: tokio::sync::Mutex::new(()),
            wakeups: Arc::default(),
            tasks: TaskTracker::new(),
            running: Running::default(),
            attempts: Attempts::default(),
            health: Health::default(),
            settled: AtomicU64::new(0),
            counted: AtomicU64::new(0),
            tidied: AtomicU64::new(0),
            peers: Mutex::default(),
            told_of_peers: AtomicBool::new(false),
            logged_skew: Mutex::default(),
            leaving: AtomicBool::new(false),
            stopping: CancellationToken::new(),
            interrupt: CancellationToken::new(),
        }))
    }

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

    /// Announces a shutdown; work is accepted until [`Self::drain`].
    pub fn leave(&self) {
        self.0.leaving.store(true, Ordering::Release);
    }

    /// Whether a shutdown was announced or has begun.
    pub fn is_leaving(&self) -> bool {
        self.0.leaving.load(Ordering::Acquire) || self.is_draining()
    }

    pub fn running(&self) -> usize {
        self.0.running.len()
    }

    pub fn handle(&self, id: GenerationId) -> Option<Handle> {
        self.0.running.handle(id)
    }

    /// Runs a future to completion even if the caller disconnects; shutdown waits for it.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_in(Span::current(), work);
    }

    /// As [`Self::spawn`], in a child span of the current one.
    fn spawn_in(&self, span: Span, work: impl Future<Output = ()> + Send + 'static) {
        self.0.tasks.spawn(work.instrument(span));
    }

    /// Refuses new work and ends waits at once, lets running work finish within `grace` or until
    /// `hurry`, then interrupts and settles what remains. Afterwards nothing runs.
    pub async fn drain(&self, grace: Duration, hurry: &CancellationToken) {
        self.0.stopping.cancel();
        self.0.tasks.close();
        let ended = async {
            // Wait for a claim in progress, so that its jobs are waited for. Bounded by the grace
            // period, since the database may hang.
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
                "could not settle all work before shutdown; the next start will settle it"
            );
        }
    }

    /// Returns once shutdown no longer waits for running work to be settled.
    pub async fn given_up(&self) {
        self.0.interrupt.cancelled().await;
        tokio::time::sleep(INTERRUPTED_SETTLE).await;
    }

    /// Removes this process from the list of instances, once its sweep has ended. Another process
    /// may then recover the generations that it could not settle.
    pub async fn deregister(&self) {
        if let Err(error) = self.0.store.deregister(self.0.instance).await {
            tracing::warn!(%error, "could not deregister this instance");
        }
    }

    /// Settles, and retries as long as the database is unavailable: a paid result is kept while the
    /// process lives. Returns `None` if the process had to stop first or the database refused the
    /// settlement.
    async fn settle(&self, mut settlement: Settlement) -> Option<Ended> {
        let (account, id) = (settlement.account_id, settlement.id);
        let (mut tries, mut refusals) = (0_u32, 0_u32);
        loop {
            let error = match self.end(&settlement).await {
                Ok(Some(row)) => return Some(Ended::Now(Box::new(settlement), row)),
                // Ended by a cancel, a sweep, or an earlier attempt whose response was lost.
                Ok(None) => match self.0.store.generation(account, id).await {
                    Ok(record) => return record.map(|record| Ended::Before(Box::new(record))),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            tries += 1;
            if let StoreError::Unavailable(_) = error {
                if tries == 1 {
                    tracing::warn!(generation = %id, %error, "settlement postponed");
                }
            } else {
                let source = &error as &dyn std::error::Error;
                tracing::error!(generation = %id, error = source, "the database refused a settlement");
                refusals += 1;
            }
            // The database rejects the result itself; the hold must be released.
            if let StoreError::Constraint(..) | StoreError::OutOfRange(_) = error {
                let message = "the provider's response could not be stored";
                settlement.outcome =
                    Outcome::Failed(Failure::new(FailureCode::ProviderError, message));
            }
            if refusals >= SETTLE_REFUSALS {
                // The row keeps its hold, without an owner: the sweep and the audit report it.
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

    /// Executes a settlement and counts it in the metrics. All settlements go through here. One
    /// whose response was lost is in the ledger but not in the metrics.
    async fn end(&self, settlement: &Settlement) -> Result<Option<SettledRow>, StoreError> {
        let ended = self.0.store.settle(settlement).await?;
        if let Some(row) = &ended {
            self.0.settled.fetch_add(1, Ordering::Relaxed);
            self.0.wakeups.ended.wake(settlement.id);
            self.0.wakeups.freed.wake(settlement.account_id);
            let outcome = match &settlement.outcome {
                Outcome::Completed(completion) => Ok(completion.charged),
                Outcome::Failed(failure) => Err(failure.code),
            };
            let (metrics, held) = (&self.0.metrics, row.estimated);
            metrics.settled(row.modality, &row.provider, &row.model, held, outcome);
        }
        Ok(ended)
    }

    /// Builds the settlement of a generation that this process runs.
    fn settlement(
        &self,
        (account_id, id): (AccountId, GenerationId),
        outcome: Outcome,
        attempts: Option<i32>,
        provider_request_id: Option<String>,
    ) -> Settlement {
        Settlement {
            id,
            account_id,
            instance: Some(self.0.instance),
            outcome,
            attempts,
            provider_request_id: provider_request_id.map(|id| step::storable(&id)),
            now: self.0.clock.now(),
        }
    }
}

/// A settled generation.
enum Ended {
    /// Settled by this settlement; with the rest of the row.
    Now(Box<Settlement>, SettledRow),
    /// Settled earlier; with its record.
    Before(Box<Generation>),
}

impl Ended {
    fn failed(&self) -> bool {
        match self {
            Self::Now(settlement, _) => matches!(settlement.outcome, Outcome::Failed(_)),
            Self::Before(record) => record.status == Status::Failed,
        }
    }

    fn record(self, new: &NewGeneration) -> Generation {
        match self {
            Self::Now(settlement, row) => new.settled_record(*settlement, row),
            Self::Before(record) => *record,
        }
    }
}
