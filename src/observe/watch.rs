//! Timers of requests and provider calls. They count when dropped, so that none is missed.

use std::time::Instant;

use super::{Metrics, labels};
use crate::domain::generation::Modality;

/// Outcome of work that was dropped: the caller hung up, a cancel, a stop.
const DROPPED: &str = "dropped";

impl Metrics {
    /// Starts the timer of a request. `route` is a template of the route table.
    pub fn request(&self, method: &'static str, route: &str) -> RequestWatch {
        self.0.series.in_flight.inc();
        RequestWatch {
            metrics: self.clone(),
            labels: labels::Route {
                method,
                route: route.to_owned(),
            },
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
            labels: labels::Call {
                provider: provider.to_owned(),
                modality: modality.as_str(),
                operation,
            },
            since: Instant::now(),
            outcome: DROPPED,
        }
    }
}

/// A request in progress, counted on drop.
pub struct RequestWatch {
    metrics: Metrics,
    labels: labels::Route,
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
        let status = self.status.map(|status| status.to_string());
        let label = labels::Request {
            method: self.labels.method,
            route: std::mem::take(&mut self.labels.route),
            status: status.unwrap_or_else(|| DROPPED.to_owned()),
        };
        series.requests.get_or_create(&label).inc();
    }
}

/// A provider call in progress, counted on drop.
pub struct ProviderWatch {
    metrics: Metrics,
    labels: labels::Call,
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
        let label = labels::CallEnd {
            provider: std::mem::take(&mut self.labels.provider),
            modality: self.labels.modality,
            operation: self.labels.operation,
            outcome: self.outcome,
        };
        series.calls.get_or_create(&label).inc();
    }
}
