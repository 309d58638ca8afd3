//! /v1/generate

mod text;
mod text_money;
