//! Joining MP3s.

use bytes::Bytes;

use super::mp3::{Frames, Header, check};
use crate::media::InvalidMedia;

/// Bytes of the table that we write: name, flags, frames, bytes, and 100 seek points.
const TABLE: usize = 4 + 4 + 4 + 4 + 100;

/// The number of bit rates of a header, without "free".
const BIT_RATES: u8 = 14;

/// Joins the parts of a recording, in order, without decoding them. Tags (ID3) and tables (Xing,
/// Info, VBRI) of the parts are replaced by one table, so that players show the right duration
/// and can seek. Parts without a frame, and a truncated last frame, are left out.
///
/// Uses twice the file's size in memory. Refused: no frame at all, more garbage than audio in a
/// part, parts that differ in sample rate, MPEG version or channels ([`InvalidMedia::Mixed`]).
pub fn mp3_from_parts(parts: &[Bytes]) -> Result<Bytes, InvalidMedia> {
    let mut first: Option<Header> = None;
    let mut sound = Vec::new();
    let mut starts = Vec::new();
    let mut constant = true;
    for part in parts {
        let before = sound.len();
        let mut frames = Frames::new(part);
        for frame in frames.by_ref().filter(|frame| !frame.is_table()) {
            let first = *first.get_or_insert(frame.header);
            if !first.goes_with(&frame.header) {
                return Err(InvalidMedia::Mixed);
            }
            constant &= first.raw[2] >> 4 == frame.header.raw[2] >> 4;
            starts.push(sound.len());
            sound.extend_from_slice(frame.bytes);
        }
        if !part.is_empty() {
            check(sound.len() - before, frames.stray)?;
        }
    }
    let first = first.ok_or(InvalidMedia::Empty)?;
    let mut file = table(&first, &starts, sound.len(), constant)?;
    file.append(&mut sound);
    Ok(file.into())
}

/// A silent frame with a table: "Info" for a constant bit rate, "Xing" for others.
fn table(
    first: &Header,
    starts: &[usize],
    sound: usize,
    constant: bool,
) -> Result<Vec<u8>, InvalidMedia> {
    let offset = 4 + first.side_bytes();
    let header = (1..=BIT_RATES)
        .filter_map(|index| first.with_bit_rate(index))
        .find(|header| header.bytes >= offset + TABLE)
        .ok_or(InvalidMedia::Unsupported("frames this small"))?;
    let total = header.bytes + sound;
    let mut frame = Vec::with_capacity(total);
    frame.extend_from_slice(&header.raw);
    frame.resize(offset, 0);
    frame.extend_from_slice(if constant { b"Info" } else { b"Xing" });
    // Flags: frames, bytes and seek points are present.
    frame.extend_from_slice(&7_u32.to_be_bytes());
    for number in [starts.len(), total] {
        let number = u32::try_from(number).map_err(|_| InvalidMedia::TooLarge)?;
        frame.extend_from_slice(&number.to_be_bytes());
    }
    for percent in 0..100 {
        // The position, in 256ths of the file, of the frame at this hundredth of the duration.
        let start = starts.get(starts.len() * percent / 100).copied();
        let place = (header.bytes + start.unwrap_or(sound)) * 256 / total;
        frame.push(u8::try_from(place).unwrap_or(u8::MAX));
    }
    frame.resize(header.bytes, 0);
    Ok(frame)
}
