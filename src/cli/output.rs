//! Results on stdout: for people, or as JSON for scripts.

use std::{error::Error, io::Write as _};

use serde::Serialize;
use serde_json::json;

/// Where results go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    json: bool,
}

impl Output {
    pub(super) const fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints a result: `people` or `script`.
    pub(super) fn result(self, people: &str, script: &impl Serialize) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", json!(script))?;
        } else {
            writeln!(out, "{people}")?;
        }
        out.flush()
    }

    /// Prints why a command failed, on stderr.
    pub(super) fn failure(self, error: &dyn Error) {
        let text = if self.json {
            json!({"error": {"message": error.to_string()}}).to_string()
        } else {
            format!("gensvc: {error}")
        };
        // Nobody is left to tell when stderr is closed.
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}
