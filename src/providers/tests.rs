//! Helpers for the tests of all adapters.

pub mod fake;
