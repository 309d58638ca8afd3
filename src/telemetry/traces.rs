//! Traces by OTLP over HTTP.
//!
//! Selects the exported spans. The exporter has a bounded queue and its own thread, so that no
//! request waits for a collector.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracerProvider},
};
use tokio::runtime::Handle;
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{Layer, filter::filter_fn, registry::LookupSpan};
use url::Url;

use super::TelemetryError;
use crate::observe::TRACES;

/// Path that is appended to the collector's URL.
const PATH: &str = "v1/traces";
/// Timeout of one export.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time of the last export before the stop.
const CLOSE: Duration = Duration::from_secs(2);
/// Log spans that connect the exported ones: a generation runs in its own task.
const JOINTS: [&str; 2] = ["generation", "job"];

#[derive(Debug, Clone)]
pub struct TraceSettings {
    pub endpoint: Url,
    pub service_name: String,
    /// The sampled fraction, 0 to 1.
    pub sample_ratio: f64,
}

/// Creates the exporter and its queue.
pub(super) fn provider(settings: &TraceSettings) -> Result<SdkTracerProvider, TelemetryError> {
    let http = reqwest::Client::builder()
        .timeout(TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .build()?;
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(address(&settings.endpoint))
        .with_http_client(Client {
            http,
            runtime: Handle::current(),
            failing: Arc::default(),
        })
        .build()?;
    let resource = Resource::builder()
        .with_service_name(settings.service_name.clone())
        .with_attribute(opentelemetry::KeyValue::new(
            "service.version",
            env!("CARGO_PKG_VERSION"),
        ))
        .build();
    let sampler = Sampler::TraceIdRatioBased(settings.sample_ratio);
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(Sampler::ParentBased(Box::new(sampler)))
        .with_resource(resource)
        .build())
}

fn address(endpoint: &Url) -> String {
    let base = endpoint.as_str().trim_end_matches('/');
    if base.ends_with(PATH) {
        base.to_owned()
    } else {
        format!("{base}/{PATH}")
    }
}

/// Passes spans with the target of traces to the exporter, but no log lines.
pub(super) fn layer<S>(provider: &SdkTracerProvider) -> impl Layer<S> + Send + Sync + 'static
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let wanted = filter_fn(|metadata| {
        let joint =
            || metadata.target().starts_with("gensvc::jobs") && JOINTS.contains(&metadata.name());
        metadata.is_span() && (metadata.target() == TRACES || joint())
    });
    tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("gensvc"))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_target(false)
        .with_filter(wanted.with_max_level_hint(LevelFilter::INFO))
}

/// Exports queued spans within [`CLOSE`].
pub(super) async fn close(provider: SdkTracerProvider) {
    let closing = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(CLOSE));
    match closing.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the last traces were not exported"),
        Err(error) => tracing::warn!(%error, "the last traces were not exported"),
    }
}

/// The exporter's HTTP client, for a thread without tokio.
#[derive(Debug)]
struct Client {
    http: reqwest::Client,
    runtime: Handle,
    failing: Arc<AtomicBool>,
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.runtime.spawn(send(self.http.clone(), request));
        let result = sent.await.unwrap_or_else(|error| Err(error.into()));
        self.tell(&result);
        result
    }
}

impl Client {
    /// Logs the first of consecutive failures, and the next success.
    fn tell(&self, result: &Result<Response<Bytes>, HttpError>) {
        let problem = match result {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("status {}", response.status())),
            Err(error) => Some(error.to_string()),
        };
        let failed_before = self.failing.swap(problem.is_some(), Ordering::AcqRel);
        match (problem, failed_before) {
            (Some(error), false) => tracing::warn!(error, "traces cannot be exported"),
            (None, true) => tracing::info!("traces are exported again"),
            _ => {}
        }
    }
}

async fn send(
    http: reqwest::Client,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, HttpError> {
    let request = reqwest::Request::try_from(request)?;
    let answer = http.execute(request).await?;
    let mut response = Response::builder().status(answer.status());
    for (name, value) in answer.headers() {
        response = response.header(name, value);
    }
    Ok(response.body(answer.bytes().await?)?)
}
