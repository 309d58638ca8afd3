//! The phase of a message in the Responses API (`commentary` or `final_answer`), which the next turn
//! sends back.
//!
//! A phase is stored as an opaque marker part before the message's text, like the marker of a
//! choice. Only callers of the Responses API receive it.

use serde_json::{Value, json};

use super::{Delta, Part};

const KIND: &str = "gensvc.phase";

fn from_block(block: &Value) -> Option<&str> {
    block["phase"].as_str().filter(|_| block["type"] == KIND)
}

impl Delta {
    /// Creates the marker of a phase.
    pub fn from_phase(phase: &str) -> Self {
        Self::Opaque(json!({"type": KIND, "phase": phase}))
    }

    /// Returns the phase of the text after this part, if the part is a marker.
    pub fn phase(&self) -> Option<&str> {
        match self {
            Self::Opaque(block) => from_block(block),
            _ => None,
        }
    }

    /// Whether this only marks a choice or a phase, and is no content.
    pub fn is_marker(&self) -> bool {
        self.choice().is_some() || self.phase().is_some()
    }
}

impl Part {
    /// As [`Delta::phase`].
    pub fn phase(&self) -> Option<&str> {
        match self {
            Self::Opaque { block } => from_block(block),
            _ => None,
        }
    }

    /// As [`Delta::is_marker`].
    pub fn is_marker(&self) -> bool {
        self.choice().is_some() || self.phase().is_some()
    }
}
