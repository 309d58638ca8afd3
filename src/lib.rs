//! gensvc: one HTTP API for text, image, video and speech generation, through many upstream
//! providers, paid from an account's prepaid credits.
//!
//! # Module map
//!
//! Imports go one way, from right to left; modules on the same level never import each other:
//!
//! `domain` ← `request` ← `dialect` ← `catalogue` ← `store`, `media` ← `providers` ← `jobs` ←
//! `service` ← `api` ← `console` ← `app` ← `cli`, `main`
//!
//! | module | contents |
//! |---|---|
//! | [`domain`] | credits, prices, tokens, templates, conversations, and pure functions |
//! | [`request`] | requests of callers, each parsed, bounded and documented by one function |
//! | [`dialect`] | wire formats of SDKs: bodies of requests, and answers |
//! | [`catalogue`] | the models that this server offers, with their prices and limits |
//! | [`store`] | all SQL |
//! | [`providers`] | one adapter per vendor: wire formats and model settings |
//! | [`media`] | file storage, downloads and format checks |
//! | [`jobs`] | running and settling generations, recovering abandoned ones |
//! | [`service`] | business rules, independent of HTTP |
//! | [`api`] | HTTP: bodies, headers, status codes, the OpenAPI document |
//! | [`console`] | pages for people, as a client of the API |
//! | [`app`] | composition root: startup and shutdown |
//! | [`cli`] | command line |
//!
//! [`observe`] is used by the other modules for metrics and traces, and uses only `domain`.
//! [`offload`] runs work that occupies a core for long.
//!
//! [`config`], [`telemetry`] and [`local_postgres`] are only imported by `app` and `cli`: all other
//! modules get values, not the configuration.

pub mod api;
pub mod app;
pub mod catalogue;
pub mod cli;
pub mod config;
pub mod console;
pub mod dialect;
pub mod domain;
pub mod jobs;
pub mod local_postgres;
pub mod media;
pub mod memory;
pub mod observe;
pub mod offload;
pub mod providers;
pub mod request;
pub mod resource;
pub mod service;
pub mod store;
pub mod telemetry;
