//! How many callers may wait for generations that others began.
//!
//! Here: a place for each wait, at most some for each account. A wait that finds none is not
//! queued: its caller is answered at once, with what is known by then.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::domain::ids::AccountId;

/// Waits of one account at once.
const PER_ACCOUNT: usize = 500;
/// Waits of all accounts at once.
const IN_ALL: usize = 2_000;

/// The waits of this process. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Waits(Arc<Mutex<HashMap<AccountId, usize>>>);

/// A wait; dropping it ends it.
#[derive(Debug)]
pub(super) struct Wait {
    waits: Waits,
    account: AccountId,
}

impl Waits {
    /// A wait of an account, while there is room.
    pub(super) fn take(&self, account: AccountId) -> Option<Wait> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.values().sum::<usize>() >= IN_ALL {
            return None;
        }
        let own = waiting.entry(account).or_default();
        if *own >= PER_ACCOUNT {
            return None;
        }
        *own += 1;
        Some(Wait {
            waits: self.clone(),
            account,
        })
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut waiting = self.waits.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = waiting.get_mut(&self.account) {
            *own -= 1;
            if *own == 0 {
                waiting.remove(&self.account);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_its_share_and_all_have_theirs() {
        let waits = Waits::default();
        let take = |account: i64| waits.take(AccountId(account));
        let mut held: Vec<_> = (0..PER_ACCOUNT).map(|_| take(1).unwrap()).collect();
        assert!(take(1).is_none());
        held.pop();
        assert!(take(1).is_some());
        let mut others = Vec::new();
        while let Some(wait) = take(2 + i64::try_from(others.len() / PER_ACCOUNT).unwrap()) {
            others.push(wait);
        }
        assert_eq!(held.len() + others.len(), IN_ALL);
        drop((held, others));
        assert!(waits.0.lock().unwrap().is_empty());
    }
}
