//! The command line (contract section 8). Results go to stdout, logs to stderr.

mod args;
mod client;
mod commands;
mod output;
mod password;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser as _;
use tokio::runtime::Builder;

use crate::{app, config::LogFormat, telemetry};
use args::{Any, Arguments, Command, Serving};
use output::Output;

/// Why a command failed, for people.
type Failure = Box<dyn std::error::Error>;
/// The exit code of a command, or why it failed.
type Outcome = Result<ExitCode, Failure>;

/// Exit code for wrong arguments, the same as clap's.
const USAGE: u8 = 2;
/// Exit code after Ctrl-C, as in shells.
const INTERRUPTED: u8 = 130;
/// Maximum time to wait for abandoned blocking work.
const ABANDONED_WORK: Duration = Duration::from_millis(500);

/// Runs the program with this process's arguments and environment.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() && asks_for_json() => {
            Output { json: true }.usage_error(&error);
            return ExitCode::from(USAGE);
        }
        Err(error) => error.exit(),
    };
    let output = Output {
        json: arguments.json,
    };
    match run(arguments, output) {
        Ok(code) => code,
        Err(error) if error.is::<Interrupted>() => ExitCode::from(INTERRUPTED),
        Err(error) => {
            output.failed(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// The error after Ctrl-C.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
struct Interrupted;

fn is_interrupted(result: &Outcome) -> bool {
    matches!(result, Err(error) if error.is::<Interrupted>())
}

/// Whether invalid arguments ask for JSON.
fn asks_for_json() -> bool {
    std::env::args_os().any(|argument| argument.to_string_lossy().starts_with("--json"))
}

fn run(arguments: Arguments, output: Output) -> Outcome {
    // The only place that reads the environment.
    let env: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let command = arguments
        .command
        .unwrap_or(Any::Server(Command::Serve(Serving::default())));
    let command = match command {
        Any::Completions { shell } => return commands::manual::completions(shell, output),
        Any::Man { folder } => return commands::manual::pages(folder.as_deref(), output),
        // A client needs no configuration of a server.
        Any::Client(command) => return block_on(1, client::run(command, &env, output)),
        Any::Server(Command::Usage(asked)) if asked.own => {
            return block_on(1, client::usage(&asked, &env, output));
        }
        Any::Server(command) => command,
    };
    let serves = matches!(command, Command::Serve(_));
    let named = env.get("GENSVC_CONFIG").filter(|path| !path.is_empty());
    let file = arguments.config.or_else(|| named.map(PathBuf::from));
    let mut config = match app::config::load(file.as_deref(), &env) {
        Err(error) if serves && env.get("GENSVC_LOG_FORMAT").is_some_and(|f| f == "json") => {
            telemetry::init("error", true, None)?;
            return Ok(failed_in_json(&error));
        }
        config => config?,
    };
    if let Command::Serve(Serving { paused: true }) = command {
        config.jobs.paused = true;
    }
    // Start messages of a server should not hide a command's result.
    let quiet = !serves && !env.contains_key("GENSVC_LOG");
    let filter = if quiet { "warn" } else { &config.log.filter };
    let traces = &config.traces;
    let exported = traces.otlp_endpoint.clone().filter(|_| serves);
    let exported = exported.map(|endpoint| telemetry::TraceSettings {
        endpoint,
        service_name: traces.service_name.clone(),
        sample_ratio: traces.sample_ratio,
    });
    let json = config.log.format == LogFormat::Json;
    block_on(config.server.threads(), async {
        let telemetry = telemetry::init(filter, json, exported.as_ref())?;
        let result = commands::run(command, &config, output).await;
        telemetry.close().await;
        result
    })
}

fn block_on(threads: usize, work: impl Future<Output = Outcome>) -> Outcome {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(threads).enable_all().build()?;
    let result = runtime.block_on(work);
    let ended = Instant::now();
    // Dropping it would wait indefinitely for blocking work.
    runtime.shutdown_timeout(ABANDONED_WORK);
    // An abandoned read of the input may still block.
    if ended.elapsed() >= ABANDONED_WORK && !is_interrupted(&result) {
        tracing::warn!("blocking work did not end in time; the process ends without it");
    }
    result
}

/// Logs the failure of a server that logs JSON as JSON.
fn failed_in_json(error: &dyn std::error::Error) -> ExitCode {
    tracing::error!("{error}");
    ExitCode::FAILURE
}
