//! The size of an image, and whether its file is complete.

use crate::{
    domain::image_header::{ReadAt as _, read_header},
    media::{InvalidMedia, MediaKind},
};

/// Width and height in pixels, both at least 1, of a PNG, JPEG or WebP.
pub(in crate::media) fn size(kind: MediaKind, bytes: &[u8]) -> Result<(u32, u32), InvalidMedia> {
    let header = read_header(bytes).and_then(|(_, size)| size);
    let size = header.ok_or(InvalidMedia::Damaged("its header cannot be read"))?;
    let is_complete = match kind {
        // The last scan must be followed by an end marker.
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

/// `None` unless each chunk up to the end chunk lies within the file.
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
