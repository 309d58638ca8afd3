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
    /// `size` in pixels.
    pub(super) fn new(
        kind: MediaKind,
        (bytes, sha256): (u64, [u8; 32]),
        (size, seconds): (Option<(u32, u32)>, Option<f64>),
    ) -> Self {
        Self {
            kind,
            bytes,
            sha256,
            width: size.map(|size| size.0),
            height: size.map(|size| size.1),
            seconds,
        }
    }

    /// The media type for `Content-Type`.
    pub const fn content_type(&self) -> &'static str {
        self.kind.content_type()
    }

    /// The SHA-256 in lower-case hexadecimal.
    pub fn sha256_hex(&self) -> String {
        hex(&self.sha256)
    }
}
