//! The configured providers' adapters.

use std::{collections::BTreeMap, sync::Arc};

use super::{ImageProvider, Seats, SpeechProvider, TextProvider, VideoProvider};

/// Adapters by modality and provider name.
#[derive(Default, Clone)]
pub struct Registry {
    pub text: BTreeMap<String, Arc<dyn TextProvider>>,
    pub image: BTreeMap<String, Arc<dyn ImageProvider>>,
    pub speech: BTreeMap<String, Arc<dyn SpeechProvider>>,
    pub video: BTreeMap<String, Arc<dyn VideoProvider>>,
    /// Concurrency limits per provider.
    pub seats: Seats,
}
