//! WAV files: 16-bit PCM in RIFF.

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::{domain::image_header::ReadAt as _, media::InvalidMedia};

/// Sizes from this one on mean "unknown" in the header of a stream: 0xFFFFFFFF, or that or
/// 0x7FFFFFFF minus the header. No real part is this large.
const PLACEHOLDER: u32 = 0x7fff_0000;

/// Samples per second of PCM without a header, which is mono.
const BARE_RATE: u32 = 24_000;

/// Size of the header that [`wav`] writes. Every stored WAV has it.
pub const WAV_HEADER_BYTES: u64 = 44;

/// Number of leading bytes that are checked to distinguish text from audio.
const TEXT_SAMPLE: usize = 64;

/// The sample format. Always 16 bits, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Format {
    channels: u16,
    rate: u32,
}

/// The format of PCM without a header.
const BARE: Format = Format {
    channels: 1,
    rate: BARE_RATE,
};

impl Format {
    fn bytes_per_block(self) -> u16 {
        self.channels * 2
    }

    fn bytes_per_second(self) -> u32 {
        u32::from(self.bytes_per_block()) * self.rate
    }
}

/// Joins the parts of a recording, in order: a 44-byte header with the real sizes, then all
/// samples. Parts may have the placeholder sizes of a stream; other chunks are dropped. A part
/// without RIFF is read as raw PCM (24 kHz, 16 bits, mono), unless it is text or another known
/// format. An incomplete sample at a part's end is left out.
///
/// Refused: no samples, a truncated part, sample formats other than 16-bit PCM with one or two
/// channels, parts that differ ([`InvalidMedia::Mixed`]), and more than 4 GiB.
pub fn wav_from_parts(parts: &[Bytes]) -> Result<Bytes, InvalidMedia> {
    let mut format = None;
    let mut blocks = Vec::new();
    for part in parts {
        let (of_part, samples) = samples(part)?;
        if *format.get_or_insert(of_part) != of_part {
            return Err(InvalidMedia::Mixed);
        }
        blocks.push(samples);
    }
    let is_empty = blocks.iter().all(|block| block.is_empty());
    let format = format.filter(|_| !is_empty).ok_or(InvalidMedia::Empty)?;
    wav(format.channels, format.rate, &blocks).ok_or(InvalidMedia::TooLarge)
}

/// Adds a header to samples of 16-bit PCM, little-endian; `None` if they are too long for it.
pub fn wav(channels: u16, rate: u32, blocks: &[&[u8]]) -> Option<Bytes> {
    let size: usize = blocks.iter().map(|block| block.len()).sum();
    let block_bytes = channels.checked_mul(2).filter(|bytes| *bytes > 0)?;
    let mut file = BytesMut::with_capacity(44 + size);
    let size = u32::try_from(size).ok()?;
    file.put_slice(b"RIFF");
    file.put_u32_le(size.checked_add(36)?);
    file.put_slice(b"WAVEfmt ");
    file.put_u32_le(16);
    file.put_u16_le(1);
    file.put_u16_le(channels);
    file.put_u32_le(rate);
    file.put_u32_le(rate.checked_mul(block_bytes.into())?);
    file.put_u16_le(block_bytes);
    file.put_u16_le(16);
    file.put_slice(b"data");
    file.put_u32_le(size);
    for block in blocks {
        file.put_slice(block);
    }
    Some(file.freeze())
}

/// Whether the header describes the format of PCM without a header: 24 kHz, 16 bits, mono.
pub fn is_bare_pcm(header: &[u8]) -> bool {
    parse(header).is_ok_and(|(format, ..)| format == BARE)
}

/// Returns the duration of a WAV with real sizes.
pub(in crate::media) fn seconds(bytes: &[u8]) -> Result<f64, InvalidMedia> {
    let riff = bytes.read_at(4).map(u32::from_le_bytes);
    let riff = u64::from(riff.ok_or(InvalidMedia::Cut)?) + 8;
    if riff > u64::try_from(bytes.len()).unwrap_or(u64::MAX) {
        return Err(InvalidMedia::Cut);
    }
    let (format, claimed, rest) = parse(bytes)?;
    let there = u32::try_from(rest.len()).unwrap_or(u32::MAX);
    if claimed > there {
        return Err(InvalidMedia::Cut);
    }
    if claimed == 0 {
        return Err(InvalidMedia::Empty);
    }
    Ok(f64::from(claimed) / f64::from(format.bytes_per_second()))
}

