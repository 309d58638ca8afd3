//! Why bytes are not the file that they should be.

use super::MediaKind;

/// Foreign bytes that are refused. None of these passes by itself: the same bytes are refused
/// again. No variant carries any of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMedia {
    /// No bytes at all, or no part to join.
    #[error("the file is empty")]
    Empty,
    /// Nothing that we know by its first bytes: an error page, for instance.
    #[error("the file is of no known type")]
    Unknown,
    /// Known, but of another type than the one asked for.
    #[error("the file is {found:?}, which was not asked for")]
    WrongType {
        /// What the bytes are.
        found: MediaKind,
    },
    /// It ends before its end.
    #[error("the file is cut off")]
    Cut,
    /// It breaks its format's rules.
    #[error("the file is damaged: {0}")]
    Damaged(&'static str),
    /// A variant of the format that we do not take.
    #[error("the file is of an unsupported kind: {0}")]
    Unsupported(&'static str),
    /// Decoded, it would be larger than we are willing to hold.
    #[error("the file is too large once decoded")]
    TooLarge,
    /// The image has another shape than the one asked for.
    #[error("the image has {width}x{height} pixels, which is another shape than asked for")]
    Shape {
        /// Pixels across.
        width: u32,
        /// Pixels down.
        height: u32,
    },
    /// Parts of one recording that differ in rate, channels or sample width.
    #[error("the parts differ in their format")]
    Mixed,
}
