//! Pictures that callers send: checked by their headers, without decoding a pixel.

use std::io::Cursor;

use image::{
    ImageDecoder, ImageError, Limits,
    codecs::{jpeg::JpegDecoder, png::PngDecoder, webp::WebPDecoder},
    metadata::Orientation,
};

use super::{InvalidMedia, MediaInfo, MediaKind, fit::refusal, probe::inspect};
use crate::domain::request::MAX_INPUT_BYTES;

/// The formats of pictures, as vendors take them.
pub const PICTURE_KINDS: [MediaKind; 3] = [MediaKind::Png, MediaKind::Jpeg, MediaKind::Webp];

/// Maximum size of a picture in bytes.
pub const MAX_PICTURE_BYTES: usize = MAX_INPUT_BYTES;

/// Maximum pixels of a picture.
const MAX_PIXELS: u64 = 40_000_000;

/// Memory limit for what precedes the pixels, such as a compressed color profile.
const MAX_HEADER_MEMORY: u64 = 16 << 20;

struct Header {
    size: (u32, u32),
    orientation: Orientation,
    is_animated: bool,
}

/// Checks that `bytes` are one complete still picture. Width and height are as displayed, after the
/// rotation that EXIF asks for.
///
/// Some milliseconds per megabyte: call it on a blocking thread.
pub fn read_picture(bytes: &[u8]) -> Result<MediaInfo, InvalidMedia> {
    if bytes.len() > MAX_PICTURE_BYTES {
        return Err(InvalidMedia::TooLong(MAX_PICTURE_BYTES));
    }
    let mut info = inspect(bytes, &PICTURE_KINDS)?;
    let claimed = info.width.zip(info.height).unwrap_or_default();
    check_pixels(claimed)?;
    let header = header(info.kind, bytes).map_err(|error| refusal(&error))?;
    if header.is_animated {
        return Err(InvalidMedia::Animated);
    }
    check_pixels(header.size)?;
    if header.size != claimed {
        return Err(InvalidMedia::Damaged("its headers differ in its size"));
    }
    if is_turned(header.orientation) {
        (info.width, info.height) = (info.height, info.width);
    }
    Ok(info)
}

fn check_pixels((width, height): (u32, u32)) -> Result<(), InvalidMedia> {
    if u64::from(width) * u64::from(height) > MAX_PIXELS {
        return Err(InvalidMedia::Pixels { width, height });
    }
    Ok(())
}

/// The decoders read up to the first pixel here.
fn header(kind: MediaKind, bytes: &[u8]) -> Result<Header, ImageError> {
    fn of(mut decoder: impl ImageDecoder, is_animated: bool) -> Header {
        Header {
            size: decoder.dimensions(),
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

const fn is_turned(orientation: Orientation) -> bool {
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
