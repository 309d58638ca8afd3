//! An input of a generation, as stored in its record.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{named::named_enum, request::InputRole};

/// The member of a generation's stored parameters that lists its inputs.
pub const INPUTS: &str = "inputs";

named_enum!(
    /// Origin of an input.
    InputOrigin {
        Upload = "upload",
        /// A file of another generation.
        Generation = "generation",
        /// Sent within the request.
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
    /// Index of the file in that generation, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u16>,
    /// Key in the media store.
    pub key: String,
    pub content_type: String,
    pub bytes: u64,
    /// SHA-256, hexadecimal.
    pub sha256: String,
    /// Pixels, as displayed.
    pub width: u32,
    /// Pixels, as displayed.
    pub height: u32,
}
