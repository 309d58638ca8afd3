//! An input of a generation: its role, and the form in which its record stores it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::named::named_enum;

/// The member of a generation's stored parameters that lists its inputs.
pub const INPUTS: &str = "inputs";

named_enum!(
    /// The role of an input image.
    InputRole {
        /// The image to change, or the video to extend.
        Source = "source",
        /// The part of the source to change: a PNG of its size, transparent there.
        Mask = "mask",
        /// A person, a thing or a style to keep.
        Reference = "reference",
        /// The first frame of a video.
        FirstFrame = "first_frame",
        /// The last frame of a video.
        LastFrame = "last_frame",
    }
);

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
