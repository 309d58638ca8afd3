//! Writes each event as one line, against log injection: line breaks and terminal escape sequences
//! from users or upstreams could fake or hide events. The text formatter does not escape them, so
//! they are escaped here, except for its own colors.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, Write},
};

use tracing_subscriber::fmt::MakeWriter;

/// A writer that gets one event, or a factory of such writers.
pub(super) struct Lines<W> {
    pub(super) writer: W,
    pub(super) colours: bool,
}

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Lines<W> {
    type Writer = Lines<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Lines {
            writer: self.writer.make_writer(),
            colours: self.colours,
        }
    }
}

impl<W: Write> Write for Lines<W> {
    /// Writes a complete event.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = one_line(event, self.colours);
        self.writer.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Escapes all control characters except the final line break.
fn one_line(event: &[u8], colours: bool) -> Cow<'_, str> {
    let obeyed = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    let text = String::from_utf8_lossy(event);
    let (body, end) = match text.strip_suffix('\n') {
        Some(body) => (body, "\n"),
        None => (text.as_ref(), ""),
    };
    if !body.contains(obeyed) {
        return text;
    }
    let mut line = String::with_capacity(text.len() + 16);
    for (at, c) in body.char_indices() {
        if obeyed(c) && !(colours && is_colour(&body[at..])) {
            spell_out(&mut line, c);
        } else {
            line.push(c);
        }
    }
    line.push_str(end);
    Cow::Owned(line)
}

/// Escapes as in JSON, so that an event remains valid JSON.
fn spell_out(line: &mut String, c: char) {
    match c {
        '\n' => line.push_str("\\n"),
        '\r' => line.push_str("\\r"),
        '\t' => line.push_str("\\t"),
        // Control characters are below U+10000. Writing to a String cannot fail.
        c => drop(write!(line, "\\u{:04x}", u32::from(c))),
    }
}

/// Whether a text begins with an escape sequence that only sets colors.
fn is_colour(text: &str) -> bool {
    text.strip_prefix("\u{1b}[").is_some_and(|rest| {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        rest.starts_with('m')
    })
}
