//! The frames of an MP3 (MPEG-1, -2 and -2.5, layer 3), and joining MP3s.

use bytes::Bytes;

use crate::{domain::image_header::ReadAt as _, media::InvalidMedia};

/// Bit rates in kbit/s by index: MPEG-1, then MPEG-2 and 2.5. 0 ("free") is not supported.
const RATES: [[u16; 15]; 2] = [
    [
        0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320,
    ],
    [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160],
];

/// Samples per second by index in MPEG-1; half of it in MPEG-2, a quarter in 2.5.
const SAMPLE_RATES: [u32; 3] = [44_100, 48_000, 32_000];

/// The parsed four-byte header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub raw: [u8; 4],
    /// Samples per second.
    pub rate: u32,
    pub samples: u32,
    /// Bytes of the frame including the header; at least 24.
    pub bytes: usize,
    pub mono: bool,
}

impl Header {
    /// Parses the header at the start of `bytes`.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let raw: [u8; 4] = *bytes.first_chunk()?;
        let [sync, second, third, fourth] = raw;
        // Eleven sync bits, and layer 3.
        if sync != 0xff || second & 0xe6 != 0xe2 {
            return None;
        }
        let (first_version, halvings) = match second >> 3 & 3 {
            0 => (false, 2),
            2 => (false, 1),
            3 => (true, 0),
            _ => return None,
        };
        let kilobits = *RATES[usize::from(!first_version)].get(usize::from(third >> 4))?;
        let rate = *SAMPLE_RATES.get(usize::from(third >> 2 & 3))? >> halvings;
        let samples = if first_version { 1_152 } else { 576 };
        // Emphasis 2 is reserved.
        if kilobits == 0 || fourth & 3 == 2 {
            return None;
        }
        let bytes = samples / 8 * 1_000 * u32::from(kilobits) / rate + u32::from(third >> 1 & 1);
        Some(Self {
            raw,
            rate,
            samples,
            bytes: usize::try_from(bytes).ok()?,
            mono: fourth >> 6 == 3,
        })
    }

    /// Returns the same header with bit rate number `index`, without padding and checksum.
    pub(super) fn with_bit_rate(&self, index: u8) -> Option<Self> {
        let [sync, second, third, fourth] = self.raw;
        Self::read(&[sync, second | 1, third & 0x0c | index << 4, fourth])
    }

    /// Whether frames of both headers can follow each other in one stream.
    pub(super) fn goes_with(&self, other: &Self) -> bool {
        (self.rate, self.samples, self.mono) == (other.rate, other.samples, other.mono)
    }

    /// Returns the length of the side information between header and audio, without checksum.
    pub(super) fn side_bytes(&self) -> usize {
        match (self.samples == 1_152, self.mono) {
            (true, false) => 32,
            (false, true) => 9,
            (true, true) | (false, false) => 17,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    pub header: Header,
    pub bytes: &'a [u8],
}

impl Frame<'_> {
    /// Whether this frame is a table about the file (Xing, Info, VBRI) instead of audio.
    pub(super) fn is_table(&self) -> bool {
        let name = |offset| self.bytes.read_at::<4>(offset);
        let sound = 4 + self.header.side_bytes();
        [sound, sound + 2]
            .into_iter()
            .any(|offset| matches!(name(offset).as_ref(), Some(b"Xing" | b"Info")))
            || name(36) == Some(*b"VBRI")
    }
}

/// Iterates over the frames of a stream, in order. Skips and counts tags and garbage between them;
/// all frames must match the first one's format; a truncated last frame is left out.
pub(super) struct Frames<'a> {
    rest: &'a [u8],
    first: Option<Header>,
    in_step: bool,
    /// Bytes so far that belong to no frame and no tag.
    pub stray: usize,
}

impl<'a> Frames<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            first: None,
            in_step: false,
            stray: 0,
        }
    }

    fn fits(&self, header: &Header) -> bool {
        self.first.is_none_or(|first| first.goes_with(header))
    }

    /// Whether this is a frame and not four bytes that look like a header: another frame, a tag or
    /// the end must follow.
    fn is_confirmed(&self, header: &Header) -> bool {
        if self.in_step {
            return true;
        }
        match self.rest.get(header.bytes..) {
            None => false,
            Some(next) => {
                next.is_empty()
                    || tag_length(next).is_some()
                    || Header::read(next).is_some_and(|next| header.goes_with(&next))
            }
        }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    fn next(&mut self) -> Option<Frame<'a>> {
        while !self.rest.is_empty() {
            if let Some(header) = Header::read(self.rest)
                && self.fits(&header)
                && self.is_confirmed(&header)
                && let Some((bytes, rest)) = self.rest.split_at_checked(header.bytes)
            {
                self.rest = rest;
                self.first.get_or_insert(header);
                self.in_step = true;
                return Some(Frame { header, bytes });
            }
            // A truncated frame: the end of the stream, or one byte of garbage.
            self.in_step = false;
            let skipped = tag_length(self.rest).unwrap_or_else(|| {
                self.stray += 1;
                1
            });
            self.rest = self.rest.get(skipped..).unwrap_or_default();
        }
        None
    }
}

/// Returns the length of the tag that starts here: `ID3v2`, or `ID3v1` in the last 128 bytes.
fn tag_length(bytes: &[u8]) -> Option<usize> {
    if bytes.starts_with(b"TAG") && bytes.len() == 128 {
        return Some(128);
    }
    let [b'I', b'D', b'3', _, _, flags, size @ ..] = bytes.first_chunk::<10>()? else {
        return None;
    };
    let size = size.iter().try_fold(0_usize, |size, &byte| {
        (byte < 0x80).then(|| size << 7 | usize::from(byte))
    })?;
    let footer = if flags & 0x10 == 0 { 0 } else { 10 };
    Some(10 + size + footer)
}

/// Whether the bytes begin like a frame.
pub(in crate::media) fn starts_a_frame(bytes: &[u8]) -> bool {
    Header::read(bytes).is_some()
}

/// Returns the duration of an MP3 by its frames, ignoring its tables.
pub(in crate::media) fn seconds(bytes: &[u8]) -> Result<f64, InvalidMedia> {
    let mut frames = Frames::new(bytes);
    let (mut count, mut length, mut first) = (0_u32, 0, None);
    for frame in frames.by_ref().filter(|frame| !frame.is_table()) {
        count = count.saturating_add(1);
        length += frame.bytes.len();
        first.get_or_insert(frame.header);
    }
    check(length, frames.stray)?;
    let first = first.ok_or(InvalidMedia::Damaged("an MP3 without frames"))?;
    Ok(f64::from(count) * f64::from(first.samples) / f64::from(first.rate))
}

/// Refuses a stream with more garbage than audio.
pub(super) fn check(sound: usize, stray: usize) -> Result<(), InvalidMedia> {
    if sound == 0 {
        return Err(InvalidMedia::Damaged("an MP3 without frames"));
    }
    if stray > sound {
        return Err(InvalidMedia::Damaged("an MP3 with more garbage than sound"));
    }
    Ok(())
}

/// Bytes of the table that we write: name, flags, frames, bytes, and 100 seek points.
const TABLE: usize = 4 + 4 + 4 + 4 + 100;

/// Number of bit rates of a header, without "free".
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

/// Builds a silent frame with a table: "Info" for a constant bit rate, "Xing" for others.
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
