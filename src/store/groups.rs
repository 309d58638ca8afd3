//! Group commit: what arrives while a statement is under way forms the next one.
//!
//! There is no timer: what arrives alone is sent at once. Of each key (an account) at most one
//! statement of this process is under way, so that what waits for its row waits here, and goes
//! together. A statement that is shared by several keys waits for none of their rows; what finds
//! its row locked is taken to a lane, a transaction for this key alone that may wait.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{runtime::Handle, time::Instant};

/// Items of one statement. More win nothing, and others wait for them.
const MOST: usize = 64;
/// Items of one key in a statement that others share.
const MOST_OF_KEY: usize = 32;
/// Bytes of the items of one statement, unless one alone is larger.
const MOST_BYTES: usize = 1 << 20;
/// Once a statement takes longer, the next does not wait for its end: commits are slow then, and
/// sharing them is worth less than the wait.
const HURRY: Duration = Duration::from_millis(8);

/// Something to be written, and whoever waits to hear of it.
pub trait Item: Send + Sync + 'static {
    type Key: Copy + Eq + Hash + Send + Sync;

    /// Whose it is.
    fn key(&self) -> Self::Key;

    /// Items of different kinds need different statements.
    fn kind(&self) -> u8;

    fn bytes(&self) -> usize;
}

/// How items are written. Each is told its outcome through itself.
pub trait Writer: Send + Sync + 'static {
    type Item: Item;

    /// Writes items of one kind. Returns those that are to be written in a lane.
    fn together(&self, items: Vec<Self::Item>) -> impl Future<Output = Vec<Self::Item>> + Send;

    /// Writes what waits of one key, whatever its kinds.
    fn in_lane(&self, items: Vec<Self::Item>) -> impl Future<Output = ()> + Send;
}

/// The statements of one writer. Cheap to clone.
pub struct Groups<W: Writer>(Arc<Inner<W>>);

struct Inner<W: Writer> {
    writer: W,
    bounds: Bounds,
    state: Mutex<State<W::Item>>,
}

/// What may be under way at once.
#[derive(Clone, Copy)]
struct Bounds {
    statements: usize,
    lanes: usize,
    /// How long a statement may take before the next does not wait for it.
    hurry: Duration,
}

struct State<I: Item> {
    waiting: VecDeque<I>,
    /// What waits for a lane, by key, in the order in which they came.
    for_lanes: Vec<(I::Key, Vec<I>)>,
    /// Keys of which something is under way.
    busy: HashSet<I::Key>,
    statements: usize,
    lanes: usize,
    /// When the last statement was begun.
    begun: Instant,
}

enum Next<I: Item> {
    Statement(Vec<I>),
    Lane(I::Key, Vec<I>),
}

impl<W: Writer> Clone for Groups<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W: Writer> Groups<W> {
    /// At most `statements` and `lanes` are under way at once.
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
                lanes: 0,
                begun: Instant::now(),
            }),
        }))
    }

    /// Writes an item as soon as can be. It is told its outcome itself, even if its caller has
    /// gone away.
    pub fn submit(&self, item: W::Item) {
        self.state().waiting.push_back(item);
        self.begin();
    }

    /// The same in a lane.
    pub fn submit_to_lane(&self, item: W::Item) {
        self.state().leave_for_lane(item);
        self.begin();
    }

    /// Begins what can be begun.
    fn begin(&self) {
        let Ok(runtime) = Handle::try_current() else {
            // It ends, and nobody waits for anything any more.
            return;
        };
        loop {
            let next = self.state().next(self.0.bounds);
            let groups = self.clone();
            match next {
                Some(Next::Statement(items)) => runtime.spawn(groups.statement(items)),
                Some(Next::Lane(key, items)) => runtime.spawn(groups.lane(key, items)),
                None => return,
            };
        }
    }

    async fn statement(self, items: Vec<W::Item>) {
        let keys: HashSet<_> = items.iter().map(Item::key).collect();
        let ended = Ended(&self, |state: &mut State<W::Item>| {
            state.statements -= 1;
            state.busy.retain(|key| !keys.contains(key));
        });
        for item in self.0.writer.together(items).await {
            self.state().leave_for_lane(item);
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

    fn state(&self) -> MutexGuard<'_, State<W::Item>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Frees the place of what has ended, also by a panic, and begins what waited for it.
struct Ended<'a, W: Writer, F: FnMut(&mut State<W::Item>)>(&'a Groups<W>, F);

impl<W: Writer, F: FnMut(&mut State<W::Item>)> Drop for Ended<'_, W, F> {
    fn drop(&mut self) {
        (self.1)(&mut self.0.state());
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
        let may_begin = self.statements == 0 || self.begun.elapsed() >= bounds.hurry;
        if self.statements < bounds.statements && may_begin {
            let items = self.group();
            if !items.is_empty() {
                self.statements += 1;
                self.begun = Instant::now();
                self.busy.extend(items.iter().map(Item::key));
                return Some(Next::Statement(items));
            }
        }
        None
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

    fn waits_for_lane(&self, key: I::Key) -> bool {
        self.for_lanes.iter().any(|&(other, _)| other == key)
    }

    /// Everything that waits of a key, so that its row is waited for once.
    fn all_of(&mut self, key: I::Key) -> Vec<I> {
        let place = self.for_lanes.iter().position(|&(other, _)| other == key);
        let mut items = place.map_or_else(Vec::new, |place| self.for_lanes.remove(place).1);
        let (own, others): (Vec<I>, _) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|item| item.key() == key);
        self.waiting = others.into();
        items.extend(own);
        items
    }

    /// The first that may be written, and what goes with it.
    fn group(&mut self) -> Vec<I> {
        let mut group: Vec<I> = Vec::new();
        let mut bytes = 0;
        let mut of_key: HashMap<I::Key, usize> = HashMap::new();
        let waiting = std::mem::take(&mut self.waiting);
        let mut left = VecDeque::with_capacity(waiting.len());
        for item in waiting {
            let key = item.key();
            let free = !self.busy.contains(&key) && !self.waits_for_lane(key);
            let of_key = of_key.entry(key).or_default();
            let fits = match group.first() {
                None => true,
                Some(first) => {
                    first.kind() == item.kind()
                        && group.len() < MOST
                        && *of_key < MOST_OF_KEY
                        && bytes + item.bytes() <= MOST_BYTES
                }
            };
            if free && fits {
                *of_key += 1;
                bytes += item.bytes();
                group.push(item);
            } else {
                left.push_back(item);
            }
        }
        self.waiting = left;
        group
    }
}

#[cfg(test)]
mod tests;
