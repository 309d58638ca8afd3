//! `docs/security.md` names a test for every threat; and the security tests that belong to no
//! route.

mod browser;
mod document;
mod inside;
mod secrets;
mod sources;
mod strings;
