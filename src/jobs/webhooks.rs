//! Webhooks: reads the outbox and sends each delivery until its receiver accepts it.
//!
//! [`sender`] sends a delivery, [`permits`] limits attempts and bodies. The statement that finishes
//! a generation writes the outbox, so no movement of credits waits for a webhook.
//!
//! All state is in the database: a delivery is claimed by postponing its due time, so a crash
//! during an attempt only delays the next one. Receivers may get an event more than once, with the
//! same id.

mod permits;
mod sender;

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use secrecy::ExposeSecret as _;
use serde::Serialize;
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use sender::{AddressRefusal, SendError, Sender};

use super::{
    Runner,
    wakeups::{RETRY_PAUSE, Wakeups},
};
use crate::{
    domain::{
        clock::{SharedClock, rfc3339},
        generation::Generation,
        ids::{AccountId, WebhookId},
        limiter::Permit,
        webhook::{DeliveryStatus, retry_delay},
    },
    store::{
        Store, StoreError,
        deliveries::{Attempt, AttemptEnd},
    },
};
use permits::{DeliveryLimits, DeliveryPermit};
use sender::Message;

/// Maximum webhooks per read of the outbox.
const BATCH: i32 = 500;
/// By how much a lease exceeds the timeout of an attempt, for reading the record and writing the
/// outcome.
const LEASE_BEYOND_TIMEOUT: TimeDelta = TimeDelta::seconds(40);

const SECOND: TimeDelta = TimeDelta::seconds(1);

/// Attempts to write the outcome of a delivery, and the pause between them. Together with the time
/// limit of a statement they end within the lease.
const RECORD_TRIES: u32 = 4;
const RECORD_AGAIN: Duration = Duration::from_secs(2);

/// Renders the record of a generation as the API shows it.
pub type RenderRecord = Arc<dyn Fn(&Generation) -> serde_json::Result<Value> + Send + Sync>;

/// Cheap to clone.
#[derive(Clone)]
pub struct Dispatcher(Arc<Inner>);

struct Inner {
    store: Store,
    clock: SharedClock,
    sender: Sender,
    render: RenderRecord,
    limits: DeliveryLimits,
    /// The last webhook of the previous read. Locked while deliveries are claimed.
    turn: tokio::sync::Mutex<WebhookId>,
    wakeups: Arc<Wakeups>,
    tasks: TaskTracker,
    /// Cancelled to claim no more deliveries.
    closing: CancellationToken,
    /// Cancelled to drop running attempts.
    stop: CancellationToken,
}

#[derive(Serialize)]
struct Payload<'a> {
    r#type: &'a str,
    #[serde(serialize_with = "rfc3339")]
    timestamp: DateTime<Utc>,
    data: &'a Value,
}

impl Dispatcher {
    pub fn new(runner: &Runner, sender: Sender, render: RenderRecord) -> Self {
        let runner = &runner.0;
        Self(Arc::new(Inner {
            store: runner.store.clone(),
            clock: Arc::clone(&runner.clock),
            sender,
            render,
            limits: DeliveryLimits::default(),
            turn: tokio::sync::Mutex::new(WebhookId(0)),
            wakeups: Arc::clone(&runner.wakeups),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            stop: CancellationToken::new(),
        }))
    }

