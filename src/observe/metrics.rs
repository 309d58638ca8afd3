//! Counters, histograms and timers of one server, and their text format.
//!
//! Timers count on drop, so that none is missed.

use std::{
    fmt::{self, Write as _},
    hash::Hash,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use prometheus_client::{
    encoding::text,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Metric, Registry},
};

use super::{
    Labels,
    live::{self, AuditNumbers, Gauges},
};
use crate::domain::{
    credits::Credits,
    generation::{FailureCode, Modality, Status},
    lock::lock,
    route::MoveReason,
};

/// Upper bounds of the histograms' buckets, in seconds.
const BUCKETS: [f64; 15] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0,
];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// Records the metrics of one server. Cheap to clone; counting is an atomic addition.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    series: Series,
    /// The last self-audit; none before the first.
    audit: Mutex<Option<AuditNumbers>>,
}

struct Series {
    requests: Family<Labels<3>, Counter>,
    request_seconds: Histograms<Labels<2>>,
    in_flight: Gauge,
    calls: Family<Labels<4>, Counter>,
    call_seconds: Histograms<Labels<3>>,
    first_token_seconds: Histograms<Labels<1>>,
    finished: Family<Labels<5>, Counter>,
    charged: Family<Labels<3>, Counter>,
    released: Family<Labels<3>, Counter>,
    overruns: Family<Labels<2>, Counter>,
    overrun_credits: Family<Labels<2>, Counter>,
    moves: Family<Labels<3>, Counter>,
    open_circuits: Family<Labels<2>, Gauge>,
    settle_retries: Counter,
    audit_failures: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        let mut registry = Registry::with_prefix("gensvc");
        registry.register("build", "The program", build);
        let series = Series::registered(&mut Adder(&mut registry));
        Self(Arc::new(Inner {
            registry,
            series,
            audit: Mutex::default(),
        }))
    }
}

impl Series {
    /// Registers the metrics. Names are public: dashboards and alerts use them.
    fn registered(new: &mut Adder<'_>) -> Self {
        Self {
            requests: new.series("http_requests", "Requests by route template and status"),
            request_seconds: new.seconds(
                "http_request_duration_seconds",
                "Until the head of the answer; a stream continues after it",
            ),
            in_flight: new.series("http_requests_in_flight", "Requests without an answer yet"),
            calls: new.series("provider_calls", "Calls to providers by outcome"),
            call_seconds: new.seconds("provider_call_duration_seconds", "Calls to providers"),
            first_token_seconds: new.seconds(
                "provider_first_token_seconds",
                "Until the first piece of a streamed text",
            ),
            finished: new.series("generations_finished", "Generations that ended"),
            charged: new.series("credits_charged_microcredits", "Charged by settlements"),
            released: new.series(
                "credits_released_microcredits",
                "Held and given back by settlements",
            ),
            overruns: new.series(
                "provider_overruns",
                "Answers that cost more than was held; the operator bears the rest",
            ),
            overrun_credits: new.series("provider_overrun_microcredits", "What the operator bore"),
            moves: new.series(
                "generation_moves",
                "Generations that moved on from a candidate whose provider had not started",
            ),
            open_circuits: new.series(
                "open_circuits",
                "1 for a model that is skipped where a request has other candidates",
            ),
            settle_retries: new.series("settle_retries", "Settlements that were tried again"),
            audit_failures: new.series("audit_failures", "Self-audits that could not be done"),
        }
    }
}

struct Adder<'a>(&'a mut Registry);

impl Adder<'_> {
    fn series<M: Metric + Default + Clone>(&mut self, name: &str, help: &str) -> M {
        self.add(name, help, M::default())
    }

    fn seconds<L>(&mut self, name: &str, help: &str) -> Histograms<L>
    where
        Histograms<L>: Metric + Clone,
        L: Clone + Eq + Hash,
    {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        self.add(name, help, Family::new_with_constructor(histogram))
    }

    fn add<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }
}

impl Metrics {
    /// Returns the text format 0.0.4 of Prometheus, with the same content as
    /// [`Self::open_metrics`].
    pub fn text(&self, gauges: Gauges<'_>) -> Result<String, fmt::Error> {
        classic(&self.open_metrics(gauges)?)
    }

