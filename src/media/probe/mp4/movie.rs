//! The `moov` box: how long the video plays, and the size of its picture.

use super::{
    boxes::{Fields, child, children, seconds},
    fragments::{Track, usual_sample},
};
use crate::media::InvalidMedia;

/// What `moov` tells.
#[derive(Debug)]
pub(super) struct Movie {
    pub size: (u32, u32),
    /// None when the video is in fragments whose sum is not told here.
    pub seconds: Option<f64>,
    /// The track with pictures, for counting fragments.
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
        if name != *b"trak" {
            continue;
        }
        if let Some(pictures) = video(track)? {
            let id = pictures.id;
            let scale_of_track = pictures.scale;
            return Ok(Movie {
                size: pictures.size,
                seconds: seconds(length, scale)
                    .or_else(|| seconds(fragments, scale))
                    .or_else(|| seconds(pictures.units, scale_of_track)),
                track: Track {
                    id,
                    scale: scale_of_track,
                    sample: usual_sample(extends, id)?,
                },
            });
        }
    }
    Err(InvalidMedia::Damaged("no track with pictures"))
}

/// Time scale and duration of an `mvhd` or `mdhd` box.
fn duration(header: &[u8]) -> Result<(u32, u64), InvalidMedia> {
    let mut fields = Fields::new(header);
    let version = fields.version()?;
    fields.skip(if version == 0 { 8 } else { 16 })?;
    Ok((fields.u32()?, fields.wide(version)?))
}

/// A track with pictures.
struct Pictures {
    id: u32,
    size: (u32, u32),
    /// Units a second; 0 where it is not told.
    scale: u32,
    /// How long it plays; 0 where it is not told.
    units: u64,
}

/// What a track tells; none when it has no pictures.
fn video(track: &[u8]) -> Result<Option<Pictures>, InvalidMedia> {
    let Some(media) = child(track, *b"mdia")? else {
        return Ok(None);
    };
    let mut handler = Fields::new(child(media, *b"hdlr")?.unwrap_or_default());
    if handler.skip(8).is_err() || handler.take() != Ok(*b"vide") {
        return Ok(None);
    }
    let header = child(track, *b"tkhd")?.ok_or(InvalidMedia::Damaged("no track header"))?;
    let mut size = shown(header)?;
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
    Ok(Some(Pictures {
        id: track_id(header)?,
        size,
        scale,
        units,
    }))
}

/// The number in a `tkhd` box.
fn track_id(header: &[u8]) -> Result<u32, InvalidMedia> {
    let mut fields = Fields::new(header);
    let version = fields.version()?;
    fields.skip(if version == 0 { 8 } else { 16 })?;
    fields.u32()
}

/// The size in a `tkhd` box, turned as its matrix says.
fn shown(header: &[u8]) -> Result<(u32, u32), InvalidMedia> {
    let mut fields = Fields::new(header);
    let version = fields.version()?;
    fields.skip(if version == 0 { 36 } else { 48 })?;
    let (a, b) = (fields.u32()?, fields.u32()?);
    fields.skip(28)?;
    // 16 bits before the point and 16 behind it; saturated before it could overflow.
    let mut pixels = || Ok(fields.u32()?.saturating_add(0x8000) >> 16);
    let (width, height) = (pixels()?, pixels()?);
    // A quarter turn maps across to down: nothing stays on the first place.
    Ok(if a == 0 && b != 0 {
        (height, width)
    } else {
        (width, height)
    })
}

/// The size of the coded pictures, by the first entry of the sample descriptions.
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
