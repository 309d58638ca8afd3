//! An input of a generation, as its record keeps it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{named::named_enum, request::InputRole};

/// The member of a generation's stored parameters that lists its inputs.
pub const INPUTS: &str = "inputs";

named_enum!(
    /// Where an input came from.
    InputOrigin {
        Upload = "upload",
        /// A file of another generation.
        Generation = "generation",
        /// It came within the request.
        Data = "data",
    }
);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredInput {
    pub role: InputRole,
    pub from: InputOrigin,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<Uuid>,
    /// Which of the generation's files, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u16>,
    /// Key in the media store.
    pub key: String,
    pub content_type: String,
    pub bytes: u64,
    /// SHA-256, hexadecimal.
    pub sha256: String,
    /// In pixels, as displayed.
    pub width: u32,
    /// As `width`.
    pub height: u32,
}
