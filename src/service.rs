//! The business rules: permissions, the plan of a request, and explanations of refusals.
//!
//! SQL, headers and status codes are elsewhere.

pub mod accounts;
pub mod auth;
pub mod generate;
pub mod generations;
pub mod login;
pub mod operators;
pub mod reports;
pub mod resources;
pub mod uploads;

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::oneshot;

use crate::{
    catalogue::Catalogue,
    domain::{
        clock::{MAX_SKEW, SharedClock},
        context::ContextOverflow,
        credits::Credits,
        generation::Generation,
        ids::{AccountId, GenerationIds},
        limiter::{Limiter, Permit},
        rate::RateState,
        share::{ShareReached, share},
        validate::{FieldCode, FieldError},
    },
    jobs::{Runner, webhooks::Sender},
    memory::{self, Reservation},
    providers::{ProviderError, Registry},
    resource::{Refusals, Resource},
    store::{
        Store, StoreError,
        credits::{Balance, LedgerEntry, SpendLimit},
        uploads::UploadBytes,
    },
};
use auth::KeyCache;
use generate::HoldQueues;
use reports::ModelStatsCache;

/// Maximum concurrent usage reports and searches of the history, maximum waiting ones, and the
/// maximum wait.
const REPORTS: (usize, usize, Duration) = (4, 64, Duration::from_secs(5));
/// As [`REPORTS`], for reads of stored answers, which hold a database connection for seconds.
const ANSWERS: (usize, usize, Duration) = (2, 64, Duration::from_secs(5));
/// As [`REPORTS`], for renderings of templates.
const RENDERINGS: (usize, usize, Duration) = (2, 64, Duration::from_secs(2));

/// Maximum callers that wait for another generation to end, or for credits on hold.
const WAITS: usize = 2_000;
const WAITS_PER_ACCOUNT: usize = 500;

/// A permit to wait.
pub type WaitPlace = Permit<AccountId>;

#[derive(Debug, Clone)]
pub struct ServiceSettings {
    /// Maximum unfinished generations of an account.
    pub max_jobs_per_account: i32,
    /// How long an idempotency key stays bound.
    pub idempotency_period: TimeDelta,
    /// How long a replay waits for the first request.
    pub idempotency_wait: Duration,
    /// How long a request of an SDK waits for credits on hold.
    pub hold_wait: Duration,
    /// How long a retry of an SDK can join an earlier attempt. Zero disables joining.
    pub join_period: TimeDelta,
    /// Maximum age of an unfinished job.
    pub job_deadline: TimeDelta,
    pub session_period: TimeDelta,
    /// Maximum logins that wait for their password to be checked.
    pub max_waiting_logins: usize,
    /// Maximum concurrent requests.
    pub max_requests: usize,
    /// Maximum percentage of concurrency limits for one account's synchronous generations.
    pub account_share_percent: usize,
    /// How long an upload is kept after its last use.
    pub upload_lifetime: TimeDelta,
    /// Maximum total bytes of an account's uploads.
    pub upload_bytes_per_account: i64,
    /// Whether the server is paused: it neither accepts nor ends work.
    pub paused: bool,
}

/// The service and the catalogue it is bound to. Clones share both. Cheap to clone.
#[derive(Clone)]
pub struct Service(Arc<Inner>, Arc<Catalogue>);

struct Inner {
    store: Store,
    clock: SharedClock,
    catalogue: ArcSwap<Catalogue>,
    providers: Registry,
    runner: Runner,
    sender: Sender,
    settings: ServiceSettings,
    passwords: login::Hasher,
    key_cache: KeyCache,
    model_stats: ModelStatsCache,
    ids: GenerationIds,
    waits: Limiter<AccountId>,
    /// Synchronous generations. The total is bounded by `max_requests`.
    synchronous: Limiter<AccountId>,
    hold_queues: HoldQueues,
    refusals: Refusals,
    /// Few, so that holds find database connections.
    reports: Resource,
    answers: Resource,
    /// Few, because they are CPU-bound.
    renderings: Resource,
}

impl Service {
    pub fn new(
        store: Store,
        clock: SharedClock,
        catalogue: &Catalogue,
        providers: Registry,
        runner: Runner,
        sender: Sender,
        settings: ServiceSettings,
    ) -> Self {
        let per_account = share(settings.account_share_percent, settings.max_requests);
        let catalogue = Arc::new(catalogue.at(clock.now()));
        let shared = |name, (most, waiting, wait)| Resource::new(name, most, waiting, wait);
        let inner = Inner {
            store,
            clock,
            catalogue: ArcSwap::new(Arc::clone(&catalogue)),
            providers,
            runner,
            sender,
            passwords: login::Hasher::new(settings.max_waiting_logins),
            settings,
            key_cache: KeyCache::default(),
            model_stats: ModelStatsCache::default(),
            ids: GenerationIds::default(),
            waits: Limiter::new(WAITS, WAITS_PER_ACCOUNT),
            synchronous: Limiter::new(usize::MAX, per_account),
            hold_queues: HoldQueues::default(),
            refusals: Refusals::new("provider calls"),
            reports: shared("reports and searches", REPORTS),
            answers: shared("stored answers", ANSWERS),
            renderings: shared("template renderings", RENDERINGS),
        };
        Self(Arc::new(inner), catalogue)
    }

