//! Reads type and size of images from their headers.
//!
//! Strict: data that decoders skip could hide another header, so it is refused.

use super::named::named_enum;

named_enum!(
    /// The accepted images.
    ImageType {
        Png = "image/png",
        Jpeg = "image/jpeg",
        Gif = "image/gif",
        Webp = "image/webp",
    }
);

/// Maximum segments before the pixels of a PNG or JPEG; cameras write some dozens.
const MAX_SEGMENTS: usize = 1_000;

/// A file with random access, possibly in base64.
pub trait ReadAt {
    fn read_at<const N: usize>(&self, offset: usize) -> Option<[u8; N]>;
}

impl ReadAt for [u8] {
    fn read_at<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.get(offset..)?.first_chunk().copied()
    }
}

/// Returns the type, and the size in pixels, both sides at least 1. A GIF has no size: its frames
/// may be larger than its header says.
pub fn read_header(file: &(impl ReadAt + ?Sized)) -> Option<(ImageType, Option<(u32, u32)>)> {
    let start: [u8; 12] = file.read_at(0)?;
    let (image_type, size) = match &start {
        b"\x89PNG\r\n\x1a\n\0\0\0\x0d" => (ImageType::Png, png(file)?),
        [0xff, 0xd8, 0xff, ..] => (ImageType::Jpeg, jpeg(file)?),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P'] => {
            (ImageType::Webp, webp(file)?)
        }
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => return Some((ImageType::Gif, None)),
        _ => return None,
    };
    (size.0 > 0 && size.1 > 0).then_some((image_type, Some(size)))
}

/// Requires exactly one header before the first pixels.
fn png(file: &(impl ReadAt + ?Sized)) -> Option<(u32, u32)> {
    let number = |offset| file.read_at(offset).map(u32::from_be_bytes);
    if file.read_at(12)? != *b"IHDR" {
        return None;
    }
    let mut at = 33;
    for _ in 0..MAX_SEGMENTS {
        match &file.read_at(at + 4)? {
            b"IDAT" => return Some((number(16)?, number(20)?)),
            b"IHDR" => return None,
            _ => at += 12 + usize::try_from(number(at)?).ok()?,
        }
    }
    None
}

/// Reads the first frame header, which precedes the first scan.
fn jpeg(file: &(impl ReadAt + ?Sized)) -> Option<(u32, u32)> {
    let mut at = 2;
    for _ in 0..MAX_SEGMENTS {
        let [0xff, marker] = file.read_at(at)? else {
            return None;
        };
        match marker {
            // A fill byte; the next byte may be the marker.
            0xff => at += 1,
            // Markers without a payload.
            0x01 | 0xd0..=0xd7 => at += 2,
            // A frame header of any coding process.
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                let side = |offset| file.read_at(offset).map(u16::from_be_bytes);
                return Some((side(at + 7)?.into(), side(at + 5)?.into()));
            }
            // Tables, application data and comments.
            0xc4 | 0xcc | 0xdb..=0xdd | 0xe0..=0xef | 0xfe => {
                at += 2 + usize::from(u16::from_be_bytes(file.read_at(at + 2)?));
            }
            _ => return None,
        }
    }
    None
}

/// Reads the first chunk, in any of the three layouts.
fn webp(file: &(impl ReadAt + ?Sized)) -> Option<(u32, u32)> {
    match &file.read_at(12)? {
        b"VP8 " => {
            let side = |offset| file.read_at(offset).map(u16::from_le_bytes);
            let start: [u8; 3] = file.read_at(23)?;
            let (width, height) = (side(26)? & 0x3fff, side(28)? & 0x3fff);
            (start == [0x9d, 0x01, 0x2a]).then(|| (width.into(), height.into()))
        }
        b"VP8L" => {
            let [signature, bits @ ..]: [u8; 5] = file.read_at(20)?;
            let bits = u32::from_le_bytes(bits);
            (signature == 0x2f).then_some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8X" => {
            let side = |offset| {
                let [low, middle, high] = file.read_at(offset)?;
                Some(u32::from_le_bytes([low, middle, high, 0]) + 1)
            };
            Some((side(24)?, side(27)?))
        }
        _ => None,
    }
}
