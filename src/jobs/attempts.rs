//! First attempts of SDKs whose hold is neither placed nor refused yet. A retry in the same process
//! waits for them before it decides what it joins.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use tokio::sync::watch;

use super::Runner;
use crate::domain::{ids::AccountId, lock::lock};

/// The account, and the fingerprint of the request.
type Key = (AccountId, [u8; 32]);

#[derive(Debug, Clone, Default)]
pub(super) struct Attempts(Arc<Mutex<HashMap<Key, Vec<watch::Receiver<()>>>>>);

/// A first attempt, undecided until it is dropped.
#[derive(Debug)]
pub struct UndecidedAttempt {
    key: Key,
    attempts: Attempts,
    decided: watch::Sender<()>,
}

impl Drop for UndecidedAttempt {
    fn drop(&mut self) {
        let own = self.decided.subscribe();
        let mut attempts = lock(&self.attempts.0);
        if let Some(undecided) = attempts.get_mut(&self.key) {
            undecided.retain(|other| !other.same_channel(&own));
            if undecided.is_empty() {
                attempts.remove(&self.key);
            }
        }
    }
}

impl Runner {
    pub fn begin_attempt(&self, account: AccountId, fingerprint: [u8; 32]) -> UndecidedAttempt {
        let (decided, waiting) = watch::channel(());
        let (key, attempts) = ((account, fingerprint), self.0.attempts.clone());
        lock(&attempts.0).entry(key).or_default().push(waiting);
        UndecidedAttempt {
            key,
            attempts,
            decided,
        }
    }

    /// Returns a future that ends when the first attempts that are undecided now are decided;
    /// `None` if there are none.
    pub fn undecided_attempts(
        &self,
        account: AccountId,
        fingerprint: [u8; 32],
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let attempts = lock(&self.0.attempts.0);
        let undecided = attempts.get(&(account, fingerprint))?.clone();
        Some(async move {
            for mut attempt in undecided {
                // Nothing is ever sent: the channel closes.
                while attempt.changed().await.is_ok() {}
            }
        })
    }
}
