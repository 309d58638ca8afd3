//! Vendors: what the configuration has to know of an adapter.
//!
//! Here: what a provider of a kind can be asked for, whatever its models. Not here: the
//! vendors themselves; each is described beside its adapter.

use std::{any::Any, fmt::Debug, sync::Arc};

use serde::de::DeserializeOwned;
use toml::Value;

use super::{
    catalogue::ModelKind,
    generation::Modality,
    request::{SPEED, SpeechFormat},
    settings::{ConfigError, read_table},
};

/// A vendor, or an imitation of one, whose API an adapter speaks.
#[derive(Debug)]
pub struct Vendor {
    /// `kind` of its providers in the configuration.
    pub kind: &'static str,
    /// The types that its models can have.
    pub modalities: &'static [Modality],
    /// What a provider needs before it is called.
    pub access: Access,
    /// The temperatures that a model of text takes when its limits name none.
    pub temperature: Option<[f64; 2]>,
    /// What its models of speech can be asked for.
    pub speech: SpeechRange,
    /// Reads the `wire` table of a model.
    pub settings: ReadSettings,
}

/// Reads the `wire` table of a model of a type. The key of an error is relative to it.
pub type ReadSettings = fn(Modality, Option<Value>) -> Result<SharedSettings, ConfigError>;

impl Vendor {
    /// A vendor that asks for a key, whose models of text take no temperature unless told and
    /// whose speech has all that the API takes.
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
            speech: SpeechRange::ALL,
            settings,
        }
    }
}

/// What a provider needs before it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing: it is built in, without any network.
    BuiltIn,
    /// A URL, and a key where the server asks for one.
    OptionalKey,
    /// A URL and a key.
    Key,
}

/// What any model of speech of a vendor can be asked for at most.
#[derive(Debug, Clone, Copy)]
pub struct SpeechRange {
    /// The files that it makes.
    pub formats: &'static [SpeechFormat],
    /// The lowest and the highest speed.
    pub speed: [f64; 2],
    /// What a voice id may have in it beside letters and digits.
    pub voice_signs: &'static str,
}

impl SpeechRange {
    /// All that the API takes.
    pub const ALL: Self = Self {
        formats: SpeechFormat::ALL,
        speed: SPEED,
        voice_signs: "_-",
    };
}

/// How one model is asked: settings that only its adapter understands.
pub trait ModelSettings: Any + Debug + Send + Sync {
    /// Checks that the vendor can be asked for what the model is to offer. The key of an
    /// error is relative to the model.
    fn check(&self, _model: &ModelKind) -> Result<(), ConfigError> {
        Ok(())
    }
}

/// Settings as they are handed from the configuration to the adapter.
pub type SharedSettings = Arc<dyn ModelSettings>;

/// Reads a `wire` table by its type.
pub fn read_settings<S: ModelSettings + DeserializeOwned>(
    wire: Option<Value>,
) -> Result<SharedSettings, ConfigError> {
    Ok(Arc::new(read_table::<S>(wire)?))
}

/// Refuses a `wire` table, which `vendor` has no use for.
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
