//! Logs, traces and panics.
//!
//! One subscriber writes to stderr, as text or JSON, and optionally exports traces ([`traces`]); a
//! panic hook logs panics. Metrics are in `observe`. Standard output is for the results of
//! commands.

mod lines;
mod traces;

use std::{
    io::{self, IsTerminal as _},
    panic::{self, PanicHookInfo},
};

use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{
    Subscriber,
    level_filters::LevelFilter,
    subscriber::{SetGlobalDefaultError, set_global_default},
};
use tracing_subscriber::{
    Layer as _, Registry,
    filter::{ParseError, Targets},
    fmt::MakeWriter,
    layer::SubscriberExt as _,
};

use lines::Lines;
pub use traces::TraceSettings;

use crate::observe::TRACES;

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error(
        "the log filter {filter:?} cannot be parsed ({source}): write one such as \"info,sqlx=warn\""
    )]
    Filter { filter: String, source: ParseError },
    #[error("the HTTP client of traces could not be made: {0}")]
    TraceClient(#[from] reqwest::Error),
    #[error("traces cannot be exported: {0}")]
    Exporter(#[from] ExporterBuildError),
    /// A subscriber is already installed.
    #[error("logging is set up already")]
    AlreadySet(#[from] SetGlobalDefaultError),
}

/// Keeps the exporter until the process ends.
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
}

/// Sets up logging for the process, once: to stderr, as JSON lines or as text, with colors only on
/// a terminal. Panics are logged from then on. `traces` needs a running tokio.
pub fn init(
    filter: &str,
    json: bool,
    traces: Option<&TraceSettings>,
) -> Result<Telemetry, TelemetryError> {
    let colours = io::stderr().is_terminal();
    let traces = traces.map(traces::provider).transpose()?;
    // Not with `try_init`, which also captures the `log` crate: when sqlx asks it whether a notice
    // of Postgres is logged, a layer's filter keeps the answer and drops the thread's next line.
    set_global_default(subscriber(
        filter,
        json,
        colours,
        io::stderr,
        traces.as_ref(),
    )?)?;
    panic::set_hook(Box::new(log_panic));
    Ok(Telemetry { traces })
}

impl Telemetry {
    /// Exports queued spans, within two seconds.
    pub async fn close(self) {
        if let Some(traces) = self.traces {
            traces::close(traces).await;
        }
    }
}

fn subscriber<W>(
    filter: &str,
    json: bool,
    colours: bool,
    writer: W,
    traces: Option<&SdkTracerProvider>,
) -> Result<Box<dyn Subscriber + Send + Sync>, TelemetryError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let parsed: Targets = filter.parse().map_err(|source| TelemetryError::Filter {
        filter: filter.to_owned(),
        source,
    })?;
    // Spans for traces are never logged: without an exporter they cost nothing.
    let for_logs = parsed.with_target(TRACES, LevelFilter::OFF);
    let lines = tracing_subscriber::fmt::layer().with_writer(Lines { writer, colours });
    let logs = if json {
        // The last span is the current one.
        lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .boxed()
    } else {
        lines.with_ansi(colours).boxed()
    };
    let registry = Registry::default();
    Ok(match traces {
        // A per-layer filter would cost a lookup whenever a span is entered or left.
        None => Box::new(registry.with(logs).with(for_logs)),
        Some(provider) => {
            let exported = traces::layer(provider);
            Box::new(registry.with(logs.with_filter(for_logs)).with(exported))
        }
    })
}

/// Logs location and message of a panic, without a backtrace.
fn log_panic(info: &PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("a value that is no text");
    let location = info
        .location()
        .map_or_else(|| "unknown".to_owned(), ToString::to_string);
    tracing::error!(location, message = format_args!("panicked: {message}"));
}

#[cfg(test)]
mod tests;
