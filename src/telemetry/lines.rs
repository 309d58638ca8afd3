//! One event, one line: what others wrote cannot begin a line of its own, nor speak to the
//! terminal that shows it.
//!
//! As text the formatter leaves line breaks as they are, and escape sequences in fields too: a
//! name or an upstream's word with one in it would look like another event, or hide one. Here
//! all of them are spelt out, save the colours that the formatter itself makes.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, Write},
};

use tracing_subscriber::fmt::MakeWriter;

/// Makes writers that take one event at a time, as the formatter hands it over.
pub(super) struct Lines<W> {
    pub(super) writer: W,
    /// Whether the formatter colours.
    pub(super) colours: bool,
}

/// Writes an event as one line.
pub(super) struct Line<W> {
    writer: W,
    colours: bool,
}

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Lines<W> {
    type Writer = Line<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Line {
            writer: self.writer.make_writer(),
            colours: self.colours,
        }
    }
}

impl<W: Write> Write for Line<W> {
    /// Takes a whole event.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = one_line(event, self.colours);
        self.writer.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// The event with everything spelt out that a viewer may obey, but for the line break at its
/// end.
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

/// As JSON spells it, so that an event stays JSON.
fn spell_out(line: &mut String, c: char) {
    match c {
        '\n' => line.push_str("\\n"),
        '\r' => line.push_str("\\r"),
        '\t' => line.push_str("\\t"),
        // All of them are below U+10000. Writing to a String cannot fail.
        c => drop(write!(line, "\\u{:04x}", u32::from(c))),
    }
}

/// Whether a text begins with a sequence that changes colours and nothing else.
fn is_colour(text: &str) -> bool {
    text.strip_prefix("\u{1b}[").is_some_and(|rest| {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        rest.starts_with('m')
    })
}
