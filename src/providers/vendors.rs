//! The vendors, one line each.

use super::{anthropic, elevenlabs, gemini, openai, runway, sandbox, setup::Adapters, stability};

/// All vendors, in the order in which errors list them.
pub const VENDORS: &[&Adapters] = &[
    &sandbox::ADAPTERS,
    &openai::ADAPTERS,
    &openai::COMPATIBLE,
    &anthropic::ADAPTERS,
    &gemini::ADAPTERS,
    &stability::ADAPTERS,
    &runway::ADAPTERS,
    &elevenlabs::ADAPTERS,
];
