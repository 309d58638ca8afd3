//! How many calls each provider may have from this process at once.
//!
//! Here: counting. Not here: what a caller is told when there is no seat; there is no queue.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The seats of all providers, by name.
#[derive(Debug, Default, Clone)]
pub struct Seats(BTreeMap<String, Arc<Semaphore>>);

/// One call's seat; free again when this is dropped.
#[derive(Debug)]
pub struct Seat(#[expect(dead_code, reason = "held, not read")] Option<OwnedSemaphorePermit>);

impl Seats {
    /// Gives a provider `most` seats.
    pub fn set(&mut self, provider: &str, most: usize) {
        let most = most.min(Semaphore::MAX_PERMITS);
        let seats = Arc::new(Semaphore::new(most));
        self.0.insert(provider.to_owned(), seats);
    }

    /// A seat, at once or not at all. A provider without a number has no bound.
    pub fn take(&self, provider: &str) -> Option<Seat> {
        match self.0.get(provider) {
            None => Some(Seat(None)),
            Some(seats) => {
                let permit = Arc::clone(seats).try_acquire_owned().ok()?;
                Some(Seat(Some(permit)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_is_free_again_when_it_is_left() {
        let mut seats = Seats::default();
        seats.set("a", 2);
        let clone = seats.clone();
        let (first, second) = (seats.take("a"), clone.take("a"));
        assert!(first.is_some() && second.is_some());
        assert!(seats.take("a").is_none());
        assert!(seats.take("b").is_some());
        drop(first);
        assert!(clone.take("a").is_some());
    }
}
