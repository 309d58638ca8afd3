//! Detects and validates formats from the bytes alone, ignoring the provider's content type.

pub(super) mod mp4;

use std::io::Cursor;

use sha2::{Digest, Sha256};

use super::{InvalidMedia, MediaInfo, MediaKind, audio};
use crate::domain::image_header::{ReadAt as _, read_header};

/// Checks that `bytes` are a complete file of one of the `expected` formats, by its structure: all
/// chunks, frames or boxes, but not their pixels or samples (for pixels see [`super::fit_png`]).
///
/// Takes linear time, at most some milliseconds per megabyte: call it on a blocking thread if the
/// file may be large.
pub fn inspect(bytes: &[u8], expected: &[MediaKind]) -> Result<MediaInfo, InvalidMedia> {
    let kind = sniff(bytes)?;
    if !expected.contains(&kind) {
        return Err(InvalidMedia::WrongType { found: kind });
    }
    let traits = match kind {
        MediaKind::Png | MediaKind::Jpeg | MediaKind::Webp => {
            (Some(picture_size(kind, bytes)?), None)
        }
        MediaKind::Mp3 => (None, Some(audio::mp3_seconds(bytes)?)),
        MediaKind::Wav => (None, Some(audio::wav_seconds(bytes)?)),
        MediaKind::Mp4 => mp4::read(&mut Cursor::new(bytes)).map_err(|error| match error {
            mp4::ReadError::Bad(bad) => bad,
            mp4::ReadError::Io(_) => InvalidMedia::Cut,
        })?,
    };
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let content = (length, Sha256::digest(bytes).into());
    Ok(MediaInfo::new(kind, content, traits))
}

/// Detects the format from the leading bytes.
pub(super) fn sniff(bytes: &[u8]) -> Result<MediaKind, InvalidMedia> {
    if bytes.is_empty() {
        Err(InvalidMedia::Empty)
    } else if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        Ok(MediaKind::Png)
    } else if bytes.starts_with(b"\xff\xd8\xff") {
        Ok(MediaKind::Jpeg)
    } else if bytes.starts_with(b"RIFF") && bytes.read_at(8) == Some(*b"WEBP") {
        Ok(MediaKind::Webp)
    } else if bytes.starts_with(b"RIFF") && bytes.read_at(8) == Some(*b"WAVE") {
        Ok(MediaKind::Wav)
    } else if bytes.read_at(4) == Some(*b"ftyp") {
        Ok(MediaKind::Mp4)
    } else if bytes.starts_with(b"ID3") || audio::starts_a_frame(bytes) {
        Ok(MediaKind::Mp3)
    } else {
        Err(InvalidMedia::Unknown)
    }
}

/// Returns width and height in pixels, both at least 1, of a PNG, JPEG or WebP.
pub(super) fn picture_size(kind: MediaKind, bytes: &[u8]) -> Result<(u32, u32), InvalidMedia> {
    let header = read_header(bytes).and_then(|(_, size)| size);
    let size = header.ok_or(InvalidMedia::Damaged("its header cannot be read"))?;
    let is_complete = match kind {
        // An end marker must follow the last scan.
        MediaKind::Jpeg => {
            let mut pairs = bytes.windows(2).rev();
            let last = pairs.find(|pair| matches!(pair, [0xff, 0xd9 | 0xda]));
            last.is_some_and(|pair| pair[1] == 0xd9)
        }
        MediaKind::Webp => {
            let claimed = bytes.read_at(4).map(u32::from_le_bytes);
            claimed.is_some_and(|length| length as usize + 8 <= bytes.len())
        }
        _ => find_png_end(bytes).is_some(),
    };
    is_complete.then_some(size).ok_or(InvalidMedia::Cut)
}

/// Returns `None` unless each chunk up to the end chunk lies within the file.
fn find_png_end(bytes: &[u8]) -> Option<()> {
    let mut at = 8;
    loop {
        let length = u32::from_be_bytes(bytes.read_at(at)?) as usize;
        let name: [u8; 4] = bytes.read_at(at + 4)?;
        // Length, name and checksum are 12 bytes, so every iteration advances.
        at += length + 12;
        bytes.get(..at)?;
        if name == *b"IEND" {
            return Some(());
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
