//! The phase of a message in the Responses API (`commentary` or `final_answer`), which the next turn
//! sends back.
//!
//! A marker before the message's text, an opaque part like that of a choice. Only callers of the
//! Responses API get one.

use serde_json::{Value, json};

use super::{Delta, Part};

const KIND: &str = "gensvc.phase";

fn from_block(block: &Value) -> Option<&str> {
    block["phase"].as_str().filter(|_| block["type"] == KIND)
}

impl Delta {
    /// The marker of a phase.
    pub fn from_phase(phase: &str) -> Self {
        Self::Opaque(json!({"type": KIND, "phase": phase}))
    }

    /// The phase of the text that follows, if this is a marker.
    pub fn phase(&self) -> Option<&str> {
        match self {
            Self::Opaque(block) => from_block(block),
            _ => None,
        }
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
}
