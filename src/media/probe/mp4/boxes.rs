//! Boxes in memory and their fields.

use crate::media::InvalidMedia;

/// Iterates over the names and contents of the boxes in `content`. A box that extends beyond its
/// parent ends the iteration with an error.
pub(super) fn children(
    content: &[u8],
) -> impl Iterator<Item = Result<([u8; 4], &[u8]), InvalidMedia>> {
    let mut rest = content;
    std::iter::from_fn(move || {
        // Some writers leave a few bytes, usually zeros, after the last box.
        if rest.len() < 8 {
            return None;
        }
        let found = split(rest);
        rest = found.as_ref().map_or(&[], |found| found.2);
        Some(found.map(|(name, content, _)| (name, content)))
    })
}

/// The name and content of a box, and the bytes after it.
type Split<'a> = ([u8; 4], &'a [u8], &'a [u8]);

fn split(bytes: &[u8]) -> Result<Split<'_>, InvalidMedia> {
    let (name, header, size) = header(bytes, bytes.len() as u64)?;
    let place = |at: u64| usize::try_from(at).map_err(|_| OUTSIDE);
    let (start, end) = (place(header)?, place(size)?);
    let content = bytes.get(start..end).ok_or(OUTSIDE)?;
    Ok((name, content, bytes.get(end..).unwrap_or_default()))
}

/// Returns the name of the box that starts here, the length of its header, and its own length,
/// which is `rest` if the box extends to the end.
pub(super) fn header(bytes: &[u8], rest: u64) -> Result<([u8; 4], u64, u64), InvalidMedia> {
    let mut fields = Fields::new(bytes);
    let (size, name) = (fields.u32()?, fields.take()?);
    Ok(match size {
        0 => (name, 8, rest),
        1 => (name, 16, fields.u64()?),
        size => (name, 8, size.into()),
    })
}

const OUTSIDE: InvalidMedia = InvalidMedia::Damaged("a box that does not fit into its parent");

/// Returns the content of the first box with a name.
pub(super) fn child(content: &[u8], name: [u8; 4]) -> Result<Option<&[u8]>, InvalidMedia> {
    for found in children(content) {
        let (found, content) = found?;
        if found == name {
            return Ok(Some(content));
        }
    }
    Ok(None)
}

/// Converts units of a time scale to seconds; none without units or scale.
pub(super) fn seconds(units: u64, scale: u32) -> Option<f64> {
    if units == 0 || scale == 0 {
        return None;
    }
    // Exact for everything accepted: whole seconds and a remainder below 2^32.
    let scale = u64::from(scale);
    let whole = u32::try_from(units / scale).ok()?;
    let part = u32::try_from(units % scale).ok()?;
    let scale = u32::try_from(scale).ok()?;
    Some(f64::from(whole) + f64::from(part) / f64::from(scale))
}

/// Reads big-endian fields in sequence.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], InvalidMedia> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(OUTSIDE)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn skip(&mut self, bytes: usize) -> Result<(), InvalidMedia> {
        self.0 = self.0.get(bytes..).ok_or(OUTSIDE)?;
        Ok(())
    }

    /// Reads the version of a full box and skips its flags.
    pub(super) fn version(&mut self) -> Result<u8, InvalidMedia> {
        let [version, ..] = self.take::<4>()?;
        Ok(version)
    }

    pub(super) fn u16(&mut self) -> Result<u16, InvalidMedia> {
        self.take().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, InvalidMedia> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, InvalidMedia> {
        self.take().map(u64::from_be_bytes)
    }

    /// Reads 32 bits in version 0 and 64 in others. All ones mean unknown and become 0.
    pub(super) fn wide(&mut self, version: u8) -> Result<u64, InvalidMedia> {
        if version == 0 {
            let number = self.u32()?;
            return Ok(if number == u32::MAX { 0 } else { number.into() });
        }
        let number = self.u64()?;
        Ok(if number == u64::MAX { 0 } else { number })
    }
}
