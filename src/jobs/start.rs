//! Starts a generation: places the hold and takes the first step, in a task that outlives the
//! caller's connection.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{Ended, Handle, Runner, UndecidedAttempt};
use crate::{
    domain::{
        conversation::Part,
        generation::{Failure, FailureCode, Generation, Modality},
        ids::{AccountId, GenerationId},
        inputs::{INPUTS, StoredInput},
        limiter::Permit,
        pricing::{TextPrices, UnitCeiling},
        receipt::Blank,
    },
    memory,
    providers::{DeltaSink, ImageCall, ProviderPermit, SpeechCall, TextCall, VideoCall},
    request::{Ratio, SpeechFormat},
    store::{
        StoreError,
        generations::{HoldOutcome, NewGeneration, Outcome},
        jobs::Job,
        keys::Presumed,
    },
};

/// Maximum time to look for the row of an unconfirmed hold: statements may run that long.
const UNCONFIRMED: Duration = Duration::from_secs(30);
/// Interval between two of these lookups.
const UNCONFIRMED_POLL: Duration = Duration::from_millis(500);

/// Records with more bytes of answer are looked up instead of kept for a stream's client.
const LARGE_RECORD: usize = 64 << 10;

/// Permits that an immediate call acquires before its hold.
pub struct Permits {
    /// Held until the generation is settled.
    pub call: ProviderPermit,
    /// As `call`; the permit for synchronous work. `None` for a job.
    pub request: Option<Permit<AccountId>>,
    /// Memory for the inputs, held until the provider has answered; `None` without inputs.
    pub inputs: Option<Permit<AccountId>>,
}

/// A generation that is ready to run. Shared until its hold is decided, so that a refused one can
/// be tried again.
pub struct Work {
    /// The row to create, with its hold.
    pub new: NewGeneration,
    /// The call that this process runs at once; `None`: any worker takes it, from its row.
    pub call: Option<Call>,
    /// Dropped once a provider has accepted the generation.
    pub fallbacks: Mutex<Fallbacks>,
}

/// The calls of the other candidates, as in the row, and the memory reserved for them.
#[derive(Default)]
pub struct Fallbacks {
    pub calls: VecDeque<Call>,
    pub copies: Option<memory::Reservation>,
}

pub enum Started {
    /// The generation runs; its record, and a handle to wait with.
    Running(Generation, Handle),
    Queued(Generation),
    /// Nothing was created, and the work is no longer shared.
    Refused(HoldOutcome),
    /// It is unknown whether the generation was created.
    Unconfirmed(Generation, StoreError),
}

fn is_large(record: &Generation) -> bool {
    let answered = record.answer.iter().flat_map(|answer| &answer.parts);
    let parts = answered.flatten().map(Part::bytes).sum::<usize>();
    record.result.as_ref().map_or(0, String::len) + parts > LARGE_RECORD
}

