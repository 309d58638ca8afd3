//! Group commit: items that arrive while a statement runs form the next one.
//!
//! An item is never delayed for others: without a running statement it is sent at once. At most one
//! statement per key (an account) runs in this process, so that items for its row queue here and
//! are written together. A statement of only one key does not block the next one. Items whose row
//! the writer finds locked move to a lane, a transaction for this key that may wait.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::Hash,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{Instant, sleep_until},
};

use crate::domain::lock::lock;

/// Maximum items of one statement. More are not faster, and delay others.
const MOST: usize = 64;
/// Maximum items of one key in a shared statement.
const MOST_OF_KEY: usize = 32;
/// Maximum bytes of one statement, unless one item is larger.
const MOST_BYTES: usize = 1 << 20;
/// Maximum concurrent statements while none is slow; a statement of several keys runs alone. More
/// statements would each write less at nearly the same cost.
const AT_ONCE: usize = 2;
/// If a statement takes longer, the next one does not wait for it: with slow commits, sharing saves
/// less than the wait costs.
const HURRY: Duration = Duration::from_millis(8);

/// An item to write, with the channel for its result.
pub trait Item: Send + Sync + 'static {
    type Key: Copy + Eq + Hash + Send + Sync;

    fn key(&self) -> Self::Key;

    /// Items of different kinds need different statements.
    fn kind(&self) -> u8;

    fn bytes(&self) -> usize;

    /// Whether its caller is gone, so that it need not be written.
    fn is_abandoned(&self) -> bool;
}

/// Writes items and sends each result to the item's channel.
pub trait Writer: Send + Sync + 'static {
    type Item: Item;

    /// Writes items of one kind. Returns those to write in a lane.
    fn together(&self, items: Vec<Self::Item>) -> impl Future<Output = Vec<Self::Item>> + Send;

    /// Writes items of one key, of all kinds.
    fn in_lane(&self, items: Vec<Self::Item>) -> impl Future<Output = ()> + Send;
}

/// The statements of one writer. Cheap to clone.
pub struct Groups<W: Writer>(Arc<Inner<W>>);

struct Inner<W: Writer> {
    writer: W,
    bounds: Bounds,
    state: Mutex<State<W::Item>>,
}

/// Limits of concurrent statements.
#[derive(Clone, Copy)]
struct Bounds {
    statements: usize,
    lanes: usize,
    /// After this time, the next statement no longer waits for a running one.
    hurry: Duration,
}

struct State<I: Item> {
    waiting: VecDeque<I>,
    /// Items that wait for a lane, by key in order of arrival.
    for_lanes: Vec<(I::Key, Vec<I>)>,
    /// Keys with a running statement.
    busy: HashSet<I::Key>,
    statements: usize,
    /// Running statements of several keys.
    shared: usize,
    /// Whether a statement is about to take waiting items.
    forming: bool,
    /// A kind that the last statement skipped; the next statement takes it.
    turn: Option<u8>,
    lanes: usize,
    /// Whether a timer runs that wakes waiting items once the last statement is slow.
    watched: bool,
    begun: Instant,
}

enum Next<I: Item> {
    Statement,
    Lane(I::Key, Vec<I>),
}

impl<W: Writer> Clone for Groups<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W: Writer> Groups<W> {
    /// Limits concurrent statements and concurrent lanes to the given numbers.
    pub fn new(writer: W, statements: usize, lanes: usize) -> Self {
        let bounds = Bounds {
            statements,
            lanes,
            hurry: HURRY,
        };
        Self::within(writer, bounds)
    }

