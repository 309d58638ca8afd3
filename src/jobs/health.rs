//! Circuit breakers and the time to the first token, by provider and model, as seen by this server.
//!
//! A breaker only chooses between candidates; a request with one candidate is always sent.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use crate::domain::lock::lock;

/// Failures within [`WINDOW`] that open a circuit.
const FAILURES: usize = 5;
const WINDOW: Duration = Duration::from_secs(30);
/// How long a model is skipped before the first probe, and between two probes.
const PAUSE: Duration = Duration::from_secs(30);
/// How long a measured time to the first token is used.
const MEASURED: Duration = Duration::from_mins(10);
/// Interval between two streams that measure a model.
const TRIAL: Duration = Duration::from_secs(30);

/// Times are monotonic, from the injected clock.
#[derive(Debug, Default)]
pub(super) struct Health(Mutex<Models>);

/// By provider and model.
#[derive(Debug, Default)]
struct Models(BTreeMap<String, BTreeMap<String, ModelHealth>>);

impl Models {
    fn find(&mut self, provider: &str, model: &str) -> Option<&mut ModelHealth> {
        self.0.get_mut(provider)?.get_mut(model)
    }

    /// Updates a model's entry. Allocates for a new model only.
    fn with(&mut self, provider: &str, model: &str, update: impl FnOnce(&mut ModelHealth)) {
        if let Some(health) = self.find(provider, model) {
            return update(health);
        }
        let models = self.0.entry(provider.to_owned()).or_default();
        update(models.entry(model.to_owned()).or_default());
    }
}

#[derive(Debug, Default)]
struct ModelHealth {
    /// Times of the last calls that the provider did not start.
    failures: VecDeque<Duration>,
    /// `Some` while the circuit is open: when the next call may probe the model.
    probe_at: Option<Duration>,
    /// A moving average, and when it was updated.
    first_token: Option<(Duration, Duration)>,
    /// When the last stream that may measure the model began.
    tried_at: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Circuit {
    pub provider: String,
    pub model: String,
    /// Time until the next probe; zero: the next call probes it.
    pub left: Duration,
}

impl Health {
    /// Records a call that the provider did not start.
    pub fn failed(&self, provider: &str, model: &str, now: Duration) {
        self.lock().with(provider, model, |health| {
            health.failures.push_back(now);
            while health.failures.len() > FAILURES {
                health.failures.pop_front();
            }
            let oldest = health.failures.front().copied().unwrap_or(now);
            let is_full = health.failures.len() == FAILURES && now.saturating_sub(oldest) <= WINDOW;
            if is_full || health.probe_at.is_some() {
                health.probe_at = Some(now + PAUSE);
            }
        });
    }

    /// Records that a provider has answered, which closes the circuit.
    pub fn answered(&self, provider: &str, model: &str) {
        let mut models = self.lock();
        if let Some(health) = models.find(provider, model) {
            health.failures.clear();
            health.probe_at = None;
        }
    }

    /// Returns how long to skip a model; `None` if a call is likely to be admitted.
    pub fn skipped_for(&self, provider: &str, model: &str, now: Duration) -> Option<Duration> {
        let probe_at = self.lock().find(provider, model)?.probe_at?;
        let left = probe_at.saturating_sub(now);
        (!left.is_zero()).then_some(left)
    }

    /// Returns how long to skip a model; `None` if the call must be made now. After that time, the
    /// first caller probes the model, and others skip it for another period.
    pub fn admit(&self, provider: &str, model: &str, now: Duration) -> Option<Duration> {
        let mut models = self.lock();
        let probe_at = models.find(provider, model)?.probe_at.as_mut()?;
        let left = probe_at.saturating_sub(now);
        if left.is_zero() {
            *probe_at = now + PAUSE;
            return None;
        }
        Some(left)
    }

    /// Records that a stream begins.
    pub fn trying(&self, provider: &str, model: &str, now: Duration) {
        let update = |health: &mut ModelHealth| health.tried_at = Some(now);
        self.lock().with(provider, model, update);
    }

