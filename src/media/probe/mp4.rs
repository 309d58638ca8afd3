//! Checks an MP4's headers: size, duration, and that every box is complete.
//!
//! Reads only headers: even a file of a gigabyte takes a few seeks and its `moov` box.

use std::io::{self, Read, Seek, SeekFrom};

use crate::media::InvalidMedia;

mod boxes;
mod fragments;
mod movie;

use boxes::{header, seconds};
use movie::Movie;

/// Maximum boxes on the top level. A fragmented video has two per fragment.
const MOST_BOXES: u32 = 20_000;

/// Maximum bytes of a `moov` box. An hour of video has some 10 MB.
const LARGEST_MOVIE: u64 = 32 << 20;

/// Maximum bytes of an `ftyp` or `moof` box.
const LARGEST_SMALL: u64 = 1 << 20;

/// Maximum plausible duration, in seconds.
const LONGEST: f64 = 86_400.0;

#[derive(Debug, thiserror::Error)]
pub(in crate::media) enum ReadError {
    #[error(transparent)]
    Bad(#[from] InvalidMedia),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Size in pixels and duration in seconds of an MP4.
pub(in crate::media) type Traits = (Option<(u32, u32)>, Option<f64>);

/// Reads the traits of `file`, all of which must be an MP4.
pub(in crate::media) fn read<R: Read + Seek>(file: &mut R) -> Result<Traits, ReadError> {
    let length = file.seek(SeekFrom::End(0))?;
    let mut at = 0;
    let mut count = 0;
    let mut movie = None;
    let mut fragments = 0_u64;
    let mut samples = false;
    while at < length {
        count += 1;
        if count > MOST_BOXES {
            return Err(InvalidMedia::Damaged("too many boxes").into());
        }
        let found = next(file, at, length)?;
        match &found.name {
            b"ftyp" if at == 0 => check_brands(&content(file, &found, LARGEST_SMALL)?)?,
            _ if at == 0 => return Err(InvalidMedia::Unknown.into()),
            b"moov" if movie.is_none() => {
                movie = Some(movie::read(&content(file, &found, LARGEST_MOVIE)?)?);
            }
            b"moof" => {
                let track = movie.as_ref().map(|movie: &Movie| movie.track);
                let track = track.ok_or(InvalidMedia::Damaged("a fragment before its headers"))?;
                let fragment = content(file, &found, LARGEST_SMALL)?;
                fragments = fragments.saturating_add(fragments::units(&fragment, track)?);
            }
            b"mdat" => samples |= found.end > found.start,
            _ => {}
        }
        at = found.end;
    }
    let movie = movie.ok_or(InvalidMedia::Damaged("a video without its headers"))?;
    if !samples {
        return Err(InvalidMedia::Damaged("a video without images").into());
    }
    let length = movie
        .seconds
        .or_else(|| seconds(fragments, movie.track.scale))
        .unwrap_or(0.0);
    if !(length > 0.0 && length <= LONGEST) {
        return Err(InvalidMedia::Damaged("a video without a duration").into());
    }
    Ok((Some(movie.size), Some(length)))
}

/// The position of a top-level box's content.
struct Found {
    name: [u8; 4],
    start: u64,
    end: u64,
}

fn next<R: Read + Seek>(file: &mut R, at: u64, length: u64) -> Result<Found, ReadError> {
    let rest = length - at;
    file.seek(SeekFrom::Start(at))?;
    let mut head = Vec::new();
    file.by_ref().take(rest.min(16)).read_to_end(&mut head)?;
    let (name, header, size) = header(&head, rest).map_err(|_| InvalidMedia::Cut)?;
    if size < header {
        return Err(InvalidMedia::Damaged("a box that is smaller than its header").into());
    }
    if size > rest {
        return Err(InvalidMedia::Cut.into());
    }
    Ok(Found {
        name,
        start: at + header,
        end: at + size,
    })
}

/// Reads the content of a box. It lies within the file, which bounds the allocation.
fn content<R: Read + Seek>(file: &mut R, found: &Found, most: u64) -> Result<Vec<u8>, ReadError> {
    let size = found.end - found.start;
    if size > most {
        return Err(InvalidMedia::Unsupported("headers this large").into());
    }
    file.seek(SeekFrom::Start(found.start))?;
    let mut content = Vec::new();
    file.by_ref().take(size).read_to_end(&mut content)?;
    if u64::try_from(content.len()).unwrap_or(u64::MAX) < size {
        return Err(InvalidMedia::Cut.into());
    }
    Ok(content)
}

/// Checks that the major or a compatible brand is of the MP4 family, because pictures (HEIC, AVIF)
/// and `QuickTime` files consist of boxes too.
fn check_brands(content: &[u8]) -> Result<(), InvalidMedia> {
    let (brands, _) = content.as_chunks::<4>();
    let ours = |brand: &[u8; 4]| {
        matches!(brand, b"avc1" | b"dash" | b"M4V " | b"MSNV" | b"cmfc")
            || brand.starts_with(b"mp4")
            || brand.starts_with(b"iso")
    };
    // The second brand is a version number.
    let mut brands = brands.iter().enumerate().filter(|(at, _)| *at != 1);
    if brands.any(|(_, brand)| ours(brand)) {
        Ok(())
    } else {
        Err(InvalidMedia::Unsupported("this brand of MP4"))
    }
}
