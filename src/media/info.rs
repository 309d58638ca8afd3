//! Properties of a valid file, and reasons to refuse others.

use super::{MediaKind, sign::hex};

/// The properties of a valid file, derived from its bytes alone.
#[derive(Debug, Clone, PartialEq)]
pub struct MediaInfo {
    pub kind: MediaKind,
    pub bytes: u64,
    pub sha256: [u8; 32],
    /// Pixels, at least 1, as displayed after rotation; images and videos only.
    pub width: Option<u32>,
    /// As `width`.
    pub height: Option<u32>,
    /// Duration in seconds, above 0; speech and videos only.
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

/// Why bytes are refused. Permanent, since the same bytes are refused again. No variant contains
/// any of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMedia {
    /// No bytes, or no part to join.
    #[error("the file is empty")]
    Empty,
    /// No known signature, as in an error page.
    #[error("the file is of no known type")]
    Unknown,
    #[error("the file is {found:?}, which was not asked for")]
    WrongType { found: MediaKind },
    #[error("the file is cut off")]
    Cut,
    /// The file violates its format.
    #[error("the file is damaged: {0}")]
    Damaged(&'static str),
    #[error("the file is of an unsupported kind: {0}")]
    Unsupported(&'static str),
    /// More than this number of bytes.
    #[error("the file has more than {} MiB", .0 >> 20)]
    TooLong(usize),
    #[error("the image has {width}x{height} pixels; at most 40 megapixels are accepted")]
    Pixels { width: u32, height: u32 },
    /// A side longer than decoders support, or a narrow strip.
    #[error(
        "the image has {width}x{height} pixels; a side may have at most 16,384, and 20 times those \
         of the other"
    )]
    Sides { width: u32, height: u32 },
    #[error("the image is animated; send one still image")]
    Animated,
    /// Decoding it would take too much memory.
    #[error("the file is too large once decoded")]
    TooLarge,
    /// The image has another aspect ratio than requested.
    #[error("the image has {width}x{height} pixels, which is another shape than asked for")]
    Shape { width: u32, height: u32 },
    /// Parts of one recording that differ in rate, channels or sample width.
    #[error("the parts differ in their format")]
    Mixed,
}
