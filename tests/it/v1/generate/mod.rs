//! /v1/generate

mod history;
mod lookup;
mod text;
mod text_money;
