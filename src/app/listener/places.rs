//! The permits for connections, and the choice of a connection to close for a new one.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    api::is_trusted,
    domain::{
        limiter::{Limiter, Permit},
        lock::lock,
        party::{Address, Network},
    },
    resource::Refusals,
};

/// How long an address may use the reserve after an authenticated request on a new connection.
const KNOWN_PERIOD: Duration = Duration::from_hours(1);
/// Maximum addresses that may use the reserve.
const MAX_KNOWN: usize = 16_384;

/// Permits for connections. An address gets at most half of them. Trusted proxies have no such
/// limit, since their requests are counted by the forwarded address.
pub(super) struct Places {
    limiter: Limiter<Address>,
    /// Permits that only addresses with authenticated requests get.
    reserve: usize,
    trusted_proxies: Vec<Network>,
    state: Mutex<State>,
    refusals: Refusals,
}

#[derive(Default)]
struct State {
    last_id: u64,
    /// Connections without an authenticated request, oldest first.
    unknown: BTreeMap<u64, Arc<Place>>,
    /// Addresses with authenticated requests, and the time of the last.
    known: HashMap<Address, Instant>,
}

/// The permit of a connection.
pub(super) struct Place {
    id: u64,
    address: Address,
    permit: Permit<Address>,
    is_authenticated: AtomicBool,
    /// Shared with each request whose response is not sent yet.
    requests: Arc<()>,
    /// Cancelled to end the connection.
    pub close: CancellationToken,
}

impl Places {
    pub(super) fn new(max_connections: usize, trusted_proxies: Vec<Network>) -> Self {
        Self {
            limiter: Limiter::shared(max_connections, 0),
            reserve: max_connections / 8,
            trusted_proxies,
            state: Mutex::default(),
            refusals: Refusals::new("connections"),
        }
    }

    /// Returns a permit for a new connection. If there is none, closes the oldest silent
    /// connection: of the same address if its share is used up, else of any. Returns `None` if no
    /// connection is silent.
    pub(super) fn take(&self, peer: IpAddr, close: &CancellationToken) -> Option<Arc<Place>> {
        let address = Address::from(peer);
        let is_proxy = is_trusted(peer, &self.trusted_proxies);
        let mut state = lock(&self.state);
        let permit = loop {
            let permit = self.try_acquire(&state, address, is_proxy);
            if permit.is_some() {
                break permit;
            }
            let share = self.limiter.per_key();
            let of_address = !is_proxy && self.limiter.held_by(address) >= share;
            let silent = state
                .unknown
                .values()
                .find(|place| place.is_silent() && (!of_address || place.address == address));
            let Some(id) = silent.map(|place| place.id) else {
                break None;
            };
            if let Some(silent) = state.unknown.remove(&id) {
                silent.permit.release();
                silent.close.cancel();
            }
        };
        let Some(permit) = permit else {
            self.refusals.log(address.into());
            return None;
        };
        state.last_id += 1;
        let place = Arc::new(Place {
            id: state.last_id,
            address,
            permit,
            is_authenticated: AtomicBool::new(false),
            requests: Arc::default(),
            close: close.child_token(),
        });
        // A proxy opens connections before it has requests.
        if !is_proxy {
            state.unknown.insert(place.id, Arc::clone(&place));
        }
        Some(place)
    }

    fn try_acquire(
        &self,
        state: &State,
        address: Address,
        is_proxy: bool,
    ) -> Option<Permit<Address>> {
        let known = state.known.get(&address);
        let is_known = is_proxy || known.is_some_and(|at| at.elapsed() < KNOWN_PERIOD);
        let reserve = if is_known { 0 } else { self.reserve };
        if self.limiter.free() <= reserve {
            return None;
        }
        if is_proxy {
            return Some(self.limiter.admit(address));
        }
        self.limiter.try_acquire(address)
    }

    /// Protects a connection from being closed after an authenticated request, and lets its address
    /// use the reserve.
    pub(super) fn authenticated(&self, place: &Place) {
        if place.is_authenticated.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut state = lock(&self.state);
        state.unknown.remove(&place.id);
        if state.known.len() >= MAX_KNOWN {
            state.known.retain(|_, at| at.elapsed() < KNOWN_PERIOD);
        }
        if state.known.len() < MAX_KNOWN || state.known.contains_key(&place.address) {
            state.known.insert(place.address, Instant::now());
        }
    }

    /// Releases the permit of a connection.
    pub(super) fn leave(&self, place: &Place) {
        lock(&self.state).unknown.remove(&place.id);
        place.permit.release();
    }
}

impl Place {
    /// Whether the connection neither sends a request nor receives a response.
    fn is_silent(&self) -> bool {
        Arc::strong_count(&self.requests) == 1
    }

    pub(super) fn is_authenticated(&self) -> bool {
        self.is_authenticated.load(Ordering::Acquire)
    }

    /// Counts a request until the response is sent and the result is dropped.
    pub(super) fn count_request(&self) -> Arc<()> {
        Arc::clone(&self.requests)
    }
}
