//! Computes the duration of fragmented videos whose `moov` box does not have it.

use super::boxes::{Fields, child, children};
use crate::media::InvalidMedia;

/// The counted track, and its default sample duration in units of its time scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Track {
    pub id: u32,
    /// Units per second; 0 if unknown.
    pub scale: u32,
    pub sample: u32,
}

/// Returns the default sample duration of track `id`, from the `mvex` box.
pub(super) fn usual_sample(extends: &[u8], id: u32) -> Result<u32, InvalidMedia> {
    for found in children(extends) {
        let (name, content) = found?;
        let mut fields = Fields::new(content);
        if name == *b"trex" {
            fields.skip(4)?;
            if fields.u32()? == id {
                fields.skip(4)?;
                return fields.u32();
            }
        }
    }
    Ok(0)
}

/// Returns the duration, in units, of the samples of `track` in a `moof` box.
pub(super) fn units(fragment: &[u8], track: Track) -> Result<u64, InvalidMedia> {
    let mut units = 0_u64;
    for found in children(fragment) {
        let (name, content) = found?;
        if name != *b"traf" {
            continue;
        }
        let header =
            child(content, *b"tfhd")?.ok_or(InvalidMedia::Damaged("no fragment header"))?;
        let mut fields = Fields::new(header);
        let flags = fields.u32()?;
        if fields.u32()? != track.id {
            continue;
        }
        // An offset and a description index may precede it.
        fields.skip(if flags & 1 == 0 { 0 } else { 8 })?;
        fields.skip(if flags & 2 == 0 { 0 } else { 4 })?;
        let sample = if flags & 8 == 0 {
            track.sample
        } else {
            fields.u32()?
        };
        for found in children(content) {
            let (name, run) = found?;
            if name == *b"trun" {
                units = units.saturating_add(run_units(run, sample)?);
            }
        }
    }
    Ok(units)
}

/// Returns the duration, in units, of the samples of a run.
fn run_units(run: &[u8], sample: u32) -> Result<u64, InvalidMedia> {
    let mut fields = Fields::new(run);
    let flags = fields.u32()?;
    let count = fields.u32()?;
    if flags & 0x100 == 0 {
        return Ok(u64::from(count) * u64::from(sample));
    }
    fields.skip(if flags & 1 == 0 { 0 } else { 4 })?;
    fields.skip(if flags & 4 == 0 { 0 } else { 4 })?;
    // Size, flags and offset of the sample follow if present.
    let others = [0x200, 0x400, 0x800].map(|flag| if flags & flag == 0 { 0 } else { 4 });
    let others = others.iter().sum();
    let mut units = 0_u64;
    // Every iteration consumes four bytes, so a wrong count ends with the box.
    for _ in 0..count {
        units = units.saturating_add(fields.u32()?.into());
        fields.skip(others)?;
    }
    Ok(units)
}
