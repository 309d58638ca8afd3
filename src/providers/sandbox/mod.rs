//! The built-in provider: needs no key, costs nothing upstream, and fails on demand.
//!
//! Here: what makes a server without a single key usable, and a client's error handling
//! testable. Not here: randomness; the same call gets the same answer.

mod art;
pub mod fault;
mod film;
pub mod image;
mod seed;
pub mod speech;
pub mod text;
pub mod video;
mod voice;

pub use fault::Faults;
pub use image::SandboxImage;
pub use speech::SandboxSpeech;
pub use text::SandboxText;
pub use video::SandboxVideo;
