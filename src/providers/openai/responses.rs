//! `OpenAI`'s Responses API, without state: nothing of a response is kept there.
//!
//! Submodules: [`request`] with the [`item`]s of its input, [`response`], and [`stops`], which ends
//! a text at a stop sequence, since this API takes none. Shared with Chat Completions: settings,
//! effort, errors and token counts. Source: openai 3.57.0 (`PyPI`) `openai/types/responses/`.

mod item;
pub mod request;
pub mod response;
mod stops;

#[cfg(test)]
mod tests;