    /// Records the time to the first token.
    pub fn measured(&self, provider: &str, model: &str, after: Duration, now: Duration) {
        self.lock().with(provider, model, |health| {
            let average = match health.first_token {
                Some((average, at)) if now.saturating_sub(at) < MEASURED => {
                    (average * 3 + after) / 4
                }
                _ => after,
            };
            health.first_token = Some((average, now));
        });
    }

    /// Returns the average time to the first token of the last minutes. If there is none, returns
    /// zero if the call `streams` and no other stream is measuring the model, so that it is tried;
    /// otherwise the maximum.
    pub fn expected_first_token(
        &self,
        provider: &str,
        model: &str,
        streams: bool,
        now: Duration,
    ) -> Duration {
        let mut models = self.lock();
        let health = models.find(provider, model);
        let is_recent = |at: Duration, most| now.saturating_sub(at) < most;
        let (measured, tried_at) =
            health.map_or((None, None), |health| (health.first_token, health.tried_at));
        match measured {
            Some((average, at)) if is_recent(at, MEASURED) => average,
            _ if streams && !tried_at.is_some_and(|at| is_recent(at, TRIAL)) => Duration::ZERO,
            _ => Duration::MAX,
        }
    }

    pub fn open(&self, now: Duration) -> Vec<Circuit> {
        let models = self.lock();
        let all = models.0.iter().flat_map(|(provider, models)| {
            let open = models
                .iter()
                .filter_map(|(model, health)| Some((model, health.probe_at?)));
            open.map(move |(model, probe_at)| Circuit {
                provider: provider.clone(),
                model: model.clone(),
                left: probe_at.saturating_sub(now),
            })
        });
        all.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Models> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn five_failures_in_thirty_seconds_open_a_circuit() {
        let health = Health::default();
        for second in [0, 10, 20, 29] {
            health.failed("a", "m", at(second));
        }
        assert_eq!(health.admit("a", "m", at(30)), None);
        health.failed("a", "m", at(31));
        // The first failure is outside the window.
        assert_eq!(health.admit("a", "m", at(31)), None);
        health.failed("a", "m", at(32));
        assert_eq!(health.admit("a", "m", at(42)), Some(at(20)));
        assert_eq!(health.admit("a", "other", at(42)), None);
        assert_eq!(health.open(at(42)).len(), 1);
    }

    #[test]
    fn one_call_probes_an_open_circuit() {
        let health = Health::default();
        for _ in 0..FAILURES {
            health.failed("a", "m", at(0));
        }
        assert_eq!(health.admit("a", "m", at(29)), Some(at(1)));
        assert_eq!(health.admit("a", "m", at(30)), None);
        assert_eq!(health.admit("a", "m", at(30)), Some(PAUSE));
        health.failed("a", "m", at(31));
        assert_eq!(health.admit("a", "m", at(32)), Some(at(29)));
        assert_eq!(health.admit("a", "m", at(61)), None);
        health.answered("a", "m");
        assert_eq!(health.admit("a", "m", at(61)), None);
        assert_eq!(health.open(at(61)), []);
    }

    #[test]
    fn times_to_the_first_token_are_averaged_and_forgotten() {
        let health = Health::default();
        let expected = |streams, now| health.expected_first_token("a", "m", streams, at(now));
        // An unmeasured model is tried first, by one stream at a time.
        assert_eq!(expected(false, 0), Duration::MAX);
        assert_eq!(expected(true, 0), Duration::ZERO);
        health.trying("a", "m", at(0));
        assert_eq!(expected(true, 1), Duration::MAX);
        assert_eq!(expected(true, 31), Duration::ZERO);
        health.measured("a", "m", at(4), at(0));
        health.measured("a", "m", at(8), at(1));
        assert_eq!(expected(false, 2), at(5));
        assert_eq!(expected(false, 700), Duration::MAX);
        assert_eq!(expected(true, 700), Duration::ZERO);
    }
}
