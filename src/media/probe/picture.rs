//! Image size by header, and whether the container is complete.

use crate::media::{InvalidMedia, MediaKind};

/// Width and height in pixels, both at least 1, of a PNG, JPEG or WebP.
pub(in crate::media) fn size(kind: MediaKind, bytes: &[u8]) -> Result<(u32, u32), InvalidMedia> {
    let (width, height) = match kind {
        MediaKind::Jpeg => jpeg(bytes)?,
        MediaKind::Webp => webp(bytes)?,
        _ => png(bytes)?,
    };
    if width == 0 || height == 0 {
        return Err(InvalidMedia::Damaged("an image without pixels"));
    }
    Ok((width, height))
}

/// The `N` bytes at `offset`.
fn bytes_at<const N: usize>(bytes: &[u8], offset: usize) -> Result<[u8; N], InvalidMedia> {
    bytes
        .get(offset..)
        .and_then(<[u8]>::first_chunk)
        .copied()
        .ok_or(InvalidMedia::Cut)
}

/// Every chunk must lie within the file; the first is the header and the last the end.
fn png(bytes: &[u8]) -> Result<(u32, u32), InvalidMedia> {
    if bytes_at(bytes, 8)? != *b"\0\0\0\x0dIHDR" {
        return Err(InvalidMedia::Damaged("a PNG without its header"));
    }
    let width = u32::from_be_bytes(bytes_at(bytes, 16)?);
    let height = u32::from_be_bytes(bytes_at(bytes, 20)?);
    let mut rest = bytes.get(8..).unwrap_or_default();
    let mut pixels = false;
    loop {
        let length = u32::from_be_bytes(bytes_at(rest, 0)?);
        let name: [u8; 4] = bytes_at(rest, 4)?;
        let length = usize::try_from(length).map_err(|_| InvalidMedia::Cut)?;
        // Length, name and checksum are 12 bytes, so every iteration advances.
        let end = length.checked_add(12).ok_or(InvalidMedia::Cut)?;
        rest = rest.get(end..).ok_or(InvalidMedia::Cut)?;
        pixels |= name == *b"IDAT";
        if name == *b"IEND" {
            break;
        }
    }
    if !pixels {
        return Err(InvalidMedia::Damaged("a PNG without pixels"));
    }
    Ok((width, height))
}

/// The frame header before the first scan, and an end of image anywhere after it.
fn jpeg(bytes: &[u8]) -> Result<(u32, u32), InvalidMedia> {
    let mut at = 2;
    loop {
        let [mark, marker] = bytes_at(bytes, at)?;
        if mark != 0xff {
            return Err(InvalidMedia::Damaged(
                "a JPEG without a marker where one must be",
            ));
        }
        match marker {
            // A fill byte: the next one may be the marker.
            0xff => at += 1,
            // Markers without a payload.
            0x01 | 0xd0..=0xd7 => at += 2,
            // A frame header of any coding process.
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => break,
            0xd8..=0xda => return Err(InvalidMedia::Damaged("a JPEG without a frame header")),
            _ => {
                let length = u16::from_be_bytes(bytes_at(bytes, at + 2)?);
                if length < 2 {
                    return Err(InvalidMedia::Damaged("a JPEG segment without a length"));
                }
                at += 2 + usize::from(length);
            }
        }
    }
    let height = u16::from_be_bytes(bytes_at(bytes, at + 5)?);
    let width = u16::from_be_bytes(bytes_at(bytes, at + 7)?);
    let rest = bytes.get(at..).unwrap_or_default();
    if !rest.windows(2).rev().any(|pair| pair == [0xff, 0xd9]) {
        return Err(InvalidMedia::Cut);
    }
    Ok((width.into(), height.into()))
}

/// The first chunk of any of the three layouts.
fn webp(bytes: &[u8]) -> Result<(u32, u32), InvalidMedia> {
    let claimed = u64::from(u32::from_le_bytes(bytes_at(bytes, 4)?)) + 8;
    if claimed > u64::try_from(bytes.len()).unwrap_or(u64::MAX) {
        return Err(InvalidMedia::Cut);
    }
    match &bytes_at(bytes, 12)? {
        b"VP8 " => {
            if bytes_at(bytes, 23)? != [0x9d, 0x01, 0x2a] {
                return Err(InvalidMedia::Damaged("a WebP without its start code"));
            }
            let side = |offset| {
                let side = u16::from_le_bytes(bytes_at(bytes, offset)?);
                Ok(u32::from(side & 0x3fff))
            };
            Ok((side(26)?, side(28)?))
        }
        b"VP8L" => {
            if bytes_at(bytes, 20)? != [0x2f] {
                return Err(InvalidMedia::Damaged("a WebP without its signature"));
            }
            let bits = u32::from_le_bytes(bytes_at(bytes, 21)?);
            Ok(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8X" => {
            let side = |offset| {
                let [low, middle, high] = bytes_at(bytes, offset)?;
                Ok(u32::from_le_bytes([low, middle, high, 0]) + 1)
            };
            Ok((side(24)?, side(27)?))
        }
        _ => Err(InvalidMedia::Unsupported("this layout of WebP")),
    }
}
