//! What is known of a checked file.

use super::{MediaKind, sign::hex};

/// A checked file, as its bytes tell.
#[derive(Debug, Clone, PartialEq)]
pub struct MediaInfo {
    pub kind: MediaKind,
    /// Its length in bytes.
    pub bytes: u64,
    /// The SHA-256 of its bytes.
    pub sha256: [u8; 32],
    /// Pixels across, at least 1; of images and videos (as shown, after a rotation).
    pub width: Option<u32>,
    /// Pixels down, at least 1; of images and videos.
    pub height: Option<u32>,
    /// How long it plays, above 0; of speech and videos.
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

/// What can be read from a file besides its length and digest.
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