    fn within(writer: W, bounds: Bounds) -> Self {
        Self(Arc::new(Inner {
            writer,
            bounds,
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                for_lanes: Vec::new(),
                busy: HashSet::new(),
                statements: 0,
                shared: 0,
                forming: false,
                turn: None,
                lanes: 0,
                watched: false,
                begun: Instant::now(),
            }),
        }))
    }

    /// Queues an item. Its result is sent to its channel. It is written even if its caller
    /// disconnects.
    pub fn submit(&self, item: W::Item) {
        lock(&self.0.state).waiting.push_back(item);
        self.begin();
    }

    pub fn submit_to_lane(&self, item: W::Item) {
        lock(&self.0.state).leave_for_lane(item);
        self.begin();
    }

    /// Starts all statements that may run.
    fn begin(&self) {
        let Ok(runtime) = Handle::try_current() else {
            // The runtime is shutting down, and no caller is left.
            return;
        };
        loop {
            let next = lock(&self.0.state).next(self.0.bounds);
            let groups = self.clone();
            match next {
                Some(Next::Statement) => runtime.spawn(groups.statement()),
                Some(Next::Lane(key, items)) => runtime.spawn(groups.lane(key, items)),
                None => break,
            };
        }
        if let Some(slow_at) = lock(&self.0.state).watch(self.0.bounds) {
            let groups = self.clone();
            runtime.spawn(async move {
                sleep_until(slow_at).await;
                lock(&groups.0.state).watched = false;
                groups.begin();
            });
        }
    }

    async fn statement(self) {
        let (items, keys) = lock(&self.0.state).group();
        let ended = Ended(&self, |state: &mut State<W::Item>| {
            state.statements -= 1;
            state.shared -= usize::from(keys.len() > 1);
            state.busy.retain(|key| !keys.contains(key));
        });
        if items.is_empty() {
            return;
        }
        // Remaining items may not have to wait for this statement.
        self.begin();
        for item in self.0.writer.together(items).await {
            lock(&self.0.state).leave_for_lane(item);
        }
        drop(ended);
    }

    async fn lane(self, key: <W::Item as Item>::Key, items: Vec<W::Item>) {
        let ended = Ended(&self, |state: &mut State<W::Item>| {
            state.lanes -= 1;
            state.busy.remove(&key);
        });
        self.0.writer.in_lane(items).await;
        drop(ended);
    }
}

/// Frees the slot of an ended statement, also after a panic, and starts the next statement.
struct Ended<'a, W: Writer, F: FnMut(&mut State<W::Item>)>(&'a Groups<W>, F);

impl<W: Writer, F: FnMut(&mut State<W::Item>)> Drop for Ended<'_, W, F> {
    fn drop(&mut self) {
        (self.1)(&mut lock(&self.0.0.state));
        self.0.begin();
    }
}

impl<I: Item> State<I> {
    fn next(&mut self, bounds: Bounds) -> Option<Next<I>> {
        if self.lanes < bounds.lanes
            && let Some(key) = self.key_for_lane()
        {
            self.lanes += 1;
            self.busy.insert(key);
            return Some(Next::Lane(key, self.all_of(key)));
        }
        let is_quick = self.shared == 0 && self.statements < AT_ONCE;
        let may_begin = is_quick || self.begun.elapsed() >= bounds.hurry;
        let is_free = self.statements < bounds.statements && !self.forming;
        if is_free && may_begin && self.may_group() {
            self.statements += 1;
            self.forming = true;
            self.begun = Instant::now();
            return Some(Next::Statement);
        }
        None
    }

    /// Whether any waiting item may be written in a shared statement.
    fn may_group(&self) -> bool {
        self.waiting.iter().any(|item| self.is_free(item.key()))
    }

    fn is_free(&self, key: I::Key) -> bool {
        !self.busy.contains(&key) && !self.for_lanes.iter().any(|&(other, _)| other == key)
    }

    /// Returns when to check waiting items again without another event, unless a timer runs.
    fn watch(&mut self, bounds: Bounds) -> Option<Instant> {
        let slow_at = self.begun.checked_add(bounds.hurry)?;
        // The statement that is about to take waiting items checks again itself.
        let is_looked_after = self.watched || self.forming;
        if is_looked_after || self.statements >= bounds.statements || !self.may_group() {
            return None;
        }
        self.watched = true;
        Some(slow_at)
    }