impl Runner {
    /// Places the hold and runs the work, or leaves it to a worker. Returns as soon as the outcome
    /// of the hold is known. If the returned future is dropped before the hold's statement is sent,
    /// the hold is not placed. `permits`: for a call that runs at once. `attempt`: the SDK's first
    /// attempt that it belongs to.
    pub async fn start(
        &self,
        work: &Arc<Work>,
        permits: Option<Permits>,
        attempt: Option<Arc<UndecidedAttempt>>,
    ) -> Result<Started, StoreError> {
        let work = Arc::clone(work);
        let new = &work.new;
        let record = new.record();
        let (verdict, held) = oneshot::channel();
        let presumed = new.presumed.clone().filter(|presumed| presumed.is_open());
        if let Some(presumed) = &presumed {
            presumed.set_counting(true);
        }
        let uncounted = presumed.clone();
        let caller = Arc::new(());
        let dropped = Arc::downgrade(&caller);
        let runner = self.clone();
        let handle = if let Some(permits) = permits {
            // Registered before the row exists: see `Running`.
            let (mut guard, done) = self.0.running.reserve(new.id, new.streamed);
            let handle = guard.handle.clone();
            let span = tracing::info_span!("generation", id = %new.id);
            let memory = memory::current();
            let running = async move {
                let new = &work.new;
                match runner.0.store.hold(new, &dropped).await {
                    // The caller may be gone; the work continues.
                    Ok(HoldOutcome::Held) => {
                        guard.held();
                        let _ = verdict.send(Ok(HoldOutcome::Held));
                    }
                    Err(error) if error.is_unconfirmed() && new.idempotency.is_some() => {
                        runner.report(verdict, Err(error), uncounted).await;
                        // A retry or a replay may find the row, so its work must run.
                        if !runner.is_held(new).await {
                            return;
                        }
                        guard.held();
                    }
                    outcome => {
                        // The row of an unconfirmed hold may exist. Dropping the guard leaves it
                        // without an owner, so the sweep ends it.
                        drop((guard, permits, attempt, work));
                        runner.report(verdict, outcome, uncounted).await;
                        return;
                    }
                }
                drop(attempt);
                guard.input_memory = permits.inputs;
                let ended = runner.run(&work, permits.call, &guard).await;
                drop(permits.request);
                let record = match ended {
                    // Look the record up, with the attempts at earlier candidates. It may have
                    // failed because of a move of which it is unknown whether it was stored.
                    Some(Ended::Now(settlement, _))
                        if guard.has_moved()
                            || new.route.is_some()
                                && matches!(settlement.outcome, Outcome::Failed(_)) =>
                    {
                        runner.moved_record(new, &settlement.outcome).await
                    }
                    ended => ended.map(|ended| ended.record(new)),
                };
                // A large record is looked up, so that a slow client cannot keep it in memory.
                let record = record.filter(|record| !new.streamed || !is_large(record));
                done.send_replace(record.map(Arc::new));
                drop(guard);
            };
            self.spawn_in(span, memory::continued(memory, running));
            Some(handle)
        } else {
            self.spawn(async move {
                let new = &work.new;
                let outcome = runner.0.store.hold(new, &dropped).await;
                runner.0.wakeups.jobs.ring();
                match outcome {
                    Err(error) if error.is_unconfirmed() => {
                        runner.report(verdict, Err(error), uncounted).await;
                        if new.idempotency.is_some() {
                            // A retry or a replay may find the job. A retry in this process waits
                            // for the database's answer.
                            runner.is_held(new).await;
                        } else {
                            runner.end_unconfirmed((new.account_id, new.id)).await;
                        }
                    }
                    // The caller may be gone; the job exists.
                    outcome => {
                        drop(work);
                        runner.report(verdict, outcome, uncounted).await;
                    }
                }
                drop(attempt);
            });
            None
        };
        let outcome = held.await;
        drop(caller);
        if let Some(presumed) = presumed {
            presumed.set_counting(false);
        }
        Ok(match (outcome?, handle) {
            (Ok(HoldOutcome::Held), Some(handle)) => Started::Running(record, handle),
            (Ok(HoldOutcome::Held), None) => Started::Queued(record),
            (Ok(why), _) => Started::Refused(why),
            (Err(error), _) if error.is_unconfirmed() => Started::Unconfirmed(record, error),
            (Err(error), _) => return Err(error),
        })
    }

    /// Reads the record of a generation that has fallen back. All parts of it are stored.
    async fn moved_record(&self, new: &NewGeneration, outcome: &Outcome) -> Option<Generation> {
        let reading = self.0.store.generation(new.account_id, new.id).await;
        let mut record = reading.ok().flatten()?;
        if let (Some(stored), Outcome::Failed(failure)) = (&mut record.failure, outcome) {
            stored.retry_after = failure.retry_after;
        }
        Some(record)
    }

    /// Sends the outcome of a hold. Counts the request if the caller is gone and the hold did not.
    async fn report<T>(
        &self,
        verdict: oneshot::Sender<T>,
        outcome: T,
        presumed: Option<Arc<Presumed>>,
    ) {
        if verdict.send(outcome).is_err()
            && let Some(presumed) = presumed.filter(|presumed| presumed.is_open())
        {
            let now = self.0.clock.now();
            let counting = self.0.store.authenticate_key(presumed.digest, now);
            if let Err(error) = counting.await {
                tracing::debug!(%error, "request of a caller who hung up was not counted");
            }
        }
    }

