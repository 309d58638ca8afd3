//! /v1

mod account;
pub mod admin;
mod api_keys;
mod auth;
mod credits;
mod dated_prices;
mod estimate;
pub mod generate;
mod inputs;
pub mod media;
mod model_stats;
mod models;
mod paused;
mod presumed;
mod rate_limit;
pub mod reload;
pub mod retired;
mod spend_caps;
mod templates;
pub mod uploads;
mod usage;
mod webhooks;