    /// Returns the service bound to the current catalogue. A request keeps one such value and never
    /// mixes two catalogues.
    #[must_use]
    pub fn current(&self) -> Self {
        self.at(self.0.clock.now())
    }

    /// Returns the service bound to the catalogue that applies at a time.
    fn at(&self, time: DateTime<Utc>) -> Self {
        let mut catalogue = self.0.catalogue.load_full();
        if !catalogue.is_valid_at(time) {
            let changed = Arc::new(catalogue.at(time));
            // Keeps the result of a concurrent reload.
            let current = &self.0.catalogue;
            current.compare_and_swap(&catalogue, Arc::clone(&changed));
            catalogue = changed;
        }
        Self(Arc::clone(&self.0), catalogue)
    }

    pub fn store(&self) -> &Store {
        &self.0.store
    }

    pub fn catalogue(&self) -> &Catalogue {
        &self.1
    }

    /// Returns when a retirement is announced and when it takes effect; `None` before the
    /// announcement.
    pub fn retirement(
        &self,
        provider: &str,
        model: &str,
    ) -> Option<(DateTime<Utc>, DateTime<Utc>)> {
        let model = self.catalogue().find(provider, model)?;
        let announced = model.deprecated_from()?;
        let retirement = (announced, model.sunset()?);
        (announced <= self.0.clock.now()).then_some(retirement)
    }

    /// Replaces the catalogue for requests that begin after this call.
    pub fn replace_catalogue(&self, catalogue: &Catalogue) {
        let catalogue = catalogue.at(self.0.clock.now());
        self.0.catalogue.store(Arc::new(catalogue));
    }

    /// Whether the machine's clock is too far off.
    pub fn has_skewed_clock(&self) -> bool {
        self.0.clock.machine_ahead().abs() > MAX_SKEW
    }

    /// Number of requests that wait for another generation to end or to free its hold.
    pub fn waiting(&self) -> usize {
        self.0.waits.total() - self.0.waits.free()
    }

    /// Whether new work is refused.
    pub fn is_draining(&self) -> bool {
        self.0.runner.is_draining()
    }

    /// Completes the work even if the caller disconnects. `name`: of the work, for the log.
    async fn complete<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        let (done, result) = oneshot::channel();
        self.0.runner.spawn(async move {
            // The caller may have disconnected.
            let _ = done.send(work.await);
        });
        let gone = |_| ServiceError::Internal(format!("{name} ended without a result"));
        result.await.map_err(gone)
    }

    /// Refuses requests that start, end or remove work while the server is paused.
    fn require_running(&self) -> Result<()> {
        if self.0.settings.paused {
            Err(ServiceError::Paused)
        } else {
            Ok(())
        }
    }

    /// Whether the server is about to stop or stopping, so that load balancers should not use it.
    pub fn is_leaving(&self) -> bool {
        self.0.runner.is_leaving()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenRefusal {
    Missing,
    /// Malformed, unknown, or of an ended session.
    Invalid,
    Revoked,
    Expired,
}

/// The limit that a hold exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShortOf {
    /// The request's own `max_cost`.
    MaxCost,
    SpendLimit(SpendLimit),
    Balance,
    /// The balance would suffice without the holds of running work.
    Holds,
    /// The key's spend limit would suffice without the holds of running work.
    HoldsOfKey(SpendLimit),
}

