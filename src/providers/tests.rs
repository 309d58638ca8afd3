//! What the tests of all adapters share.

pub mod fake;
