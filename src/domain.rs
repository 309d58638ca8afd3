//! The words of the product: types whose construction is the proof, and pure functions.
//!
//! Here: credits, prices, keys, requests, records and the rules that need no input but their
//! arguments. Not here: the database, HTTP, the network, or reading the time (a
//! [`clock::Clock`] is passed in).

pub mod ability;
pub mod catalogue;
pub mod clock;
pub mod conversation;
pub mod credits;
pub mod generation;
pub mod ids;
pub mod json;
pub mod limiter;
pub(crate) mod named;
pub mod page;
pub mod pricing;
pub mod rate;
pub mod report;
pub mod request;
pub mod settings;
pub mod spend;
pub mod template;
pub mod token;
pub mod usage;
pub mod validate;
pub mod vendor;
pub mod webhook;