    /// Returns `OpenMetrics` text, with the gauges of the database if it responded.
    pub fn open_metrics(&self, gauges: Gauges<'_>) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode_registry(&mut out, &self.0.registry)?;
        let audit = self.last_audit();
        text::encode_registry(&mut out, &live::registry(gauges, audit.as_ref()))?;
        text::encode_eof(&mut out)?;
        Ok(out)
    }

    /// Records the time to the first piece of a streamed text.
    pub fn first_token(&self, provider: &str, after: Duration) {
        let label = [("provider", provider.to_owned().into())];
        let series = &self.0.series.first_token_seconds;
        series.get_or_create(&label).observe(after.as_secs_f64());
    }

    /// Counts a settlement of this process. `outcome`: the charge, or the reason of the failure.
    pub fn settled(
        &self,
        modality: Modality,
        provider: &str,
        model: &str,
        held: Credits,
        outcome: Result<Credits, FailureCode>,
    ) {
        let series = &self.0.series;
        let [provider, model] = of_model(provider, model);
        let label = [("type", modality.as_str().into()), provider, model];
        let (status, code, charged) = match outcome {
            Ok(charged) => (Status::Completed, "", charged),
            Err(code) => (Status::Failed, code.as_str(), Credits::ZERO),
        };
        let micros = |credits: Credits| u64::try_from(credits.micros()).unwrap_or(0);
        let released = micros(held.minus_or_zero(charged));
        series.charged.get_or_create(&label).inc_by(micros(charged));
        series.released.get_or_create(&label).inc_by(released);
        let [modality, provider, model] = label;
        let (status, code) = (status.as_str().into(), code.into());
        let end = [
            modality,
            provider,
            model,
            ("status", status),
            ("code", code),
        ];
        series.finished.get_or_create(&end).inc();
    }

    /// Counts a cost above the hold. The operator pays `excess`.
    pub fn overrun(&self, provider: &str, model: &str, excess: Credits) {
        let label = of_model(provider, model);
        let series = &self.0.series;
        series.overruns.get_or_create(&label).inc();
        let micros = u64::try_from(excess.micros()).unwrap_or(0);
        series.overrun_credits.get_or_create(&label).inc_by(micros);
    }

    /// Counts a fallback from a candidate.
    pub fn moved(&self, provider: &str, model: &str, reason: MoveReason) {
        let [provider, model] = of_model(provider, model);
        let label = [provider, model, ("reason", reason.as_str().into())];
        self.0.series.moves.get_or_create(&label).inc();
    }

    /// Sets the models that are currently skipped.
    pub fn open_circuits<'a>(&self, open: impl Iterator<Item = (&'a str, &'a str)>) {
        let series = &self.0.series.open_circuits;
        series.clear();
        for (provider, model) in open {
            series.get_or_create(&of_model(provider, model)).set(1);
        }
    }

    /// Counts a settlement that failed and will be retried.
    pub fn settle_retried(&self) {
        self.0.series.settle_retries.inc();
    }

    pub fn audited(&self, found: AuditNumbers) {
        *lock(&self.0.audit) = Some(found);
    }

    /// Returns the last self-audit; `None` before the first.
    pub fn last_audit(&self) -> Option<AuditNumbers> {
        lock(&self.0.audit).clone()
    }

    pub fn audit_failed(&self) {
        self.0.series.audit_failures.inc();
    }
}

fn of_model(provider: &str, model: &str) -> Labels<2> {
    [
        ("provider", provider.to_owned().into()),
        ("model", model.to_owned().into()),
    ]
}

/// Converts `OpenMetrics` to text format 0.0.4 of Prometheus, in which a family has the name of its
/// samples, an info is a gauge, and there are no units and no end marker.
fn classic(open: &str) -> Result<String, fmt::Error> {
    let mut out = String::with_capacity(open.len());
    let mut help = "";
    for line in open.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next()) {
            // It precedes the type, which determines the name.
            (Some("#"), Some("HELP")) => help = words.nth(1).unwrap_or_default(),
            (Some("#"), Some("TYPE")) => {
                let name = words.next().unwrap_or_default();
                let (suffix, kind) = match words.next().unwrap_or_default() {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    kind => ("", kind),
                };
                writeln!(out, "# HELP {name}{suffix} {help}")?;
                writeln!(out, "# TYPE {name}{suffix} {kind}")?;
            }
            (Some("#"), _) => {}
            _ => writeln!(out, "{line}")?,
        }
    }
    Ok(out)
}

/// Outcome of dropped work: the client disconnected, a cancel, a stop.
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
