//! The built-in provider, which needs no key, costs nothing upstream, and fails on demand.
//!
//! It makes a server usable without any key, and lets clients test their error handling. It is
//! deterministic: equal calls get equal answers.

mod edit;
pub mod fault;
mod film;
pub mod image;
mod picture;
mod seed;
pub mod speech;
pub mod text;
mod tools;
pub mod video;

use std::{sync::Arc, time::Duration};

use super::setup::Adapters;
use crate::{
    catalogue::vendor::{Access, ModelSettings, Vendor, no_settings},
    domain::generation::Modality,
};

pub use fault::Faults;
pub use image::SandboxImage;
pub use speech::SandboxSpeech;
pub use text::SandboxText;
pub use video::SandboxVideo;

/// Pause between two words of a streamed text: slow enough to be visible, fast enough for tests.
const WORD_DELAY: Duration = Duration::from_millis(5);

pub const ADAPTERS: Adapters = Adapters {
    vendor: Vendor {
        access: Access::BuiltIn,
        temperature: Some([0.0, 2.0]),
        ..Vendor::new("sandbox", Modality::ALL, |_, _, wire| {
            no_settings::<SandboxModel>("the sandbox", wire.as_ref())
        })
    },
    add: |registry, setup| {
        registry.add_text(setup, SandboxText::new(WORD_DELAY));
        registry.add_image(setup, SandboxImage);
        registry.add_speech(setup, SandboxSpeech);
        let clock = Arc::clone(&setup.clock);
        registry.add_video(setup, SandboxVideo::new(clock, video::USUAL_WORK));
        Ok(())
    },
};

#[derive(Debug, Default)]
struct SandboxModel;

impl ModelSettings for SandboxModel {}