/// A refusal for lack of credits, explained.
#[derive(Debug, Clone, PartialEq)]
pub struct CreditsShort {
    pub of: ShortOf,
    pub required: Credits,
    pub balance: Balance,
    pub shortfall: Credits,
    /// The parameter that decides the cost, and its largest affordable value.
    pub affordable: Option<(&'static str, u64)>,
}

/// Joins the failing fields and their errors into one sentence.
pub fn join_field_errors(errors: &[FieldError]) -> String {
    let sentences = errors.iter().map(|e| format!("{} {}", e.param, e.message));
    sentences.collect::<Vec<_>>().join("; ")
}

pub type Result<T, E = ServiceError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The provider did not count the input, so no hold can be placed.
    #[error("the provider did not count the input")]
    NotCounted(Box<ProviderError>),
    #[error("the token was refused")]
    Token(TokenRefusal),
    #[error("over the limit of {} requests per minute", .0.limit)]
    RateLimited(RateState),
    #[error("the API key lacks the ability {0}")]
    MissingAbility(&'static str),
    #[error("this needs a session token from POST /v1/auth/login, not an API key")]
    SessionRequired,
    /// A key with a spend limit could exceed it with a new key.
    #[error(
        "an API key with a spend_limit cannot create API keys; use a session token, or a key without \
         a spend_limit"
    )]
    CappedKey,
    #[error("this needs an admin token; the operator creates one with `gensvc admin token create`")]
    AdminRequired,
    #[error("the account is suspended")]
    Suspended,
    #[error("email or password is wrong")]
    InvalidCredentials,
    /// Seconds to wait.
    #[error("too many failed logins with this email from this address")]
    TooManyLogins(u64),
    #[error("{}", join_field_errors(.0))]
    Invalid(Vec<FieldError>),
    #[error("{0}")]
    ContextLength(ContextOverflow),
    #[error("not found")]
    NotFound,
    #[error("the generation was deleted")]
    Deleted,
    /// The database was reset to a time before the generation was created.
    #[error("the generation is no longer in the database")]
    Lost,
    #[error("this Idempotency-Key was used with a different request")]
    IdempotencyKeyReused,
    #[error("the reference was used for another movement: {} {} (ledger entry {})", .0.kind, .0.amount, .0.id)]
    ReferenceReused(Box<LedgerEntry>),
    #[error(
        "the first request with this Idempotency-Key, or the first attempt at this request, is \
         still running"
    )]
    IdempotencyInProgress,
    /// The account's limit.
    #[error("the account has {0} unfinished jobs, its limit")]
    TooManyJobs(i32),
    #[error("the account is at its share of synchronous work")]
    TooManyRequests(ShareReached),
    #[error(
        "the account's uploads use {} of {quota} bytes; {} of these are inputs sent within \
         requests and are removed when no work can need them",
        .used.all, .used.transient
    )]
    InputsStored { used: UploadBytes, quota: i64 },
    #[error("not enough credits")]
    CreditsShort(Box<CreditsShort>),
    #[error("the generation is finished")]
    AlreadyFinished,
    #[error("the generation is not finished; cancel it first")]
    NotFinished,
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error(
        "this server is paused (jobs.paused): it accepts no work, ends no generation and moves no credits"
    )]
    Paused,
    #[error("{0} is at its concurrency limit (max_concurrent); no credits were held")]
    ProviderBusy(String),
    /// The circuits of all candidates are open. The time until the first one is tried again.
    #[error(
        "every candidate has failed several times within seconds and is skipped for a while; no \
         credits were held"
    )]
    NoCandidate(Duration),
    /// The catalogue changed at this time, between the planning of the request and its creation,
    /// and there was no memory to keep a copy of the request.
    #[error("prices changed while the request was being accepted; no credits were held")]
    CatalogueChanged(DateTime<Utc>),
    #[error("the server is overloaded")]
    Overloaded,
    /// A file could not be stored; the cause is logged.
    #[error("the file storage is unavailable")]
    StorageUnavailable,
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The database may or may not have created this generation.
    #[error("the database did not confirm the hold of {}", .0.id)]
    Unconfirmed(Box<Generation>, #[source] StoreError),
    /// The generation continues, but this server is stopping.
    #[error(
        "the server is shutting down; the generation continues, and its record can be read later"
    )]
    StoppedWaiting(Box<Generation>),
    /// The generation continues, but too many requests are waiting.
    #[error(
        "too many requests of the account wait; the generation continues, and its record can be \
         read later"
    )]
    TooManyWait(Box<Generation>),
    /// The cached key that the request was planned with may have changed.
    #[error("the key is not as it was presumed")]
    NotAsPresumed,
    #[error("{0}")]
    Internal(String),
}

/// Reserves memory for the request of the current task.
fn reserve(bytes: usize) -> Result<Option<Reservation>> {
    match memory::reservation() {
        Some(reserved) if !reserved.try_add(bytes) => Err(ServiceError::Overloaded),
        reserved => Ok(reserved),
    }
}

impl ServiceError {
    pub fn field(param: impl Into<String>, code: FieldCode, message: impl Into<String>) -> Self {
        Self::invalid(FieldError::new(param, code, message.into()))
    }

    pub fn not_allowed(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::field(param, FieldCode::NotAllowed, message)
    }

    pub fn invalid(error: FieldError) -> Self {
        Self::Invalid(vec![error])
    }

    /// Fails if there are failing fields.
    pub fn any(errors: Vec<FieldError>) -> Result<(), Self> {
        if errors.is_empty() {
            return Ok(());
        }
        Err(Self::Invalid(errors))
    }
}
