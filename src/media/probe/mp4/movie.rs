//! The `moov` box: duration and picture size.

use super::{
    boxes::{Fields, child, children, seconds},
    fragments::{Track, usual_sample},
};
use crate::media::InvalidMedia;

#[derive(Debug)]
pub(super) struct Movie {
    pub size: (u32, u32),
    /// `None` if the video is fragmented and its duration is not in this box.
    pub seconds: Option<f64>,
    /// The video track, to add up fragments.
    pub track: Track,
}

pub(super) fn read(content: &[u8]) -> Result<Movie, InvalidMedia> {
    let header = child(content, *b"mvhd")?.ok_or(InvalidMedia::Damaged("no movie header"))?;
    let (scale, length) = duration(header)?;
    let extends = child(content, *b"mvex")?.unwrap_or_default();
    let fragments = match child(extends, *b"mehd")? {
        Some(header) => {
            let mut fields = Fields::new(header);
            let version = fields.version()?;
            fields.wide(version)?
        }
        None => 0,
    };
    for found in children(content) {
        let (name, track) = found?;
        if name == *b"trak"
            && let Some((track, size, units)) = video(track, extends)?
        {
            return Ok(Movie {
                size,
                seconds: seconds(length, scale)
                    .or_else(|| seconds(fragments, scale))
                    .or_else(|| seconds(units, track.scale)),
                track,
            });
        }
    }
    Err(InvalidMedia::Damaged("no track with images"))
}

/// Returns time scale and duration of an `mvhd` or `mdhd` box.
fn duration(header: &[u8]) -> Result<(u32, u64), InvalidMedia> {
    let mut fields = Fields::new(header);
    let version = fields.version()?;
    fields.skip(if version == 0 { 8 } else { 16 })?;
    Ok((fields.u32()?, fields.wide(version)?))
}

/// A video track, its size in pixels and its duration in units, 0 if unknown.
type Video = (Track, (u32, u32), u64);

/// Parses a track; none unless it is a video track. `extends`: the `mvex` box.
fn video(track: &[u8], extends: &[u8]) -> Result<Option<Video>, InvalidMedia> {
    let Some(media) = child(track, *b"mdia")? else {
        return Ok(None);
    };
    let mut handler = Fields::new(child(media, *b"hdlr")?.unwrap_or_default());
    if handler.skip(8).is_err() || handler.take() != Ok(*b"vide") {
        return Ok(None);
    }
    let header = child(track, *b"tkhd")?.ok_or(InvalidMedia::Damaged("no track header"))?;
    let (id, mut size) = id_and_size(header)?;
    if size.0 == 0 || size.1 == 0 {
        size = coded(media)?.unwrap_or_default();
    }
    if size.0 == 0 || size.1 == 0 {
        return Err(InvalidMedia::Damaged("a video without pixels"));
    }
    let (scale, units) = match child(media, *b"mdhd")? {
        Some(header) => duration(header)?,
        None => (0, 0),
    };
    let sample = usual_sample(extends, id)?;
    Ok(Some((Track { id, scale, sample }, size, units)))
}

/// Returns the number of a track, and its size rotated by its matrix, from a `tkhd` box.
fn id_and_size(header: &[u8]) -> Result<(u32, (u32, u32)), InvalidMedia> {
    let mut fields = Fields::new(header);
    let version = fields.version()?;
    fields.skip(if version == 0 { 8 } else { 16 })?;
    let id = fields.u32()?;
    fields.skip(if version == 0 { 24 } else { 28 })?;
    let (a, b) = (fields.u32()?, fields.u32()?);
    fields.skip(28)?;
    // 16.16 fixed point; saturates before it could overflow.
    let mut pixels = || Ok(fields.u32()?.saturating_add(0x8000) >> 16);
    let (width, height) = (pixels()?, pixels()?);
    // A quarter turn maps x to y: the first element is zero.
    let size = if a == 0 && b != 0 {
        (height, width)
    } else {
        (width, height)
    };
    Ok((id, size))
}

/// Returns the coded picture size, from the first sample description.
fn coded(media: &[u8]) -> Result<Option<(u32, u32)>, InvalidMedia> {
    let mut at = media;
    for name in [*b"minf", *b"stbl", *b"stsd"] {
        match child(at, name)? {
            Some(content) => at = content,
            None => return Ok(None),
        }
    }
    let mut fields = Fields::new(at);
    // Version, count; size, format, reserved, index; predefined and reserved.
    fields.skip(8 + 16 + 16)?;
    Ok(Some((fields.u16()?.into(), fields.u16()?.into())))
}
