//! How many workers of this process each account has, so that none has them all.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::domain::ids::AccountId;

type Counts = Arc<Mutex<HashMap<AccountId, usize>>>;

/// The counts. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Shares {
    counts: Counts,
    most: usize,
}

/// One worker of an account; given back when dropped, also by a panic.
#[derive(Debug)]
pub(super) struct Share {
    account: AccountId,
    counts: Counts,
}

impl Shares {
    /// At most this many for each account.
    pub(super) fn new(most: usize) -> Self {
        let counts = Counts::default();
        Self { counts, most }
    }

    /// How many workers an account may have.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    pub(super) fn take(&self, account: AccountId) -> Share {
        *lock(&self.counts).entry(account).or_default() += 1;
        let counts = Arc::clone(&self.counts);
        Share { account, counts }
    }

    /// Who has how many.
    pub(super) fn taken(&self) -> Vec<(AccountId, usize)> {
        let counts = lock(&self.counts);
        counts.iter().map(|(&account, &n)| (account, n)).collect()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut counts = lock(&self.counts);
        if let Some(count) = counts.get_mut(&self.account) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.account);
            }
        }
    }
}

fn lock(counts: &Counts) -> MutexGuard<'_, HashMap<AccountId, usize>> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_of_an_account_without_workers() {
        let shares = Shares::new(2);
        let (one, other) = (shares.take(AccountId(1)), shares.take(AccountId(1)));
        assert_eq!(shares.taken(), [(AccountId(1), 2)]);
        drop(one);
        assert_eq!(shares.taken(), [(AccountId(1), 1)]);
        drop(other);
        assert_eq!(shares.taken(), []);
    }
}
