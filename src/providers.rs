//! Upstream providers: one trait per modality, one module per vendor.
//!
//! Adapters convert wire formats in both directions: each makes one call and reports its outcome.
//! Credits, SQL and our status codes are elsewhere.

pub mod answer;
pub mod anthropic;
pub mod delta;
pub mod elevenlabs;
pub mod error;
pub mod exchange;
pub mod gemini;
pub mod http;
pub mod media_call;
pub mod openai;
pub mod registry;
pub mod runway;
pub mod sandbox;
mod sequence;
pub mod setup;
mod split;
mod sse;
pub mod stability;
mod stops;
pub mod surrogates;
pub mod text;
pub mod vendors;

pub use delta::{DeltaSink, Deltas};
pub use error::{ProviderError, ProviderErrorKind};
pub use media_call::{
    ImageAnswer, ImageCall, ImageProvider, InputPicture, SpeechAnswer, SpeechCall, SpeechProvider,
    VideoCall, VideoOutput, VideoProvider, VideoStatus,
};
pub use registry::{ProviderPermit, Registry};
pub use setup::Setup;
pub use text::{Released, TextAnswer, TextCall, TextProvider};
pub use vendors::VENDORS;

#[cfg(test)]
mod tests;