/// Returns the samples of a part, in whole blocks.
fn samples(part: &[u8]) -> Result<(Format, &[u8]), InvalidMedia> {
    let (format, samples) = if part.starts_with(b"RIFF") {
        let (format, claimed, rest) = parse(part)?;
        // With a placeholder, the rest is audio.
        let open = claimed == 0 || claimed >= PLACEHOLDER;
        let length = usize::try_from(claimed).map_err(|_| InvalidMedia::TooLarge)?;
        let samples = if open { Some(rest) } else { rest.get(..length) };
        (format, samples.ok_or(InvalidMedia::Cut)?)
    } else {
        check_bare(part)?;
        (BARE, part)
    };
    let block = usize::from(format.bytes_per_block());
    let whole = samples.len() / block * block;
    Ok((format, samples.get(..whole).unwrap_or_default()))
}

/// Returns the format, the stated length of the samples, and all bytes from the first sample on.
fn parse(bytes: &[u8]) -> Result<(Format, u32, &[u8]), InvalidMedia> {
    if bytes.get(8..12) != Some(b"WAVE") {
        return Err(InvalidMedia::Unknown);
    }
    let mut rest = bytes.get(12..).unwrap_or_default();
    let mut format = None;
    loop {
        let (name, after) = rest.split_first_chunk::<4>().ok_or(InvalidMedia::Cut)?;
        let (size, after) = after.split_first_chunk::<4>().ok_or(InvalidMedia::Cut)?;
        let size = u32::from_le_bytes(*size);
        if name == b"data" {
            let format = format.ok_or(InvalidMedia::Damaged("a WAV without a format"))?;
            return Ok((format, size, after));
        }
        // Chunks begin at even offsets. Every iteration advances by at least eight bytes.
        let padded = usize::try_from(size).map_err(|_| InvalidMedia::Cut)?;
        let padded = padded.checked_add(padded % 2).ok_or(InvalidMedia::Cut)?;
        let (content, next) = after.split_at_checked(padded).ok_or(InvalidMedia::Cut)?;
        if name == b"fmt " {
            format = Some(read_format(content)?);
        }
        rest = next;
    }
}

fn read_format(chunk: &[u8]) -> Result<Format, InvalidMedia> {
    const SHORT: InvalidMedia = InvalidMedia::Damaged("a WAV with half a format");
    let u16_at = |offset| chunk.read_at(offset).map(u16::from_le_bytes).ok_or(SHORT);
    let rate = chunk.read_at(4).map(u32::from_le_bytes);
    let mut code = u16_at(0)?;
    if code == 0xfffe {
        // In the extensible form, the code is the start of a longer identifier.
        code = u16_at(24)?;
    }
    let format = Format {
        channels: u16_at(2)?,
        rate: rate.ok_or(SHORT)?,
    };
    let known = code == 1
        && u16_at(14)? == 16
        && matches!(format.channels, 1 | 2)
        && (4_000..=192_000).contains(&format.rate)
        && u16_at(12)? == format.bytes_per_block();
    if known {
        Ok(format)
    } else {
        Err(InvalidMedia::Unsupported("a WAV of other than 16-bit PCM"))
    }
}

/// Checks raw PCM, which has no signature: data that certainly has another format is refused, so
/// that an error page is not stored as noise.
fn check_bare(part: &[u8]) -> Result<(), InvalidMedia> {
    if part.is_empty() {
        return Err(InvalidMedia::Empty);
    }
    let known: [&[u8]; 6] = [b"ID3", b"OggS", b"fLaC", b"\x1f\x8b", b"\x89PNG", b"FORM"];
    if known.iter().any(|start| part.starts_with(start)) {
        return Err(InvalidMedia::Unknown);
    }
    let sample = part.get(..TEXT_SAMPLE).unwrap_or(part);
    let printable = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    if sample.iter().all(printable) {
        return Err(InvalidMedia::Unknown);
    }
    Ok(())
}
