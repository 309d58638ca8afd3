//! What is to be looked at again: due jobs, due deliveries, and generations that others run. Notices
//! of all servers arrive here; the sweep makes up for those that are lost.

mod alarm;
mod waiters;

use std::time::Duration;

pub use waiters::Waiter;

use super::{Handle, Runner};
use crate::{
    domain::ids::{AccountId, GenerationId},
    store::{StoreError, notices::Notice},
};
use alarm::Alarm;
use waiters::Waiters;

/// Between two attempts to listen, and to take what is due, while the database is unavailable.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct Wakeups {
    /// Of the workers.
    pub(super) jobs: Alarm,
    /// Of the dispatcher of webhooks.
    pub(super) deliveries: Alarm,
    /// Those who wait for generations to end.
    pub(super) ended: Waiters<GenerationId>,
    /// Those who wait for credits that an account's generations hold. Only what ends here wakes
    /// them.
    pub(super) freed: Waiters<AccountId>,
}

impl Runner {
    /// Hears the notices of all servers; does not end.
    pub async fn listen(&self) {
        let mut notices = self.0.store.notices();
        let mut deaf = false;
        loop {
            match notices.next().await {
                Ok(notice) => {
                    deaf = false;
                    self.heed(notice).await;
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

    async fn heed(&self, notice: Notice) {
        let wakeups = &self.0.wakeups;
        match notice {
            Notice::Jobs => wakeups.jobs.ring(),
            Notice::Ended(id) => wakeups.ended.wake(id),
            Notice::Cancel(id) => self.cancel_stream(id),
            Notice::Deliveries => wakeups.deliveries.ring(),
            Notice::Missed => {
                wakeups.jobs.ring();
                wakeups.deliveries.ring();
                wakeups.ended.wake_all();
                if let Err(error) = self.cancel_requested().await {
                    // The sweep meets the same trouble and logs it.
                    tracing::debug!(%error, "looking for cancels failed");
                }
            }
        }
    }

    /// Hears when a generation ends, whichever server ends it. To be had before its row is read, so
    /// that no end falls between the two.
    pub fn waiter(&self, id: GenerationId) -> Waiter<GenerationId> {
        self.0.wakeups.ended.waiter(id)
    }

    /// Hears when a generation of an account is settled in this process. To be had before a hold is
    /// tried, so that no settlement falls between the two.
    pub fn freed(&self, account: AccountId) -> Waiter<AccountId> {
        self.0.wakeups.freed.waiter(account)
    }

    /// Ends texts that are streamed here and were cancelled on another server.
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
