//! Prints results on stdout, for people or as JSON for scripts.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{ErrorKind, IsTerminal as _, Write as _},
    process::ExitCode,
};

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::json;

use super::Outcome;

/// Where and how to print.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    /// Whether to print JSON for scripts.
    pub(super) json: bool,
}

impl Output {
    /// Prints an error of a server on stderr: its message, or its whole body.
    pub(super) fn refused(self, message: &str, body: &serde_json::Value) {
        if self.json && body.is_object() {
            // If stderr is closed, an error cannot be reported.
            let _ = writeln!(std::io::stderr(), "{body}");
        } else {
            self.failed(message);
        }
    }

    /// Prints a result: `people` or `script`. A reader that has ended (`| head`) is not an error.
    pub(super) fn result(self, people: &str, script: &impl Serialize) -> Outcome {
        let mut out = std::io::stdout().lock();
        let written = if self.json {
            writeln!(out, "{}", json!(script))
        } else {
            writeln!(out, "{}", printable(people, out.is_terminal()))
        };
        match written.and_then(|()| out.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(ExitCode::SUCCESS),
        }
    }

    /// Prints the rows of a list, or `empty` if there are none.
    pub(super) fn list<T: Serialize>(
        self,
        columns: &Columns<T>,
        rows: &[T],
        empty: &str,
    ) -> Outcome {
        let people = match rows {
            [] => empty.to_owned(),
            rows => table(columns, rows),
        };
        self.result(&people, &json!({"data": rows}))
    }

    /// Prints a note for people on stderr, so that stdout has only the result.
    pub(super) fn note(self, text: &str) {
        if !self.json {
            // If stderr is closed, an error cannot be reported.
            let mut err = std::io::stderr();
            let _ = writeln!(err, "{}", printable(text, err.is_terminal()));
        }
    }

    /// Prints the first paragraph of clap's message, without the usage.
    pub(super) fn usage_error(self, error: &clap::Error) {
        let text = error.to_string();
        let first = text.split("\n\n").next().unwrap_or_default();
        self.failed(first.strip_prefix("error: ").unwrap_or(first));
    }

    /// Prints why a command failed, on stderr.
    pub(super) fn failed(self, message: &str) {
        let text = if self.json {
            json!({"error": {"message": message}}).to_string()
        } else {
            format!("gensvc: {message}")
        };
        // If stderr is closed, an error cannot be reported.
        let mut err = std::io::stderr();
        let _ = writeln!(err, "{}", printable(&text, err.is_terminal()));
    }
}

/// Replaces control characters if the output is a terminal: text of models and other users must not
/// control it. Files get the text unchanged.
pub(super) fn printable(text: &str, is_terminal: bool) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    if is_terminal && text.contains(steers) {
        text.replace(steers, "\u{fffd}").into()
    } else {
        text.into()
    }
}

/// Columns of a table: heading, and the function that formats a row's cell.
pub(super) type Columns<T> = [(&'static str, fn(&T) -> String)];

/// Formats rows under their headings, each column as wide as its widest cell.
pub(super) fn table<T>(columns: &Columns<T>, rows: &[T]) -> String {
    // Text of customers must not control the operator's terminal.
    let plain = |text: String| text.replace(char::is_control, "\u{fffd}");
    let mut lines = vec![String::new(); rows.len() + 1];
    for (heading, cell) in columns {
        let cells = rows.iter().map(|row| plain(cell(row)));
        let cells: Vec<_> = std::iter::once((*heading).to_owned())
            .chain(cells)
            .collect();
        let width = cells.iter().map(|cell| cell.chars().count()).max();
        let width = width.unwrap_or(0);
        for (line, cell) in lines.iter_mut().zip(cells) {
            let _ = write!(line, "{cell:<width$}  ");
        }
    }
    let lines: Vec<_> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join("\n")
}

/// Formats a record with one line per value.
pub(super) fn record(title: &'static str, values: &[(&str, String)]) -> String {
    let columns: &Columns<(&str, String)> = &[
        (title, |value| value.0.to_owned()),
        ("", |value| value.1.clone()),
    ];
    table(columns, values)
}

/// Formats an amount of credits for people.
pub(super) fn credits(amount: &str) -> String {
    let unit = if amount == "1" { "credit" } else { "credits" };
    format!("{amount} {unit}")
}

/// Formats a time for people, to the second.
pub(super) fn time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Formats an optional value.
pub(super) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Formats an optional time.
pub(super) fn maybe_time(at: Option<DateTime<Utc>>) -> String {
    or_dash(at.map(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_steer_a_terminal() {
        assert_eq!(printable("a\u{1b}[2J\tb\n", true), "a\u{fffd}[2J\tb\n");
        assert_eq!(printable("a\u{1b}[2J", false), "a\u{1b}[2J");
    }

    #[test]
    fn columns_are_aligned_and_control_characters_harmless() {
        let columns: &Columns<(i64, &str)> = &[
            ("ID", |row| row.0.to_string()),
            ("NAME", |row| row.1.to_owned()),
        ];
        assert_eq!(
            table(columns, &[(1, "Zoë"), (1234, "\u{1b}[2Jx")]),
            "ID    NAME\n1     Zoë\n1234  \u{fffd}[2Jx"
        );
        assert_eq!(table(&columns[..1], &[]), "ID");
    }
}
