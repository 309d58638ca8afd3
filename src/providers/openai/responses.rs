//! `OpenAI`'s Responses API, without state: responses are not stored there.
//!
//! Submodules: [`request`] with the [`item`]s of its input, and [`response`]. Shared with Chat
//! Completions: settings, effort, errors and token counts. Source: openai 3.57.0 (`PyPI`)
//! `openai/types/responses/`.

mod item;
pub mod request;
pub mod response;

#[cfg(test)]
mod tests;
