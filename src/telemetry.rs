//! Logs and panics.
//!
//! Here: one subscriber that writes to stderr, as text or JSON, and a panic hook that logs.
//! Not here: metrics (they come later), and where the filter comes from: values are passed
//! in. Standard output belongs to the commands and stays free of logs.

use std::{
    io::{self, IsTerminal as _},
    panic::{self, PanicHookInfo},
};

use tracing::Subscriber;
use tracing_subscriber::{
    EnvFilter,
    filter::ParseError,
    fmt::MakeWriter,
    util::{SubscriberInitExt as _, TryInitError},
};

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
    /// Another subscriber was set up before.
    #[error("logging is set up already")]
    AlreadySet(#[from] TryInitError),
}

/// Sets up logging for the whole process, once: to stderr, one JSON object a line if `json`,
/// else text, in colours only on a terminal. Panics are logged from then on.
pub fn init(filter: &str, json: bool) -> Result<(), TelemetryError> {
    let colours = io::stderr().is_terminal();
    subscriber(filter, json, colours, io::stderr)?.try_init()?;
    panic::set_hook(Box::new(log_panic));
    Ok(())
}

fn subscriber<W>(
    filter: &str,
    json: bool,
    colours: bool,
    writer: W,
) -> Result<Box<dyn Subscriber + Send + Sync>, TelemetryError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let parsed = EnvFilter::builder()
        .parse(filter)
        .map_err(|source| TelemetryError::Filter {
            filter: filter.to_owned(),
            source,
        })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_writer(writer);
    Ok(if json {
        Box::new(builder.json().flatten_event(true).finish())
    } else {
        Box::new(builder.with_ansi(colours).finish())
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
