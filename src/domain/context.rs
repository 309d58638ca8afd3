//! Requests that do not fit the context of a model.

use std::fmt;

/// Tokens of a request and the maximum of the model, as far as both are known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContextOverflow {
    pub tokens: Option<u64>,
    pub maximum: Option<u64>,
}

impl ContextOverflow {
    /// Adds missing numbers: the catalogue's maximum, and an estimate of the tokens, which are
    /// above the maximum in any case.
    #[must_use]
    pub fn or(self, maximum: Option<u64>, estimate: u64) -> Self {
        let maximum = self.maximum.or(maximum);
        let at_least = maximum.map(|maximum| maximum.saturating_add(1));
        Self {
            tokens: self.tokens.or(at_least.map(|least| least.max(estimate))),
            maximum,
        }
    }
}

/// Formats Anthropic's sentence, after which agents shorten the conversation.
impl fmt::Display for ContextOverflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.tokens, self.maximum) {
            (Some(tokens), Some(maximum)) if tokens > maximum => {
                write!(f, "prompt is too long: {tokens} tokens > {maximum} maximum")
            }
            _ => f.write_str("prompt is too long for the context of the model"),
        }
    }
}
