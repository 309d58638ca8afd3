//! Limits of concurrent attempts, and of their bodies in memory.
//!
//! A receiver that does not answer occupies each attempt until its timeout, and an account may have
//! many such receivers. So each webhook and each account has a limit, and unresponsive webhooks
//! have lower limits, alone and together, so that other webhooks always find permits.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::timeout;

use crate::{
    domain::{
        ids::{AccountId, WebhookId},
        limiter::{Limiter, Permit},
        lock::lock,
    },
    store::deliveries::Queue,
};

/// Maximum concurrent attempts of this process.
const TOTAL: usize = 128;
const PER_ACCOUNT: usize = 16;
const PER_WEBHOOK: usize = 4;
/// Maximum for all webhooks whose last attempt timed out; each has one.
const UNRESPONSIVE: usize = 32;

/// Maximum bytes of bodies in memory, in total and of one account.
const BODIES: (usize, usize) = (64 << 20, 32 << 20);
/// Bytes that are reserved while a body is rendered; a text has at most 4 MiB.
const UNREAD_BODY: usize = 8 << 20;
/// Maximum wait for them. Shorter than the part of a lease that attempts do not use.
const BODY_WAIT: Duration = Duration::from_secs(35);

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct DeliveryLimits {
    accounts: Limiter<AccountId>,
    webhooks: Limiter<WebhookId>,
    bodies: Limiter<AccountId>,
    /// Webhooks whose last attempt in this process timed out.
    unresponsive: Arc<Mutex<HashSet<WebhookId>>>,
}

#[derive(Debug)]
pub struct DeliveryPermit {
    webhook: Permit<WebhookId>,
    #[expect(dead_code, reason = "held, not read")]
    account: Permit<AccountId>,
    unresponsive: Arc<Mutex<HashSet<WebhookId>>>,
}

/// The attempts that each webhook may start.
#[derive(Debug, Default)]
pub struct Allotment {
    /// No list is empty.
    pub permits: BTreeMap<WebhookId, Vec<DeliveryPermit>>,
    /// The last webhook considered; the next poll begins after it.
    pub looked_up_to: Option<WebhookId>,
}

impl Default for DeliveryLimits {
    fn default() -> Self {
        Self {
            accounts: Limiter::new(TOTAL, PER_ACCOUNT),
            webhooks: Limiter::new(TOTAL, PER_WEBHOOK),
            // Attempts are limited, so the queue need not be.
            bodies: Limiter::with_queue(BODIES, (usize::MAX, usize::MAX)),
            unresponsive: Arc::default(),
        }
    }
}

impl DeliveryLimits {
    /// Distributes the free permits to `queues`, in order. Must not be called concurrently.
    pub fn allot(&self, queues: &[Queue]) -> Allotment {
        let mut allotment = Allotment::default();
        for queue in queues {
            if self.is_full() {
                break;
            }
            allotment.looked_up_to = Some(queue.webhook);
            let Some(account) = queue.account.filter(|_| queue.due) else {
                continue;
            };
            while let Some(permit) = self.try_acquire(queue.webhook, account) {
                let permits = allotment.permits.entry(queue.webhook);
                permits.or_default().push(permit);
            }
        }
        allotment
    }

    pub fn is_full(&self) -> bool {
        self.webhooks.free() == 0
    }

    /// Waits for memory for a body that is not rendered yet. Returns `None` after [`BODY_WAIT`].
    pub async fn unread_body(&self, account: AccountId) -> Option<Permit<AccountId>> {
        let acquiring = self.bodies.acquire(account, UNREAD_BODY);
        timeout(BODY_WAIT, acquiring).await.ok().flatten()
    }

    /// Exchanges that memory for the bytes of the rendered body.
    pub fn body(&self, unread: Permit<AccountId>, bytes: usize) -> Permit<AccountId> {
        let body = self.bodies.admit_many(unread.key(), bytes);
        drop(unread);
        body
    }

    fn try_acquire(&self, webhook: WebhookId, account: AccountId) -> Option<DeliveryPermit> {
        if !self.has_room_if_unresponsive(webhook) {
            return None;
        }
        Some(DeliveryPermit {
            webhook: self.webhooks.try_acquire(webhook)?,
            account: self.accounts.try_acquire(account)?,
            unresponsive: Arc::clone(&self.unresponsive),
        })
    }

