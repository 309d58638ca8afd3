//! Detects and validates formats by the bytes alone, not by the provider's content type.

pub(super) mod mp4;
pub(super) mod picture;

use std::io::Cursor;

use sha2::{Digest, Sha256};

use super::{InvalidMedia, MediaInfo, MediaKind, audio};
use crate::domain::image_header::ReadAt as _;

/// Checks that `bytes` are a complete file of one of the `expected` formats, by its structure:
/// all chunks, frames or boxes, not the pixels or samples in them (for pixels see
/// [`super::fit_png`]).
///
/// Linear in the length, some milliseconds per megabyte at most: call it on a blocking thread
/// when the file may be large.
pub fn inspect(bytes: &[u8], expected: &[MediaKind]) -> Result<MediaInfo, InvalidMedia> {
    let kind = sniff(bytes)?;
    if !expected.contains(&kind) {
        return Err(InvalidMedia::WrongType { found: kind });
    }
    let traits = match kind {
        MediaKind::Png | MediaKind::Jpeg | MediaKind::Webp => {
            (Some(picture::size(kind, bytes)?), None)
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

/// The format by the leading bytes.
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

#[cfg(test)]
pub(super) mod tests;
