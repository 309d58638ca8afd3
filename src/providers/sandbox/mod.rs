//! The built-in provider: needs no key, costs nothing upstream, and fails on demand.
//!
//! Here: what makes a server without a single key usable, and a client's error handling
//! testable. Not here: randomness; the same call gets the same answer.

pub mod fault;
pub mod text;

pub use fault::Faults;
pub use text::SandboxText;