    /// Claims and sends deliveries; never returns.
    pub async fn run(&self) {
        // An outage of the outbox is logged once.
        let mut is_logged = false;
        loop {
            let step = self.step().await;
            if let Err(error) = &step
                && !is_logged
            {
                let error = error as &dyn std::error::Error;
                tracing::warn!(error, "webhook deliveries cannot be taken");
            }
            is_logged = step.is_err();
            match step {
                Ok(0) => self.0.wakeups.deliveries.rung(&self.0.clock).await,
                Ok(_) => {}
                Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
    }

    pub fn running(&self) -> usize {
        self.0.tasks.len()
    }

    /// Reads all webhooks once, or until one has a due delivery. Claims due deliveries for which
    /// there are permits and starts their attempts. Returns their number.
    pub async fn step(&self) -> Result<usize, StoreError> {
        let mut turn = self.0.turn.lock().await;
        let mut wrapped = turn.0 == 0;
        while !self.0.limits.is_full() && !self.0.closing.is_cancelled() {
            let now = self.0.clock.now();
            let queues = self.0.store.queues(*turn, now, BATCH).await?;
            let is_last = usize::try_from(BATCH).is_ok_and(|most| queues.len() < most);
            let mut allotment = self.0.limits.allot(&queues);
            let seen_all = allotment.looked_up_to == queues.last().map(|q| q.webhook);
            *turn = match allotment.looked_up_to {
                Some(webhook) if !(is_last && seen_all) => webhook,
                _ => WebhookId(0),
            };
            if !allotment.permits.is_empty() {
                let timeout = TimeDelta::from_std(self.0.sender.timeout()).unwrap_or_default();
                let lease_until = now + timeout + LEASE_BEYOND_TIMEOUT;
                let wanted = allotment.counts();
                let store = &self.0.store;
                let taken = store.take_deliveries(&wanted, now, lease_until).await?;
                let count = taken.len();
                for attempt in taken {
                    if let Some(permit) = allotment.permit(attempt.webhook) {
                        self.begin(attempt, permit);
                    }
                }
                if count > 0 {
                    return Ok(count);
                }
            }
            if is_last {
                if wrapped {
                    break;
                }
                wrapped = true;
            }
        }
        Ok(0)
    }

    fn begin(&self, attempt: Attempt, permit: DeliveryPermit) {
        let this = self.clone();
        self.0.tasks.spawn(async move {
            let stop = this.0.stop.clone();
            let attempting = async {
                match this.0.limits.unread_body(attempt.account).await {
                    Some(memory) => permit.timed_out(this.attempt(attempt, memory).await),
                    // The delivery is due again when its lease has passed.
                    None => tracing::warn!(delivery = %attempt.id, "webhook delivery postponed: no memory for its body"),
                }
            };
            tokio::select! {
                () = attempting => {}
                // The next server repeats the attempt.
                () = stop.cancelled() => {}
            }
            drop(permit);
            this.0.wakeups.deliveries.ring();
        });
    }

    /// Makes an attempt and stores its outcome. Returns whether it timed out.
    async fn attempt(&self, attempt: Attempt, memory: Permit<AccountId>) -> bool {
        let trying = self.try_attempt(&attempt, memory).await;
        trying.unwrap_or_else(|error| {
            // The delivery is due again when its lease has passed.
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, delivery = %attempt.id, "a webhook delivery will be repeated");
            false
        })
    }

    async fn try_attempt(
        &self,
        attempt: &Attempt,
        memory: Permit<AccountId>,
    ) -> Result<bool, StoreError> {
        let sent = self.send(attempt, memory).await?;
        let end = self.end(attempt, sent);
        log(attempt, &end);
        self.record(attempt, &end).await?;
        if let Some(next) = end.next_attempt_at {
            // Failures are logged once a second.
            let next = next.trunc_subsecs(0) + SECOND;
            self.0.wakeups.deliveries.ring_at(next);
        }
        Ok(sent == Err(SendError::Timeout))
    }

    /// Writes the outcome of an attempt, with retries within the lease: a short failure of the
    /// database should not repeat the delivery.
    async fn record(&self, attempt: &Attempt, end: &AttemptEnd) -> Result<(), StoreError> {
        let mut tries = 1;
        loop {
            match self
                .0
                .store
                .record_attempt(attempt.id, attempt.attempts, end)
                .await
            {
                Ok(_) => return Ok(()),
                Err(error) if tries == RECORD_TRIES => return Err(error),
                Err(_) => tries += 1,
            }
            tokio::time::sleep(RECORD_AGAIN).await;
        }
    }

    /// Sends a delivery. The outer error is the database's, the inner one the attempt's.
    async fn send(
        &self,
        attempt: &Attempt,
        memory: Permit<AccountId>,
    ) -> Result<Result<u16, SendError>, StoreError> {
        let body = match self.body(attempt).await {
            Ok(body) => body,
            // A retry would not help.
            Err(StoreError::Corrupt(what)) => {
                tracing::error!(delivery = %attempt.id, what, "the record of a webhook event cannot be read");
                return Ok(Err(SendError::Unreadable));
            }
            Err(error) => return Err(error),
        };
        let _memory = self.0.limits.body(memory, body.len());
        let message = Message {
            id: &format!("msg_{}", attempt.generation),
            timestamp: self.0.clock.now().timestamp(),
            body,
        };
        let secret = attempt.secret.expose_secret();
        Ok(self.0.sender.send(&attempt.url, message, secret).await)
    }

    async fn body(&self, attempt: &Attempt) -> Result<Vec<u8>, StoreError> {
        let id = attempt.generation;
        let corrupt = |what: String| StoreError::Corrupt(format!("generation {id}: {what}"));
        let store = &self.0.store;
        let generation = store
            .generation_including_deleted(attempt.account, id)
            .await?;
        let generation = generation.ok_or_else(|| corrupt("it is not there".to_owned()))?;
        let record = (self.0.render)(&generation).map_err(|e| corrupt(e.to_string()))?;
        let payload = Payload {
            r#type: &attempt.event,
            timestamp: attempt.created_at,
            data: &record,
        };
        serde_json::to_vec(&payload).map_err(|e| corrupt(e.to_string()))
    }

    fn end(&self, attempt: &Attempt, sent: Result<u16, SendError>) -> AttemptEnd {
        let now = self.0.clock.now();
        let status = sent.ok();
        let error = match sent {
            Ok(200..=299) => {
                return AttemptEnd {
                    status: DeliveryStatus::Delivered,
                    next_attempt_at: None,
                    response_status: status,
                    error: None,
                    delivered_at: Some(now),
                };
            }
            Ok(code @ 300..=399) => format!("the answer was {code}; redirects are not followed"),
            Ok(code) => format!("the answer was {code}"),
            Err(error) => error.to_string(),
        };
        let next_attempt_at = retry_delay(attempt.in_series).map(|delay| now + delay);
        AttemptEnd {
            status: match next_attempt_at {
                Some(_) => DeliveryStatus::Pending,
                None => DeliveryStatus::Failed,
            },
            next_attempt_at,
            response_status: status,
            error: Some(error),
            delivered_at: None,
        }
    }

    /// Stops claiming, gives running attempts up to `patience` to end, and drops the rest, which
    /// the next server repeats.
    pub async fn stop(&self, patience: Duration) {
        self.0.closing.cancel();
        // A running step ends first.
        let closing = async {
            let _turn = self.0.turn.lock().await;
            self.0.tasks.close();
            self.0.tasks.wait().await;
        };
        if tokio::time::timeout(patience, closing).await.is_err() {
            let running = self.running();
            tracing::info!(running, "webhook deliveries interrupted, to be repeated");
        }
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

/// Logs the end of an attempt, without the URL, which may contain a secret.
fn log(attempt: &Attempt, end: &AttemptEnd) {
    let (delivery, webhook, number) = (attempt.id, attempt.webhook, attempt.attempts);
    let error = end.error.as_deref().unwrap_or_default();
    match end.status {
        DeliveryStatus::Delivered => {
            tracing::debug!(%delivery, %webhook, number, "webhook delivered");
        }
        DeliveryStatus::Pending => {
            tracing::debug!(%delivery, %webhook, number, error, "webhook delivery failed, to be retried");
        }
        DeliveryStatus::Failed => {
            tracing::info!(%delivery, %webhook, number, error, "webhook delivery abandoned");
        }
    }
}
