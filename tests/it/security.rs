//! `docs/security.md`: that it names a test for every threat, and the tests that belong to no
//! route.

mod browser;
mod document;
mod inside;
mod secrets;
mod sources;
mod strings;
