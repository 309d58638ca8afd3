//! The integration tests: one binary that mirrors the URLs. Each test has its own database, the
//! real router, the real adapters against a fake upstream, and a manual clock.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]

mod architecture;
#[path = "../support/children.rs"]
mod children;
#[path = "../support/cluster.rs"]
mod cluster;
mod common;
mod config;
mod console;
mod database;
mod documents;
mod envelope;
mod fuzz;
mod health;
#[path = "../support/hostile.rs"]
mod hostile;
mod jobs;
mod ledger;
mod load;
mod metrics;
mod openapi;
mod openapi_walk;
mod peers;
#[path = "../support/picture.rs"]
mod picture;
mod process;
mod routes;
mod s3;
#[path = "../support/sandbox.rs"]
mod sandbox;
mod security;
#[path = "../support/signal.rs"]
mod signal;
mod surfaces;
#[path = "../support/texts.rs"]
mod texts;
mod v1;
