//! Wake-ups for due jobs, due deliveries and the ends of generations, from the notices of all
//! servers. The sweep compensates for lost notices.

mod alarm;
mod waiters;

use std::time::Duration;

use tokio::sync::Notify;

pub use waiters::Waiter;

use super::{Handle, Runner};
use crate::{
    domain::ids::{AccountId, GenerationId},
    store::{StoreError, notices::Notice},
};
use alarm::Alarm;
use waiters::Waiters;

/// Pause between attempts to listen or to claim due work while the database is unavailable.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct Wakeups {
    /// Wakes the workers.
    pub(super) jobs: Alarm,
    /// Wakes the dispatcher of webhooks.
    pub(super) deliveries: Alarm,
    /// Wakes the reload of the catalogue.
    pub(super) catalogue: Notify,
    /// Woken when a generation ends.
    pub(super) ended: Waiters<GenerationId>,
    /// Woken when a generation of the account is settled in this process.
    pub(super) freed: Waiters<AccountId>,
}

impl Runner {
    /// Receives the notices of all servers; never returns.
    pub async fn listen(&self) {
        let mut notices = self.0.store.notices();
        let mut deaf = false;
        loop {
            match notices.next().await {
                Ok(notice) => {
                    deaf = false;
                    self.receive(notice).await;
                }
                Err(error) => {
                    if !deaf {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "notices of other servers cannot be heard");
                    }
                    deaf = true;
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    async fn receive(&self, notice: Notice) {
        let wakeups = &self.0.wakeups;
        match notice {
            Notice::Jobs => wakeups.jobs.ring(),
            Notice::Ended(id) => wakeups.ended.wake(id),
            Notice::Cancel(id) => self.cancel_stream(id),
            Notice::Deliveries => wakeups.deliveries.ring(),
            Notice::Catalogue => wakeups.catalogue.notify_one(),
            Notice::Missed => {
                wakeups.jobs.ring();
                wakeups.deliveries.ring();
                wakeups.catalogue.notify_one();
                wakeups.ended.wake_all();
                if let Err(error) = self.cancel_requested().await {
                    // The sweep fails too, and logs it.
                    tracing::debug!(%error, "looking for cancels failed");
                }
            }
        }
    }

    /// Waits for a request to reload the catalogue, and returns the new count of requests. `known`: the
    /// last count. A reconnect alone is no request: the file may be half-written.
    pub async fn reload_request(&self, known: i64) -> i64 {
        loop {
            self.0.wakeups.catalogue.notified().await;
            loop {
                match self.0.store.requested_catalogue_reloads().await {
                    Ok(requested) if requested == known => break,
                    Ok(requested) => return requested,
                    Err(error) => {
                        tracing::warn!(%error, "requests to reload the catalogue were not read");
                        tokio::time::sleep(RETRY_PAUSE).await;
                    }
                }
            }
        }
    }

    /// Returns a waiter for the end of a generation on any server. Create it before you read the row, so
    /// that an end in between is not missed.
    pub fn waiter(&self, id: GenerationId) -> Waiter<GenerationId> {
        self.0.wakeups.ended.waiter(id)
    }

    /// Returns a waiter for settlements of an account in this process. Create it before you try a hold,
    /// so that a settlement in between is not missed.
    pub fn freed(&self, account: AccountId) -> Waiter<AccountId> {
        self.0.wakeups.freed.waiter(account)
    }

    /// Cancels texts that this process streams and whose cancel another server has requested.
    pub(super) async fn cancel_requested(&self) -> Result<(), StoreError> {
        if !self.0.running.any_streams() {
            return Ok(());
        }
        for id in self.0.store.requested_cancels(self.0.instance).await? {
            self.cancel_stream(id);
        }
        Ok(())
    }

    fn cancel_stream(&self, id: GenerationId) {
        if let Some(handle) = self.handle(id).filter(Handle::streams) {
            handle.cancel.cancel();
        }
    }
}
