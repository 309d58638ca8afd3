//! The domain model: types that are valid by construction, and pure functions.
//!
//! Credits, prices, keys, conversations, records and the rules that depend only on their arguments.
//! No database, HTTP, network or system time (a [`clock::Clock`] is passed in).

pub mod ability;
pub mod clock;
pub mod context;
pub mod conversation;
pub mod credits;
pub mod form_token;
pub mod generation;
pub mod ids;
pub mod image_header;
pub mod inputs;
pub mod json;
pub mod likeness;
pub mod limiter;
pub mod lock;
pub(crate) mod named;
pub mod page;
pub mod party;
pub mod pricing;
pub mod rate;
pub mod receipt;
pub mod report;
pub mod route;
pub mod settings;
pub mod share;
pub mod spend;
pub mod template;
pub mod token;
pub mod usage;
pub mod validate;
pub mod webhook;