    fn has_room_if_unresponsive(&self, webhook: WebhookId) -> bool {
        let unresponsive = lock(&self.unresponsive);
        if !unresponsive.contains(&webhook) {
            return true;
        }
        let held = self.webhooks.held().into_iter();
        let held: Vec<_> = held.filter(|(id, _)| unresponsive.contains(id)).collect();
        let total: usize = held.iter().map(|(_, n)| n).sum();
        total < UNRESPONSIVE && held.iter().all(|&(id, _)| id != webhook)
    }
}

impl Allotment {
    pub fn counts(&self) -> Vec<(WebhookId, i64)> {
        let counts = self.permits.iter();
        counts
            .map(|(&webhook, permits)| (webhook, permits.len().try_into().unwrap_or(i64::MAX)))
            .collect()
    }

    pub fn permit(&mut self, webhook: WebhookId) -> Option<DeliveryPermit> {
        self.permits.get_mut(&webhook)?.pop()
    }
}

impl DeliveryPermit {
    pub fn timed_out(&self, timed_out: bool) {
        let mut unresponsive = lock(&self.unresponsive);
        if timed_out {
            unresponsive.insert(self.webhook.key());
        } else {
            unresponsive.remove(&self.webhook.key());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn queue(webhook: i64, account: i64) -> Queue {
        Queue {
            webhook: WebhookId(webhook),
            account: Some(AccountId(account)),
            due: true,
        }
    }

    fn counts(limits: &DeliveryLimits, queues: &[Queue]) -> Vec<(i64, i64)> {
        let counts = limits.allot(queues).counts();
        counts.into_iter().map(|(id, n)| (id.0, n)).collect()
    }

    #[test]
    fn a_webhook_and_an_account_have_their_limits() {
        let limits = DeliveryLimits::default();
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
        assert_eq!(counts(&limits, &queues), all);
        let mut allotment = limits.allot(&[queue(1, 1)]);
        let held = allotment.permit(WebhookId(1));
        drop(allotment);
        let less = [(1, 3), (2, 4), (3, 4), (4, 4), (7, 4)];
        assert_eq!(counts(&limits, &queues), less);
        drop(held);
        assert_eq!(counts(&limits, &queues), all);
    }

    #[test]
    fn unresponsive_receivers_leave_room_for_the_others() {
        let limits = DeliveryLimits::default();
        let unresponsive: Vec<_> = (0..1_000).map(|n| queue(n, n)).collect();
        for queue in &unresponsive {
            let mut allotment = limits.allot(std::slice::from_ref(queue));
            allotment.permit(queue.webhook).unwrap().timed_out(true);
        }
        let held = limits.allot(&unresponsive);
        assert_eq!(held.permits.len(), UNRESPONSIVE);
        assert!(held.counts().iter().all(|&(_, count)| count == 1));
        assert_eq!(counts(&limits, &unresponsive), []);
        assert_eq!(counts(&limits, &[queue(5_000, 5_000)]), [(5_000, 4)]);
        held.permits[&WebhookId(0)][0].timed_out(false);
        assert_eq!(counts(&limits, &unresponsive), [(0, 3), (32, 1)]);
    }

    #[tokio::test]
    async fn bodies_of_an_account_leave_memory_for_another() {
        let limits = DeliveryLimits::default();
        let unread = |account| {
            limits
                .unread_body(AccountId(account))
                .now_or_never()
                .flatten()
        };
        let mut bodies = Vec::new();
        while let Some(unread) = unread(1) {
            bodies.push(limits.body(unread, 4 << 20));
        }
        assert_eq!(bodies.len(), 7);
        assert!(unread(2).is_some());
        bodies.pop();
        assert!(unread(1).is_some());
    }

    #[test]
    fn the_turn_goes_round() {
        let limits = DeliveryLimits::default();
        let queues: Vec<_> = (0..100).map(|n| queue(n, n)).collect();
        let held = limits.allot(&queues);
        assert_eq!(held.permits.len(), TOTAL / PER_WEBHOOK);
        assert_eq!(held.looked_up_to, Some(WebhookId(31)));
        assert!(limits.is_full());
        assert_eq!(limits.allot(&queues).looked_up_to, None);
    }
}
