//! /v1/generate

mod audio;
mod cancel;
mod history;
mod image;
mod lookup;
mod replay;
mod request_id;
mod stop;
mod text;
mod text_money;
mod text_prices;
pub mod video;
