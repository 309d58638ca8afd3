//! /v1

mod api_keys;
mod auth;
mod credits;
mod generate;
mod models;
mod rate_limit;
