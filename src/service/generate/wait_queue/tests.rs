use super::*;

const KEY: QueueKey = Some(ApiKeyId(1));
const OTHER: QueueKey = Some(ApiKeyId(2));

/// A queue with a settable time and free credits.
struct Account {
    queue: WaitQueue,
    now: Instant,
    free: i64,
    /// Tickets in the order in which their holds were placed.
    placed: Vec<u64>,
    needs: Vec<i64>,
}

impl Account {
    fn new(free: i64) -> Self {
        let now = Instant::now();
        Self {
            queue: WaitQueue::new(now),
            now,
            free,
            placed: Vec::new(),
            needs: Vec::new(),
        }
    }

    fn enter(&mut self, key: QueueKey, needs: i64) -> u64 {
        self.needs.push(needs);
        let required = Some(Credits::from_micros(needs));
        self.queue.enter(key, required, Arc::default(), self.now)
    }

    /// Lets every request try whose turn it is. Returns the tickets that tried.
    fn tries(&mut self) -> Vec<u64> {
        let mut tried = Vec::new();
        self.queue.advance(self.now);
        while let Some(ticket) = self.queue.trying {
            tried.push(ticket);
            let needs = self.needs[usize::try_from(ticket).unwrap()];
            if needs <= self.free {
                self.free -= needs;
                self.placed.push(ticket);
                self.queue.leave(ticket, self.now);
            } else {
                let required = Credits::from_micros(needs);
                self.queue.refused(ticket, required, true, self.now);
            }
        }
        tried
    }

    fn after(&mut self, millis: u64) -> Vec<u64> {
        self.now += Duration::from_millis(millis);
        self.tries()
    }

    fn freed(&mut self, credits: i64) -> Vec<u64> {
        self.free += credits;
        self.queue.credits_freed(self.now);
        self.tries()
    }
}

#[test]
fn keys_are_served_round_robin_in_order_of_arrival() {
    let mut account = Account::new(0);
    let tickets = [KEY, KEY, KEY, OTHER, OTHER, None].map(|key| account.enter(key, 1));
    assert_eq!(tickets, [0, 1, 2, 3, 4, 5]);
    // No request needs less than the first.
    assert_eq!(account.tries(), [0]);
    assert!(account.tries().is_empty());
    assert_eq!(account.freed(1), [0, 3]);
    assert_eq!(account.freed(2), [3, 5, 1]);
    account.freed(9);
    assert_eq!(account.placed, [0, 3, 5, 1, 4, 2]);
}

#[test]
fn a_large_hold_does_not_keep_other_keys_waiting() {
    let mut account = Account::new(45);
    account.enter(KEY, 49);
    assert_eq!(account.tries(), [0]);
    assert!(account.queue.must_wait(KEY, account.now));
    assert!(!account.queue.must_wait(OTHER, account.now));
    account.enter(OTHER, 1);
    assert_eq!(account.tries(), [1]);
    // A request of its own key lets it go first for a time.
    account.enter(KEY, 1);
    assert_eq!(account.after(1_000), [0]);
    assert_eq!(account.placed, [1]);
}

#[test]
fn the_oldest_gets_what_becomes_free_for_a_time() {
    let mut account = Account::new(45);
    account.enter(KEY, 49);
    account.after(1_999);
    assert!(!account.queue.must_wait(OTHER, account.now));
    account.after(1);
    assert!(account.queue.must_wait(OTHER, account.now));
    account.enter(OTHER, 1);
    account.enter(KEY, 1);
    account.after(1_000);
    assert!(account.placed.is_empty());
    account.freed(6);
    assert_eq!(account.placed, [0, 1, 2]);
}

#[test]
fn a_reservation_ends_and_comes_back_later() {
    let mut account = Account::new(45);
    account.enter(KEY, 49);
    account.tries();
    account.after(2_000);
    account.enter(OTHER, 1);
    account.enter(KEY, 1);
    account.after(1_999);
    assert!(account.placed.is_empty());
    account.after(1);
    // Both have waited long enough to pass the large one.
    assert_eq!(account.placed, [2, 1]);
    assert!(!account.queue.must_wait(OTHER, account.now));
    account.after(7_000);
    assert!(!account.queue.must_wait(OTHER, account.now));
    account.after(1_000);
    assert!(account.queue.must_wait(OTHER, account.now));
}

#[test]
fn what_does_not_fit_is_not_tried_again_in_a_pass() {
    let mut account = Account::new(0);
    for key in [KEY, OTHER, None] {
        account.enter(key, 5);
    }
    assert_eq!(account.tries(), [0]);
    assert_eq!(account.freed(4), [0]);
    assert_eq!(account.freed(1), [0, 1]);
}

#[test]
fn a_request_that_leaves_lets_the_next_try() {
    let mut account = Account::new(0);
    account.enter(KEY, 1);
    account.enter(KEY, 1);
    account.enter(OTHER, 1);
    assert!(account.queue.is_trying(0));
    account.queue.leave(0, account.now);
    assert!(account.queue.is_trying(2));
    account.queue.leave(2, account.now);
    assert!(account.queue.is_trying(1));
    account.queue.leave(1, account.now);
    assert!(account.queue.keys.is_empty());
}

#[test]
fn a_key_at_its_own_limit_gets_no_reservation() {
    let mut account = Account::new(0);
    let ticket = account.enter(KEY, 5);
    assert!(account.queue.is_trying(ticket));
    let required = Credits::from_micros(5);
    account.queue.refused(ticket, required, false, account.now);
    account.now += PATIENCE;
    account.queue.advance(account.now);
    assert!(!account.queue.must_wait(OTHER, account.now));
}

#[test]
fn a_request_that_fits_waits_two_seconds_at_most() {
    for (key, other) in [(KEY, KEY), (OTHER, OTHER), (OTHER, None)] {
        let mut account = Account::new(45);
        account.enter(KEY, 49);
        account.tries();
        // Does not fit either, and is the first of its key.
        account.enter(other, 48);
        account.after(100);
        let small = account.enter(key, 1);
        account.after(1_999);
        // The oldest has a reservation.
        assert!(account.queue.must_wait(Some(ApiKeyId(3)), account.now));
        account.after(1);
        assert_eq!(account.placed, [small], "{key:?} {other:?}");
        // Later ones are still held back.
        account.enter(None, 1);
        account.after(1_000);
        assert_eq!(account.placed, [small]);
    }
}
