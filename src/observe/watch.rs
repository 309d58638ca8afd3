//! What is timed from its beginning to its end, whichever way it ends.

use std::time::Instant;

use super::{Metrics, labels};
use crate::domain::generation::Modality;

/// The outcome of what was dropped before its end: a caller who hung up, a cancel, a stop.
const DROPPED: &str = "dropped";

impl Metrics {
    /// A request has come. `route` is a template of the route table.
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

    /// A provider is called.
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

/// A request on its way. Counted when it is dropped.
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

/// A provider's call on its way. Counted when it is dropped.
pub struct ProviderWatch {
    metrics: Metrics,
    labels: labels::Call,
    since: Instant,
    outcome: &'static str,
}

impl ProviderWatch {
    /// It ended, well (`ok`) or with a kind of error.
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
