//! From the hold to the first step, in a task that outlives the caller's connection.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{Call, Handle, RunError, Runner};
use crate::{
    domain::{
        conversation::Part,
        generation::{Failure, FailureCode, Generation},
        ids::{AccountId, GenerationId},
        limiter::Permit,
    },
    memory,
    providers::ProviderPermit,
    store::{
        generations::{HoldOutcome, NewGeneration, Outcome, Settlement},
        jobs::Job,
        keys::Presumed,
    },
};

/// How long the row of an unconfirmed hold may still appear: statements may run as long.
const UNCONFIRMED: Duration = Duration::from_secs(30);
/// Between two attempts to end what an unconfirmed hold may have created.
const UNCONFIRMED_POLL: Duration = Duration::from_millis(500);

/// Bytes of an answer in a record that is looked up instead of kept for a stream's client.
const LARGE_RECORD: usize = 64 << 10;

/// Held until the generation is settled: its call, and its account's permit for synchronous work
/// unless it is a job.
pub type Permits = (ProviderPermit, Option<Permit<AccountId>>);

/// A generation that is ready to run.
pub struct Work {
    /// The row to create, with its hold.
    pub new: NewGeneration,
    /// What this process runs at once; `None`: the row says it all, for any worker to take.
    pub run: Option<(Call, Permits)>,
}

pub enum Started {
    /// Its record, and a handle to wait with.
    Running(Generation, Handle),
    Queued(Generation),
    Refused(Box<Refused>),
}

/// Nothing was created.
pub struct Refused {
    pub why: HoldOutcome,
    /// What was to be created, and to be run, without its permits.
    pub new: NewGeneration,
    pub call: Option<Call>,
}

fn is_large(record: &Generation) -> bool {
    let answered = record.answer.iter().flat_map(|answer| &answer.parts);
    let parts = answered.flatten().map(Part::bytes).sum::<usize>();
    record.result.as_ref().map_or(0, String::len) + parts > LARGE_RECORD
}

/// `None`: it was not refused.
fn refused(why: HoldOutcome, new: NewGeneration, call: Option<Call>) -> Option<Box<Refused>> {
    match why {
        HoldOutcome::Held => None,
        why => Some(Box::new(Refused { why, new, call })),
    }
}

impl Runner {
    /// Places the hold and runs the work, or leaves it to a worker. Returns as soon as the outcome
    /// of the hold is known.
    pub async fn start(&self, work: Work) -> Result<Started, RunError> {
        let Work { new, run } = work;
        let record = new.record();
        let (verdict, held) = oneshot::channel();
        let presumed = new.presumed.clone().filter(|presumed| presumed.is_open());
        if let Some(presumed) = &presumed {
            presumed.set_counting(true);
        }
        let uncounted = presumed.clone();
        let runner = self.clone();
        let handle = if let Some((call, permits)) = run {
            // Registered before the row exists: see `Running`.
            let (guard, done) = self.0.running.reserve(new.id, new.streamed);
            let handle = guard.handle();
            let span = tracing::info_span!("generation", id = %new.id);
            let request = memory::current();
            let work = async move {
                let outcome = runner.0.store.hold(&new).await;
                if !matches!(outcome, Ok(HoldOutcome::Held)) {
                    // After an error the row may be there all the same. It is off the register
                    // now, so the sweep will find it without an owner and end it.
                    drop((guard, permits));
                    let refused = outcome.map(|why| refused(why, new, Some(call)));
                    runner.report(verdict, refused, uncounted).await;
                    return;
                }
                guard.held();
                // The caller may be gone; the work continues.
                let _ = verdict.send(Ok(None));
                let job = Job::from(&new);
                let ended = runner.advance(&job, Some(&call), &guard).await;
                drop(permits);
                let record = ended.map(|ended| ended.record(&new));
                // A client that does not read must not keep a large record: it is looked up.
                let record = record.filter(|record| !new.streamed || !is_large(record));
                done.send_replace(record.map(Arc::new));
                drop(guard);
            };
            self.spawn_in(span, memory::continued(request, work));
            Some(handle)
        } else {
            self.spawn(async move {
                let outcome = runner.0.store.hold(&new).await;
                runner.0.wakeups.jobs.ring();
                let of = (new.account_id, new.id);
                let unknown = outcome.is_err();
                let refused = outcome.map(|why| refused(why, new, None));
                runner.report(verdict, refused, uncounted).await;
                if unknown {
                    runner.end_unconfirmed(of).await;
                }
            });
            None
        };
        let outcome = held.await;
        if let Some(presumed) = presumed {
            presumed.set_counting(false);
        }
        Ok(match (outcome??, handle) {
            (None, Some(handle)) => Started::Running(record, handle),
            (None, None) => Started::Queued(record),
            (Some(refused), _) => Started::Refused(refused),
        })
    }

    /// Sends the outcome of a hold. If the caller is gone and the hold did not count its request, the
    /// request is counted here.
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

    /// Ends a job whose hold was reported as failed although its row may exist: nobody pays for a
    /// request that failed.
    async fn end_unconfirmed(&self, of: (AccountId, GenerationId)) {
        let until = tokio::time::Instant::now() + UNCONFIRMED;
        while tokio::time::Instant::now() < until && !self.0.interrupt.is_cancelled() {
            let message = "the database became unavailable while the request was being accepted";
            let failure = Failure::new(FailureCode::Interrupted, message);
            let settlement = Settlement {
                instance: None,
                ..self.settlement(of, Outcome::Failed(failure), None, None)
            };
            if let Ok(Some(row)) = self.end(&settlement).await {
                self.0.running.abandon(of.1);
                self.cancel_task(&row.provider, row.remote_id.as_deref())
                    .await;
                return;
            }
            tokio::time::sleep(UNCONFIRMED_POLL).await;
        }
    }
}
