//! Ends a text at a stop sequence that a vendor does not accept.
//!
//! The model continues after the sequence, and that output is billed.

/// Finds the first stop sequence in a text that arrives in pieces.
#[derive(Debug, Default)]
pub struct StopFilter<'a> {
    sequences: Vec<&'a str>,
    /// The end of the text, which may begin a sequence.
    held: String,
    found: Option<&'a str>,
}

impl<'a> StopFilter<'a> {
    pub fn new(sequences: impl IntoIterator<Item = &'a String>) -> Self {
        Self {
            sequences: sequences.into_iter().map(String::as_str).collect(),
            held: String::new(),
            found: None,
        }
    }

    /// Returns the sequence that ended the text.
    pub const fn found(&self) -> Option<&'a str> {
        self.found
    }

    /// Adds a piece. Returns the text that cannot be part of a sequence; none after a found one.
    pub fn push(&mut self, piece: &str) -> String {
        if self.found.is_some() {
            return String::new();
        }
        self.held.push_str(piece);
        let ends = self
            .sequences
            .iter()
            .filter(|sequence| !sequence.is_empty());
        let ends = ends.filter_map(|sequence| {
            let at = self.held.find(*sequence)?;
            Some((at + sequence.len(), at, *sequence))
        });
        if let Some((_, at, sequence)) = ends.min() {
            self.found = Some(sequence);
            self.held.truncate(at);
            return self.flush();
        }
        let begun = self.begun();
        let rest = self.held.split_off(self.held.len() - begun);
        std::mem::replace(&mut self.held, rest)
    }

    /// Returns the text that was held back.
    pub fn flush(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Returns the number of bytes at the end of the text that may begin a sequence.
    fn begun(&self) -> usize {
        let text = &self.held;
        let begun = self.sequences.iter().filter_map(|sequence| {
            let ends = sequence.char_indices().map(|(at, _)| at);
            ends.filter(|end| text.ends_with(&sequence[..*end])).max()
        });
        begun.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filtered(sequences: &[&str], pieces: &[&str]) -> (String, Option<String>) {
        let sequences: Vec<String> = sequences.iter().map(|s| (*s).to_owned()).collect();
        let mut filter = StopFilter::new(&sequences);
        let mut text: String = pieces.iter().map(|piece| filter.push(piece)).collect();
        text += &filter.flush();
        (text, filter.found().map(str::to_owned))
    }

    #[test]
    fn the_text_ends_before_the_first_sequence() {
        let all: &[(&[&str], &str, &str, Option<&str>)] = &[
            (&[], "abc", "abc", None),
            (&["END"], "one END two", "one ", Some("END")),
            (&["END"], "one EN", "one EN", None),
            (&["aab"], "aaab", "a", Some("aab")),
            (&["x", "bcd"], "abcdx", "a", Some("bcd")),
            (&["abcd", "bc"], "abcd", "a", Some("bc")),
            (&["é✓"], "aé✓b", "a", Some("é✓")),
            (&["\n\n"], "a\nb\n\nc", "a\nb", Some("\n\n")),
            (&["a"], "a", "", Some("a")),
        ];
        for (sequences, text, expected, found) in all {
            let expected = ((*expected).to_owned(), found.map(str::to_owned));
            assert_eq!(filtered(sequences, &[text]), expected, "{text}");
            let chars: Vec<String> = text.chars().map(String::from).collect();
            let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
            assert_eq!(
                filtered(sequences, &chars),
                expected,
                "{text} by characters"
            );
        }
    }

    #[test]
    fn only_a_beginning_of_a_sequence_is_held_back() {
        let sequences = vec!["END".to_owned()];
        let mut filter = StopFilter::new(&sequences);
        assert_eq!(filter.push("Hi E"), "Hi ");
        assert_eq!(filter.push("x"), "Ex");
        assert_eq!(filter.push(" EN"), " ");
        assert_eq!(filter.push("D more"), "");
        assert_eq!(
            (filter.push("more"), filter.flush()),
            (String::new(), String::new())
        );
    }
}
