//! Properties of a validated file.

use super::{MediaKind, sign::hex};

/// A validated file, described by its bytes alone.
#[derive(Debug, Clone, PartialEq)]
pub struct MediaInfo {
    pub kind: MediaKind,
    pub bytes: u64,
    pub sha256: [u8; 32],
    /// Pixels, at least 1; of images and videos (as displayed, after rotation).
    pub width: Option<u32>,
    /// As `width`.
    pub height: Option<u32>,
    /// Duration, above 0; of speech and videos.
    pub seconds: Option<f64>,
}

impl MediaInfo {
    /// The media type for `Content-Type`.
    pub const fn content_type(&self) -> &'static str {
        self.kind.content_type()
    }

    /// The SHA-256 in lower-case hexadecimal.
    pub fn sha256_hex(&self) -> String {
        hex(&self.sha256)
    }
}

/// Properties that depend on the format, without length and digest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Traits {
    pub kind: MediaKind,
    pub size: Option<(u32, u32)>,
    pub seconds: Option<f64>,
}

impl Traits {
    pub(super) fn into_info(self, bytes: u64, sha256: [u8; 32]) -> MediaInfo {
        MediaInfo {
            kind: self.kind,
            bytes,
            sha256,
            width: self.size.map(|size| size.0),
            height: self.size.map(|size| size.1),
            seconds: self.seconds,
        }
    }
}