    /// Waits until the database says whether an unconfirmed hold was placed.
    async fn is_held(&self, new: &NewGeneration) -> bool {
        let until = tokio::time::Instant::now() + UNCONFIRMED;
        while tokio::time::Instant::now() < until && !self.0.interrupt.is_cancelled() {
            if let Ok(found) = self.0.store.generation(new.account_id, new.id).await {
                return found.is_some_and(|found| !found.status.is_finished());
            }
            tokio::time::sleep(UNCONFIRMED_POLL).await;
        }
        false
    }

    /// Ends a job whose hold was reported as failed although its row may exist: a failed request
    /// must not be charged.
    async fn end_unconfirmed(&self, of: (AccountId, GenerationId)) {
        let until = tokio::time::Instant::now() + UNCONFIRMED;
        while tokio::time::Instant::now() < until && !self.0.interrupt.is_cancelled() {
            let message = "the database became unavailable while the request was being accepted";
            let failure = Failure::new(FailureCode::Interrupted, message);
            if let Ok(Some(row)) = self.end_anywhere(of, failure).await {
                self.cancel_task(&row.provider, row.remote_id.as_deref())
                    .await;
                return;
            }
            tokio::time::sleep(UNCONFIRMED_POLL).await;
        }
    }
}

pub enum Call {
    Text(Box<TextWork>),
    Image(ImageWork),
    Video(VideoWork),
    Speech(SpeechCall),
}

pub struct TextWork {
    pub call: TextCall,
    pub prices: Arc<TextPrices>,
    /// Receives the pieces of a stream.
    pub deltas: Option<DeltaSink>,
    /// The receipt to write once the vendor has counted the input.
    pub receipt: Option<Blank>,
    /// Bytes that the input tokens are estimated from if the vendor reports none.
    pub input_bytes: usize,
}

pub struct ImageWork {
    pub call: ImageCall,
    /// Pixels of the stored images; the provider may generate larger ones.
    pub size: (u32, u32),
    pub price: UnitCeiling,
    /// Inputs to load for the submission.
    pub inputs: Vec<StoredInput>,
}

/// A video call, and the inputs to load for its submission.
pub struct VideoWork {
    pub call: VideoCall,
    pub inputs: Vec<StoredInput>,
}

impl Call {
    /// Builds the call that a queued job's row describes; `None` if it describes none.
    pub(super) fn of_job(job: &Job) -> Option<Self> {
        match job.modality {
            Modality::Video => video(job).map(Self::Video),
            Modality::Audio => speech(job).map(Self::Speech),
            Modality::Text | Modality::Image => None,
        }
    }
}

fn video(job: &Job) -> Option<VideoWork> {
    let inputs = match job.parameters.get(INPUTS) {
        Some(inputs) => serde_json::from_value(inputs.clone()).ok()?,
        None => Vec::new(),
    };
    let ratio = Ratio::parse(job.parameters["ratio"].as_str()?)?.reduced();
    let call = VideoCall {
        model: job.model.clone(),
        prompt: job.prompt.clone(),
        duration: u32::try_from(job.parameters["duration"].as_u64()?).ok()?,
        ratio: (ratio.width, ratio.height),
        inputs: Vec::new(),
    };
    Some(VideoWork { call, inputs })
}

fn speech(job: &Job) -> Option<SpeechCall> {
    let parameters = &job.parameters;
    Some(SpeechCall {
        model: job.model.clone(),
        text: job.prompt.clone(),
        voice: parameters["voice"].as_str()?.to_owned(),
        speed: parameters["speed"].as_f64()?,
        instructions: parameters["instructions"].as_str().map(str::to_owned),
        format: SpeechFormat::parse(parameters["format"].as_str()?)?,
    })
}
