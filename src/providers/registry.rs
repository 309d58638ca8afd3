//! The providers of a server, ready to be called.

use std::{collections::BTreeMap, sync::Arc};

use super::{ImageProvider, Seats, SpeechProvider, TextProvider, VideoProvider};

/// The providers of this server, by name and modality.
#[derive(Default, Clone)]
pub struct Registry {
    /// Those that make text.
    pub text: BTreeMap<String, Arc<dyn TextProvider>>,
    /// Those that make images.
    pub image: BTreeMap<String, Arc<dyn ImageProvider>>,
    /// Those that make speech.
    pub speech: BTreeMap<String, Arc<dyn SpeechProvider>>,
    /// Those that make videos.
    pub video: BTreeMap<String, Arc<dyn VideoProvider>>,
    /// How many calls each may have at once.
    pub seats: Seats,
}
