//! /v1/generate

mod audio;
mod history;
mod image;
mod lookup;
mod replay;
mod stop;
mod text;
mod text_money;
pub mod video;
