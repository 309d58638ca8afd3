//! The generations that run in this process, with handles to wait for them, and the first attempts
//! of SDKs whose hold is undecided. A retry in this process waits for these attempts before it
//! decides which attempt to join.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Runner;
use crate::{
    domain::{
        generation::Generation,
        ids::{AccountId, GenerationId},
        limiter::Permit,
        lock::lock,
    },
    store::generations::NextCandidate,
};

type Done = watch::Receiver<Option<Arc<Generation>>>;
type Entries = Arc<Mutex<HashMap<GenerationId, Handle>>>;

/// The register of running generations, each from before its row is created until after it is
/// settled. A row of this process that is not registered has no task that will finish it.
#[derive(Debug, Clone, Default)]
pub(super) struct Running(Entries);

#[derive(Debug, Clone)]
pub struct Handle {
    /// Asks its task to end it. The stream may still be read to its end without being delivered.
    pub(super) cancel: CancellationToken,
    /// Parent of `cancel`. Stops the task at once, because the row has ended or has another owner.
    pub(super) abandon: CancellationToken,
    done: Done,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    attempts: AtomicU32,
    /// Whether the row has been created.
    held: AtomicBool,
    /// Whether its text is streamed to the caller, so that only its task ends it.
    streams: bool,
    /// Whether a sweep found that this process no longer owns the row.
    lost: AtomicBool,
    /// The candidate that it last fell back to.
    moved_to: Mutex<Option<NextCandidate>>,
}

/// A registration, removed on drop, also after a panic.
#[derive(Debug)]
pub struct RunningGuard {
    id: GenerationId,
    entries: Entries,
    pub(super) handle: Handle,
    /// Memory permit for the inputs, acquired before the hold; `None` for jobs.
    pub(super) input_memory: Option<Permit<AccountId>>,
}

/// Why a call was abandoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The generation was cancelled, or another worker took it over.
    Cancelled,
    Interrupted,
}

impl RunningGuard {
    /// The hold is placed and the row exists.
    pub(super) fn held(&self) {
        self.handle.state.held.store(true, Ordering::Release);
    }

    pub(super) fn moved_to(&self, next: &NextCandidate) {
        *lock(&self.handle.state.moved_to) = Some(next.clone());
    }

    pub(super) fn has_moved(&self) -> bool {
        lock(&self.handle.state.moved_to).is_some()
    }

    pub(super) fn submitted(&self) {
        self.handle.state.attempts.fetch_add(1, Ordering::AcqRel);
    }
}

impl Running {
    pub(super) fn reserve(
        &self,
        id: GenerationId,
        streams: bool,
    ) -> (RunningGuard, watch::Sender<Option<Arc<Generation>>>) {
        let (sender, done) = watch::channel(None);
        let abandon = CancellationToken::new();
        let handle = Handle {
            cancel: abandon.child_token(),
            abandon,
            done,
            state: Arc::new(State {
                streams,
                ..State::default()
            }),
        };
        lock(&self.0).insert(id, handle.clone());
        let guard = RunningGuard {
            id,
            entries: Arc::clone(&self.0),
            handle,
            input_memory: None,
        };
        (guard, sender)
    }

    pub(super) fn handle(&self, id: GenerationId) -> Option<Handle> {
        lock(&self.0).get(&id).cloned()
    }

    pub(super) fn contains(&self, id: GenerationId) -> bool {
        lock(&self.0).contains_key(&id)
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    pub(super) fn any_streams(&self) -> bool {
        lock(&self.0).values().any(Handle::streams)
    }

    /// Abandons work on rows that this process no longer owns, because another replica has ended or
    /// taken them over. Acts only on the second sighting, since a row may end between the read and
    /// this call.
    pub(super) fn stop_lost(&self, owned: &[GenerationId]) {
        for (id, handle) in lock(&self.0).iter() {
            let state = &handle.state;
            if owned.contains(id) || !state.held.load(Ordering::Acquire) {
                continue;
            }
            if state.lost.swap(true, Ordering::AcqRel) {
                handle.abandon.cancel();
            }
        }
    }

    /// Stops the work on a row that has ended.
    pub(super) fn abandon(&self, id: GenerationId) {
        if let Some(handle) = self.handle(id) {
            handle.abandon.cancel();
        }
    }
}

impl Handle {
    pub(super) fn attempts(&self) -> Option<i32> {
        i32::try_from(self.state.attempts.load(Ordering::Acquire)).ok()
    }

    /// Updates a record with the candidate that the generation has fallen back to.
    pub fn follow_moves(&self, record: &mut Generation) {
        if let Some(next) = lock(&self.state.moved_to).clone() {
            record.provider = next.provider;
            record.model = next.model;
            record.parameters = next.parameters;
        }
    }

    /// Whether only its own task ends it on a cancel.
    pub(super) fn streams(&self) -> bool {
        self.state.streams
    }

    /// Waits for the settled record. Returns `None` if the task ended without one, by a panic or a
    /// shutdown; the database has it then.
    pub async fn finished(mut self) -> Option<Arc<Generation>> {
        self.done
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|record| record.clone())
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        // Remove only its own entry: the same job may have been claimed again meanwhile.
        let mut entries = lock(&self.entries);
        let own = |found: &Handle| Arc::ptr_eq(&found.state, &self.handle.state);
        if entries.get(&self.id).is_some_and(own) {
            entries.remove(&self.id);
        }
    }
}

/// The account, and the fingerprint of the request.
type Key = (AccountId, [u8; 32]);

#[derive(Debug, Clone, Default)]
pub(super) struct Attempts(Arc<Mutex<HashMap<Key, Vec<watch::Receiver<()>>>>>);

/// A first attempt, undecided until this is dropped.
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
                // Nothing is ever sent; the channel closes.
                while attempt.changed().await.is_ok() {}
            }
        })
    }
}
