//! /v1

pub mod admin;
mod api_keys;
mod auth;
mod credits;
pub mod generate;
mod media;
mod models;
mod rate_limit;
mod spend_caps;
mod usage;
mod webhooks;
