//! Upstream providers: one trait per modality, one module per vendor.
//!
//! Here: wire formats and their conversion in both directions. Not here: credits, SQL, our status
//! codes; an adapter makes one call and reports its outcome.

pub mod answer;
pub mod anthropic;
pub mod delta;
pub mod elevenlabs;
pub mod error;
pub mod exchange;
pub mod gemini;
pub mod http;
pub mod image;
pub mod openai;
pub mod picture;
pub mod registry;
pub mod runway;
pub mod sandbox;
mod sequence;
pub mod setup;
pub mod speech;
mod sse;
pub mod stability;
pub mod surrogates;
pub mod text;
pub mod vendors;
pub mod video;
mod wire;

pub use delta::{DeltaSink, Deltas};
pub use error::{ProviderError, ProviderErrorKind};
pub use image::{ImageAnswer, ImageCall, ImageProvider};
pub use picture::InputPicture;
pub use registry::{ProviderPermit, Registry};
pub use setup::Setup;
pub use speech::{SpeechAnswer, SpeechCall, SpeechProvider};
pub use text::{Released, TextAnswer, TextCall, TextProvider};
pub use vendors::VENDORS;
pub use video::{VideoCall, VideoOutput, VideoProvider, VideoStatus};

#[cfg(test)]
mod tests;
