//! How many attempts may run at once, and whose turn it is.
//!
//! A receiver that does not answer holds each attempt for its whole time, and an account may
//! have many such receivers. So every webhook and every account has a bound of its own, and
//! those that were found hanging have narrow ones, also all together: the others always find
//! room.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    domain::ids::{AccountId, WebhookId},
    store::outbox::Queue,
};

/// Attempts that run at once in this process.
const IN_ALL: usize = 128;
const PER_ACCOUNT: usize = 16;
const PER_WEBHOOK: usize = 4;
/// To one webhook whose last attempt got no answer in time.
const PER_HANGING: usize = 1;
/// To all of those.
const HANGING: usize = 32;

/// The places for attempts of this process.
#[derive(Debug, Clone, Default)]
pub struct Slots(Arc<Mutex<State>>);

#[derive(Debug, Clone, Default)]
struct State {
    webhooks: HashMap<WebhookId, usize>,
    accounts: HashMap<AccountId, usize>,
    in_all: usize,
    /// Webhooks whose last attempt here got no answer in time.
    hanging: HashSet<WebhookId>,
}

/// A place that one attempt takes; free again when it is dropped.
#[derive(Debug)]
pub struct Slot {
    slots: Slots,
    webhook: WebhookId,
    account: AccountId,
}

/// Who gets how many places.
#[derive(Debug, PartialEq, Eq)]
pub struct Allotment {
    /// Webhooks, and how many deliveries of each.
    pub places: Vec<(WebhookId, i64)>,
    /// The last webhook that was looked at; the next look begins after it.
    pub looked_up_to: Option<WebhookId>,
}

impl Slots {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shares the free places out among `queues`, in their order.
    pub fn allot(&self, queues: &[Queue]) -> Allotment {
        let mut state = self.state().clone();
        let mut allotment = Allotment {
            places: Vec::new(),
            looked_up_to: None,
        };
        for queue in queues {
            if state.in_all >= IN_ALL {
                break;
            }
            allotment.looked_up_to = Some(queue.webhook);
            let Some(account) = queue.account.filter(|_| queue.due) else {
                continue;
            };
            let mut places = 0;
            while state.has_room(queue.webhook, account) {
                state.occupy(queue.webhook, account);
                places += 1;
            }
            if places > 0 {
                allotment.places.push((queue.webhook, places));
            }
        }
        allotment
    }

    /// Whether there is a place for anybody.
    pub fn is_full(&self) -> bool {
        self.state().in_all >= IN_ALL
    }

    pub fn take(&self, webhook: WebhookId, account: AccountId) -> Slot {
        self.state().occupy(webhook, account);
        Slot {
            slots: self.clone(),
            webhook,
            account,
        }
    }
}

impl State {
    fn has_room(&self, webhook: WebhookId, account: AccountId) -> bool {
        let of = |count: Option<&usize>| count.copied().unwrap_or(0);
        let busy = of(self.webhooks.get(&webhook));
        let room = self.in_all < IN_ALL && of(self.accounts.get(&account)) < PER_ACCOUNT;
        if !self.hanging.contains(&webhook) {
            return room && busy < PER_WEBHOOK;
        }
        let hanging = self
            .webhooks
            .iter()
            .filter(|(w, _)| self.hanging.contains(w));
        let hanging: usize = hanging.map(|(_, busy)| busy).sum();
        room && busy < PER_HANGING && hanging < HANGING
    }

    fn occupy(&mut self, webhook: WebhookId, account: AccountId) {
        *self.webhooks.entry(webhook).or_default() += 1;
        *self.accounts.entry(account).or_default() += 1;
        self.in_all += 1;
    }
}

impl Slot {
    /// Remembers whether the receiver let the attempt run out of time.
    pub fn timed_out(&self, timed_out: bool) {
        let mut state = self.slots.state();
        if timed_out {
            state.hanging.insert(self.webhook);
        } else {
            state.hanging.remove(&self.webhook);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.slots.state();
        state.in_all = state.in_all.saturating_sub(1);
        leave(&mut state.webhooks, &self.webhook);
        leave(&mut state.accounts, &self.account);
    }
}

fn leave<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(webhook: i64, account: i64) -> Queue {
        Queue {
            webhook: WebhookId(webhook),
            account: Some(AccountId(account)),
            due: true,
        }
    }

    fn places(slots: &Slots, queues: &[Queue]) -> Vec<(i64, i64)> {
        let places = slots.allot(queues).places;
        places.into_iter().map(|(w, n)| (w.0, n)).collect()
    }

    #[test]
    fn a_webhook_and_an_account_have_their_share() {
        let slots = Slots::default();
        let gone = Queue {
            account: None,
            ..queue(0, 0)
        };
        let later = Queue {
            due: false,
            ..queue(6, 1)
        };
        let mut queues: Vec<_> = (1..=5).map(|webhook| queue(webhook, 1)).collect();
        queues.extend([gone, later, queue(7, 2)]);
        let all = [(1, 4), (2, 4), (3, 4), (4, 4), (7, 4)];
        assert_eq!(places(&slots, &queues), all);
        let held = slots.take(WebhookId(1), AccountId(1));
        let less = [(1, 3), (2, 4), (3, 4), (4, 4), (7, 4)];
        assert_eq!(places(&slots, &queues), less);
        drop(held);
        assert_eq!(places(&slots, &queues), all);
        assert!(slots.state().webhooks.is_empty() && slots.state().accounts.is_empty());
    }

    #[test]
    fn hanging_receivers_leave_room_for_the_others() {
        let slots = Slots::default();
        let hanging: Vec<_> = (0..1_000).map(|n| queue(n, n)).collect();
        for queue in &hanging {
            slots
                .take(queue.webhook, queue.webhook_account())
                .timed_out(true);
        }
        let found = slots.allot(&hanging).places;
        assert_eq!(found.len(), HANGING);
        assert!(found.iter().all(|&(_, places)| places == 1));
        let _held: Vec<_> = found
            .iter()
            .map(|&(webhook, _)| slots.take(webhook, AccountId(webhook.0)))
            .collect();
        assert_eq!(places(&slots, &hanging), []);
        assert_eq!(places(&slots, &[queue(5_000, 5_000)]), [(5_000, 4)]);
        slots.take(WebhookId(999), AccountId(999)).timed_out(false);
        assert_eq!(places(&slots, &hanging), [(999, 4)]);
    }

    #[test]
    fn the_turn_goes_round() {
        let slots = Slots::default();
        let queues: Vec<_> = (0..100).map(|n| queue(n, n)).collect();
        let first = slots.allot(&queues);
        assert_eq!(first.places.len(), IN_ALL / PER_WEBHOOK);
        assert_eq!(first.looked_up_to, Some(WebhookId(31)));
        let _held: Vec<_> = (0..IN_ALL)
            .map(|n| i64::try_from(n).unwrap())
            .map(|n| slots.take(WebhookId(n), AccountId(n)))
            .collect();
        assert!(slots.is_full());
        assert_eq!(slots.allot(&queues).looked_up_to, None);
    }

    impl Queue {
        fn webhook_account(&self) -> AccountId {
            self.account.unwrap()
        }
    }
}
