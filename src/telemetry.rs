//! Logs, traces and panics.
//!
//! Here: one subscriber that writes to stderr, as text or JSON, and exports traces where that
//! is wanted ([`traces`]), and a panic hook that logs. Not here: metrics (`observe`), and where
//! the filter comes from: values are passed in. Standard output belongs to the commands and
//! stays free of logs.

mod lines;
mod traces;

use std::{
    io::{self, IsTerminal as _},
    panic::{self, PanicHookInfo},
};

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
pub use traces::{TraceError, TraceSettings};

use crate::observe::TRACES;

/// Why logging cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter cannot be parsed.
    #[error(
        "the log filter {filter:?} cannot be parsed ({source}): write one such as \"info,sqlx=warn\""
    )]
    Filter {
        /// The filter as given.
        filter: String,
        /// What is wrong with it.
        source: ParseError,
    },
    /// Traces cannot be exported.
    #[error(transparent)]
    Traces(#[from] TraceError),
    /// Another subscriber was set up before.
    #[error("logging is set up already")]
    AlreadySet(#[from] SetGlobalDefaultError),
}

/// What is set up, until the end of the process.
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
}

/// Sets up logging for the whole process, once: to stderr, one JSON object a line if `json`,
/// else text, in colours only on a terminal. Panics are logged from then on. With `traces`,
/// traces are exported too; that needs a running tokio.
pub fn init(
    filter: &str,
    json: bool,
    traces: Option<&TraceSettings>,
) -> Result<Telemetry, TelemetryError> {
    let colours = io::stderr().is_terminal();
    let traces = traces.map(traces::provider).transpose()?;
    // Not by `try_init`, which takes in the `log` crate too: asking that whether something is
    // logged (sqlx does, at each notice of Postgres) leaves the answer behind in a filter of a
    // layer, and the next line of the thread, whatever it is, would be lost.
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
    /// Exports what waits, within a short time.
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
    // Spans for traces never appear in logs: without an exporter they cost nothing.
    let for_logs = parsed.with_target(TRACES, LevelFilter::OFF);
    let lines = tracing_subscriber::fmt::layer().with_writer(Lines { writer, colours });
    let logs = if json {
        // The list of spans ends with the current one.
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
        // A filter of one layer costs a lookup each time that a span is entered or left.
        None => Box::new(registry.with(logs).with(for_logs)),
        Some(provider) => {
            let exported = traces::layer(provider);
            Box::new(registry.with(logs.with_filter(for_logs)).with(exported))
        }
    })
}

/// One line with place and message. No backtrace: the place says where to look, and what
/// unwinds through a request is answered there.
fn log_panic(info: &PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("a value that is no text");
    let location = info
        .location()
        .map_or_else(|| "unknown".to_owned(), ToString::to_string);
    tracing::error!(location, message = format_args!("panicked: {message}"));
}

#[cfg(test)]
mod tests;
