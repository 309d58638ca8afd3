//! SIGTERM and SIGINT, which end a run.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

/// Runs to the end or until a signal, which drops the run with all that it started.
pub async fn run(run: impl Future<Output = ExitCode>) -> ExitCode {
    let mut terminated = signal(SignalKind::terminate()).unwrap();
    let mut interrupted = signal(SignalKind::interrupt()).unwrap();
    tokio::select! {
        code = run => code,
        _ = terminated.recv() => ExitCode::from(143),
        _ = interrupted.recv() => ExitCode::from(130),
    }
}
