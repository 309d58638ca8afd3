//! Vendors: the model-independent properties of an adapter that the configuration needs. The
//! vendors themselves are defined with their adapters.

use std::{any::Any, fmt::Debug, sync::Arc};

use serde::de::DeserializeOwned;
use toml::Value;

use super::{Dialogue, ModelKind};
use crate::{
    domain::{
        generation::Modality,
        pricing::CacheWrites,
        settings::{ConfigError, read_table},
    },
    request::{SPEED, SpeechFormat, VoiceIds},
};

/// A vendor (or the sandbox) with an adapter for its API.
#[derive(Debug)]
pub struct Vendor {
    /// The `kind` of its providers in the configuration.
    pub kind: &'static str,
    pub modalities: &'static [Modality],
    /// Credentials that a provider of this vendor needs.
    pub access: Access,
    /// The default temperature range of its text models.
    pub temperature: Option<[f64; 2]>,
    /// The features of dialogues that its text models support.
    pub dialogue: Dialogue,
    pub speech: SpeechRange,
    /// Parses the `wire` table of a model.
    pub settings: ReadSettings,
}

/// Parses the `wire` table of the model with this id. The key of an error is relative to it.
pub type ReadSettings = fn(&str, Modality, Option<Value>) -> Result<SharedSettings, ConfigError>;

impl Vendor {
    /// Creates a vendor that requires an API key, whose text models accept no temperature unless
    /// configured, and whose speech supports everything that the API offers.
    pub const fn new(
        kind: &'static str,
        modalities: &'static [Modality],
        settings: ReadSettings,
    ) -> Self {
        Self {
            kind,
            modalities,
            access: Access::Key,
            temperature: None,
            dialogue: Dialogue::ALL,
            speech: SpeechRange::ALL,
            settings,
        }
    }
}

/// Credentials that a provider needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// No credentials: it is built in and uses no network.
    BuiltIn,
    /// A URL, and a key if the server requires one.
    OptionalKey,
    /// A URL and a key.
    Key,
}

/// The maximum range of a vendor's speech models.
#[derive(Debug, Clone, Copy)]
pub struct SpeechRange {
    pub formats: &'static [SpeechFormat],
    /// Lowest and highest playback rate.
    pub speed: [f64; 2],
    pub voice_ids: VoiceIds,
}

impl SpeechRange {
    /// Everything that the API offers.
    pub const ALL: Self = Self {
        formats: SpeechFormat::ALL,
        speed: SPEED,
        voice_ids: VoiceIds::ALL,
    };
}

/// Settings of one model that only its adapter understands.
pub trait ModelSettings: Any + Debug + Send + Sync {
    /// Checks that the vendor supports the features that the model is configured to offer. The key
    /// of an error is relative to the model.
    fn check(&self, _model: &ModelKind) -> Result<(), ConfigError> {
        Ok(())
    }

    /// Returns the cache writes that the vendor bills without a request for them.
    fn cache_writes(&self) -> CacheWrites {
        CacheWrites::None
    }

    /// Returns the features of dialogues, if they differ from those of the vendor's other models.
    fn dialogue(&self, vendor: Dialogue) -> Dialogue {
        vendor
    }

    /// Whether the vendor refuses to switch thinking off.
    fn always_thinks(&self) -> bool {
        false
    }

    fn takes_background(&self) -> bool {
        false
    }

    /// Whether a speech model supports instructions for its style.
    fn takes_instructions(&self) -> bool {
        false
    }

    /// Whether the WAV files of a speech model are 24 kHz mono, the format of PCM without a header.
    fn makes_pcm(&self) -> bool {
        true
    }
}

pub type SharedSettings = Arc<dyn ModelSettings>;

/// Parses a `wire` table as `S`.
pub fn read_settings<S: ModelSettings + DeserializeOwned>(
    wire: Option<Value>,
) -> Result<SharedSettings, ConfigError> {
    Ok(Arc::new(read_table::<S>(wire)?))
}

/// Refuses a `wire` table, which `vendor` does not use.
pub fn no_settings<S: ModelSettings + Default>(
    vendor: &str,
    wire: Option<&Value>,
) -> Result<SharedSettings, ConfigError> {
    if wire.is_some() {
        let problem = format!("is not used by {vendor}: remove it");
        return Err(ConfigError::new("", problem));
    }
    Ok(Arc::new(S::default()))
}