    fn leave_for_lane(&mut self, item: I) {
        let key = item.key();
        match self.for_lanes.iter_mut().find(|(other, _)| *other == key) {
            Some((_, items)) => items.push(item),
            None => self.for_lanes.push((key, vec![item])),
        }
    }

    fn key_for_lane(&self) -> Option<I::Key> {
        let mut keys = self.for_lanes.iter().map(|&(key, _)| key);
        keys.find(|key| !self.busy.contains(key))
    }

    /// Takes all items of a key, so that its row is locked once.
    fn all_of(&mut self, key: I::Key) -> Vec<I> {
        let place = self.for_lanes.iter().position(|&(other, _)| other == key);
        let for_lane = place.map_or_else(Vec::new, |place| self.for_lanes.remove(place).1);
        let mut taken: Vec<I> = Vec::new();
        let mut bytes = 0;
        // Puts back items that do not fit.
        let mut take = |item: I| {
            let more = taken.len() < MOST && bytes + item.bytes() <= MOST_BYTES;
            if !more && !taken.is_empty() {
                return Some(item);
            }
            bytes += item.bytes();
            taken.push(item);
            None
        };
        let for_lane = for_lane.into_iter().filter(|item| !item.is_abandoned());
        let left: Vec<_> = for_lane.filter_map(&mut take).collect();
        if left.is_empty() {
            let waiting = std::mem::take(&mut self.waiting).into_iter();
            let waiting = waiting.filter_map(|item| {
                if item.key() == key && !item.is_abandoned() {
                    take(item)
                } else {
                    Some(item)
                }
            });
            self.waiting = waiting.collect();
        } else {
            self.for_lanes.push((key, left));
        }
        taken
    }

    /// Returns the kind of the oldest item. No kind is skipped twice, so that many items of one
    /// kind do not starve another.
    fn kind_in_turn(&self) -> Option<u8> {
        let in_turn = self.free_kinds().find(|&kind| Some(kind) == self.turn);
        in_turn.or_else(|| self.free_kinds().next())
    }

    fn free_kinds(&self) -> impl Iterator<Item = u8> {
        let free = self.waiting.iter().filter(|item| self.is_free(item.key()));
        free.map(Item::kind)
    }

    /// Takes items to write together: first one of each key, so that a key with many items does not
    /// starve others.
    fn group(&mut self) -> (Vec<I>, HashSet<I::Key>) {
        self.waiting.retain(|item| !item.is_abandoned());
        let kind = self.kind_in_turn();
        let mut group = Vec::new();
        let mut bytes = 0;
        let mut of_keys: HashMap<_, usize> = HashMap::new();
        for first_of_each in [true, false] {
            let most_of_key = match of_keys.len() {
                _ if first_of_each => 1,
                1 => MOST,
                _ => MOST_OF_KEY,
            };
            for item in std::mem::take(&mut self.waiting) {
                let key = item.key();
                let of_key = of_keys.get(&key).copied().unwrap_or_default();
                let fits = group.is_empty()
                    || (group.len() < MOST
                        && of_key < most_of_key
                        && bytes + item.bytes() <= MOST_BYTES);
                if fits && Some(item.kind()) == kind && self.is_free(key) {
                    of_keys.insert(key, of_key + 1);
                    bytes += item.bytes();
                    group.push(item);
                } else {
                    self.waiting.push_back(item);
                }
            }
        }
        let keys: HashSet<_> = of_keys.into_keys().collect();
        self.busy.extend(&keys);
        let passed_over = self.free_kinds().find(|&other| Some(other) != kind);
        self.turn = passed_over;
        self.shared += usize::from(keys.len() > 1);
        self.forming = false;
        (group, keys)
    }
}

#[cfg(test)]
mod tests;
