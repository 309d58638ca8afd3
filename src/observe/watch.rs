//! Timers of requests and provider calls. They count when dropped, so that none is missed.

use std::time::Instant;

use super::{Labels, Metrics};
use crate::domain::generation::Modality;

/// Outcome of work that was dropped: the caller hung up, a cancel, a stop.
const DROPPED: &str = "dropped";

impl Metrics {
    /// Starts the timer of a request. `route` is a template of the route table.
    pub fn request(&self, method: &'static str, route: &str) -> RequestWatch {
        self.0.series.in_flight.inc();
        RequestWatch {
            metrics: self.clone(),
            labels: [
                ("method", method.into()),
                ("route", route.to_owned().into()),
            ],
            since: Instant::now(),
            status: None,
        }
    }

    /// Starts the timer of a provider call.
    pub fn provider_call(
        &self,
        provider: &str,
        modality: Modality,
        operation: &'static str,
    ) -> ProviderWatch {
        ProviderWatch {
            metrics: self.clone(),
            labels: [
                ("provider", provider.to_owned().into()),
                ("modality", modality.as_str().into()),
                ("operation", operation.into()),
            ],
            since: Instant::now(),
            outcome: DROPPED,
        }
    }
}

/// A request in progress, counted on drop.
pub struct RequestWatch {
    metrics: Metrics,
    labels: Labels<2>,
    since: Instant,
    status: Option<u16>,
}

impl RequestWatch {
    pub fn answered(mut self, status: u16) {
        self.status = Some(status);
    }
}

impl Drop for RequestWatch {
    fn drop(&mut self) {
        let series = &self.metrics.0.series;
        series.in_flight.dec();
        let seconds = self.since.elapsed().as_secs_f64();
        let histogram = series.request_seconds.get_or_create(&self.labels);
        histogram.observe(seconds);
        let [method, route] = std::mem::take(&mut self.labels);
        let status = self.status.map(|status| status.to_string().into());
        let label = [method, route, ("status", status.unwrap_or(DROPPED.into()))];
        series.requests.get_or_create(&label).inc();
    }
}

/// A provider call in progress, counted on drop.
pub struct ProviderWatch {
    metrics: Metrics,
    labels: Labels<3>,
    since: Instant,
    outcome: &'static str,
}

impl ProviderWatch {
    /// `outcome` is `ok` or a kind of error.
    pub fn ended(mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for ProviderWatch {
    fn drop(&mut self) {
        let series = &self.metrics.0.series;
        let seconds = self.since.elapsed().as_secs_f64();
        let histogram = series.call_seconds.get_or_create(&self.labels);
        histogram.observe(seconds);
        let [provider, modality, operation] = std::mem::take(&mut self.labels);
        let outcome = ("outcome", self.outcome.into());
        let label = [provider, modality, operation, outcome];
        series.calls.get_or_create(&label).inc();
    }
}
