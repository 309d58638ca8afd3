//! Results on stdout: for people, or as JSON for scripts.

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

/// Where results go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    /// Whether they are written for scripts.
    pub(super) json: bool,
}

impl Output {
    /// Prints what a server refused, on stderr: its message, or its whole body.
    pub(super) fn refused(self, message: &str, body: &serde_json::Value) {
        if self.json && body.is_object() {
            // There is nowhere to report an error if stderr is closed.
            let _ = writeln!(std::io::stderr(), "{body}");
        } else {
            self.failed(message);
        }
    }

    /// Prints a result: `people` or `script`. A reader that wants no more (`| head`) is no
    /// failure.
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

    /// Prints the rows of a list, or that it is `empty`.
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

    /// Tells people more about the result; on stderr, so that stdout holds the result alone.
    pub(super) fn note(self, text: &str) {
        if !self.json {
            // There is nowhere to report an error if stderr is closed.
            let mut err = std::io::stderr();
            let _ = writeln!(err, "{}", printable(text, err.is_terminal()));
        }
    }

    /// The first paragraph of what clap says; the rest shows the usage.
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
        // There is nowhere to report an error if stderr is closed.
        let mut err = std::io::stderr();
        let _ = writeln!(err, "{}", printable(&text, err.is_terminal()));
    }
}

/// What a model or a stranger has written must not steer a terminal; a file gets it as it is.
pub(super) fn printable(text: &str, is_terminal: bool) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    if is_terminal && text.contains(steers) {
        text.replace(steers, "\u{fffd}").into()
    } else {
        text.into()
    }
}

/// Columns of a table: each one's heading, and its cell in a row.
pub(super) type Columns<T> = [(&'static str, fn(&T) -> String)];

/// Rows under their headings, each column as wide as its widest cell.
pub(super) fn table<T>(columns: &Columns<T>, rows: &[T]) -> String {
    // What a customer has typed must not steer the operator's terminal.
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

/// One record, a line for each of its values.
pub(super) fn record(title: &'static str, values: &[(&str, String)]) -> String {
    let columns: &Columns<(&str, String)> = &[
        (title, |value| value.0.to_owned()),
        ("", |value| value.1.clone()),
    ];
    table(columns, values)
}

/// An amount of credits for people.
pub(super) fn credits(amount: &str) -> String {
    let unit = if amount == "1" { "credit" } else { "credits" };
    format!("{amount} {unit}")
}

/// A time for people, to the second.
pub(super) fn time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// A value that may not be there.
pub(super) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A time that may not be there.
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
