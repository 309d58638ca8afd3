//! gensvc: one HTTP API for text, image, video and speech generation, through many upstream
//! providers, paid from an account's prepaid credits.
//!
//! # A map of the house
//!
//! Imports go one way, from the right to the left; siblings never import each other:
//!
//! `domain` ← `store`, `providers`, `media` ← `jobs` ← `service` ← `api` ← `app` ← `cli`, `main`
//!
//! | floor | what lives there |
//! |---|---|
//! | [`domain`] | types whose construction is the proof, and pure functions |
//! | [`store`] | all SQL |
//! | [`providers`] | one adapter a vendor: wire formats and nothing else |
//! | [`media`] | stored files |
//! | [`jobs`] | running generations, settling them, ending what was left behind |
//! | [`service`] | the rules, in domain words |
//! | [`api`] | HTTP: bodies, headers, status codes, the OpenAPI document |
//! | [`app`] | the composition root; start and stop |
//! | [`cli`] | the commands |
//!
//! [`observe`] is what the others count and trace into; it knows `domain` only.
//!
//! [`config`], [`telemetry`] and [`local_postgres`] are used by `app` and `cli` only: parts
//! receive values, not the configuration.

pub mod api;
pub mod app;
pub mod cli;
pub mod config;
pub mod domain;
pub mod jobs;
pub mod local_postgres;
pub mod media;
pub mod observe;
pub mod providers;
pub mod service;
pub mod store;
pub mod telemetry;
