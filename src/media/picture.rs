//! Checks uploaded pictures by their headers, without decoding pixels.

use std::io::Cursor;

use image::{
    ImageDecoder, ImageError, Limits,
    codecs::{jpeg::JpegDecoder, png::PngDecoder, webp::WebPDecoder},
    metadata::Orientation,
};

use super::{InvalidMedia, MediaInfo, MediaKind, fit::refusal, probe::inspect};
use crate::request::{MAX_INPUT_BYTES, MAX_INPUT_PIXELS};

/// Accepted picture formats. The vendors also accept them.
pub const PICTURE_KINDS: [MediaKind; 3] = [MediaKind::Png, MediaKind::Jpeg, MediaKind::Webp];

/// Longest side in pixels.
const MAX_SIDE: u32 = 16_384;

/// Maximum ratio of the longer to the shorter side.
const MAX_RATIO: u32 = 20;

/// Maximum memory of a picture's pixels in bytes: 40 million pixels of 4 bytes.
pub const MAX_DECODED_BYTES: u64 = 4 * MAX_INPUT_PIXELS + (16 << 20);

/// Memory limit for data before the pixels, such as a compressed color profile.
const MAX_HEADER_MEMORY: u64 = 16 << 20;

#[derive(Debug)]
pub struct PictureHeader {
    size: (u32, u32),
    orientation: Orientation,
    is_animated: bool,
    /// Whether it may have transparent pixels.
    pub has_alpha: bool,
    /// Memory of the pixels in bytes.
    decoded_bytes: u64,
}

impl PictureHeader {
    /// Whether EXIF data rotates or mirrors the pixels for display.
    pub fn is_rotated(&self) -> bool {
        self.orientation != Orientation::NoTransforms
    }
}

/// Checks that `bytes` are one complete still picture. Width and height are as displayed, after
/// EXIF rotation.
///
/// Takes some milliseconds per megabyte: call it on a blocking thread.
pub fn read_picture(bytes: &[u8]) -> Result<MediaInfo, InvalidMedia> {
    if bytes.len() > MAX_INPUT_BYTES {
        return Err(InvalidMedia::TooLong(MAX_INPUT_BYTES));
    }
    let mut info = inspect(bytes, &PICTURE_KINDS)?;
    let claimed = info.width.zip(info.height).unwrap_or_default();
    check_pixels(claimed)?;
    let header = picture_header(info.kind, bytes).map_err(|error| refusal(&error))?;
    if header.is_animated {
        return Err(InvalidMedia::Animated);
    }
    check_pixels(header.size)?;
    if header.decoded_bytes > MAX_DECODED_BYTES {
        return Err(InvalidMedia::TooLarge);
    }
    if header.size != claimed {
        return Err(InvalidMedia::Damaged("its headers state different sizes"));
    }
    if is_turned(header.orientation) {
        (info.width, info.height) = (info.height, info.width);
    }
    Ok(info)
}

fn check_pixels((width, height): (u32, u32)) -> Result<(), InvalidMedia> {
    if u64::from(width) * u64::from(height) > MAX_INPUT_PIXELS {
        return Err(InvalidMedia::Pixels { width, height });
    }
    let (short, long) = (width.min(height), width.max(height));
    if long > MAX_SIDE || long > short.saturating_mul(MAX_RATIO) {
        return Err(InvalidMedia::Sides { width, height });
    }
    Ok(())
}

/// Reads the header of a picture. Creating a decoder reads the file up to the first pixel.
pub fn picture_header(kind: MediaKind, bytes: &[u8]) -> Result<PictureHeader, ImageError> {
    fn of(mut decoder: impl ImageDecoder, is_animated: bool) -> PictureHeader {
        PictureHeader {
            size: decoder.dimensions(),
            has_alpha: decoder.color_type().has_alpha(),
            decoded_bytes: decoder.total_bytes(),
            // An image without EXIF is valid.
            orientation: decoder.orientation().unwrap_or(Orientation::NoTransforms),
            is_animated,
        }
    }
    let source = Cursor::new(bytes);
    match kind {
        MediaKind::Jpeg => Ok(of(JpegDecoder::new(source)?, false)),
        MediaKind::Webp => {
            let decoder = WebPDecoder::new(source)?;
            let is_animated = decoder.has_animation();
            Ok(of(decoder, is_animated))
        }
        _ => {
            let mut limits = Limits::no_limits();
            limits.max_alloc = Some(MAX_HEADER_MEMORY);
            let decoder = PngDecoder::with_limits(source, limits)?;
            let is_animated = decoder.is_apng()?;
            Ok(of(decoder, is_animated))
        }
    }
}

/// Returns whether width and height are swapped for display.
pub const fn is_turned(orientation: Orientation) -> bool {
    matches!(
        orientation,
        Orientation::Rotate90
            | Orientation::Rotate270
            | Orientation::Rotate90FlipH
            | Orientation::Rotate270FlipH
    )
}

#[cfg(test)]
mod tests;
