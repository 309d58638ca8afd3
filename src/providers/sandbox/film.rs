//! Makes an MP4 that shows a picture moving from side to side.
//!
//! This needs no encoder: H.264 can store an uncompressed picture (macroblocks of the type `I_PCM`)
//! and shift it with a few bits per macroblock (ITU-T H.264, 7.3). So the file begins with exactly
//! the given pixels, unlike a prepared file.

use bytes::Bytes;
use image::{Rgb, RgbImage};

/// Frames per second.
const RATE: u32 = 24;
/// Frames between two key frames.
const PERIOD: u32 = 4 * RATE;
/// The short side in pixels, unless the long side would exceed [`LONG_SIDE`].
const SHORT_SIDE: u32 = 180;
const LONG_SIDE: u32 = 640;
/// Minimum side in pixels; some decoders refuse less than a macroblock.
const LEAST_SIDE: u32 = 16;

/// Returns the size of a film with this ratio; both sides are even.
pub(super) fn size((width, height): (u32, u32)) -> (u32, u32) {
    let (width, height) = (u64::from(width.max(1)), u64::from(height.max(1)));
    let (more, less) = (width.max(height), width.min(height));
    let long = (u64::from(SHORT_SIDE) * more / less).min(LONG_SIDE.into());
    let side = |part| {
        let pixels = u32::try_from(long * part / more).unwrap_or(LONG_SIDE);
        pixels.max(LEAST_SIDE).next_multiple_of(2)
    };
    (side(width), side(height))
}

/// The first box of every film.
const START: &[u8] = b"isom\0\0\x02\0isomavc1";

/// Makes an MP4 of `picture`, whose sides are even, with the index in front.
pub(super) fn make(picture: &RgbImage, seconds: u32) -> Bytes {
    write(&key_frame(picture), picture.dimensions(), seconds * RATE)
}

/// Extends a film with the same motion; `None` if `film` is not from [`make`].
pub(super) fn extend(film: &[u8], seconds: u32) -> Option<Bytes> {
    let start = boxed(*b"ftyp", &[START]);
    let rest = film.strip_prefix(&start[..])?;
    let (index, data) = rest.split_at_checked(number(rest)? as usize)?;
    // Six words of the sample entry precede the size.
    let shape = number(after(index, *b"avc1")?.get(24..)?)?;
    let size = (shape >> 16, shape & 0xffff);
    after(index, *b"avcC").filter(|settings| {
        let sequence = sequence_parameters(size);
        settings
            .get(8..)
            .is_some_and(|settings| settings.starts_with(&sequence))
    })?;
    let frames = number(after(index, *b"stsz")?.get(8..)?)?;
    let samples = data.get(8..)?;
    let key = samples.get(4..)?.get(..number(samples)? as usize)?;
    Some(write(key, size, frames.checked_add(seconds * RATE)?))
}

/// Returns the bytes after the name of the first box with this name.
fn after(index: &[u8], name: [u8; 4]) -> Option<&[u8]> {
    let at = index.windows(4).position(|window| window == name)?;
    index.get(at + 4..)
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|word| u32::from_be_bytes(*word))
}

/// Writes a film of this key frame and number of frames.
fn write(key: &[u8], size: (u32, u32), frames: u32) -> Bytes {
    let (columns, rows) = (size.0.div_ceil(16), size.1.div_ceil(16));
    let units: Vec<Vec<u8>> = (0..PERIOD)
        .map(|frame| match frame {
            0 => key.to_vec(),
            _ => shifted_frame(frame, columns * rows),
        })
        .map(|unit| [&length(unit.len())[..], &unit].concat())
        .collect();
    let count = frames as usize;
    let samples = || units.iter().cycle().take(count);
    let sizes: Vec<u32> = samples().map(|unit| word(unit.len())).collect();
    let start = boxed(*b"ftyp", &[START]);
    // The offset of the samples does not change the size of the index.
    let offset = start.len() + index(size, &sizes, 0).len() + 8;
    let mut file = start;
    file.extend(index(size, &sizes, word(offset)));
    file.extend(length(8 + samples().map(Vec::len).sum::<usize>()));
    file.extend(b"mdat");
    samples().for_each(|unit| file.extend(unit));
    file.into()
}

/// Returns the sequence parameter set: baseline profile, level 3, one reference frame, cropped to
/// the size.
fn sequence_parameters((width, height): (u32, u32)) -> Vec<u8> {
    let (columns, rows) = (width.div_ceil(16), height.div_ceil(16));
    let crop = |blocks, pixels| code((blocks * 16 - pixels) / 2);
    let bits = format!(
        "1{}{}{}{}0{}{}1111{}1{}01",
        code(0),
        code(0),
        code(5),
        code(1),
        code(columns - 1),
        code(rows - 1),
        crop(columns, width),
        crop(rows, height),
    );
    [&[0x67, 66, 0xc0, 30][..], &pack(&bits)].concat()
}

/// The picture parameter set, with all defaults.
const PICTURE_PARAMETERS: [u8; 4] = [0x68, 0xce, 0x38, 0x80];

/// Writes every macroblock as its samples. No sample is 0, so no start code needs to be escaped.
fn key_frame(picture: &RgbImage) -> Vec<u8> {
    // The slice header and the first macroblock's type, `I_PCM`.
    let mut unit = vec![0x65];
    unit.extend(pack("10001000100001000000000001000011010"));
    let (width, height) = picture.dimensions();
    for top in (0..height).step_by(16) {
        for left in (0..width).step_by(16) {
            if (top, left) != (0, 0) {
                unit.extend([0x0d, 0x00]);
            }
            let mut plane = |channel: usize, step: usize| {
                for y in (top..top + 16).step_by(step) {
                    for x in (left..left + 16).step_by(step) {
                        let pixel = picture.get_pixel(x.min(width - 1), y.min(height - 1));
                        unit.push(yuv(*pixel)[channel]);
                    }
                }
            };
            plane(0, 1);
            plane(1, 2);
            plane(2, 2);
        }
    }
    unit.push(0x80);
    unit
}

/// Returns the key frame shifted by up to 12 pixels. It is not a reference, so shifts do not add
/// up.
fn shifted_frame(frame: u32, blocks: u32) -> Vec<u8> {
    // In quarter pixels; codes of positive numbers are odd.
    let shift = code(frame.min(PERIOD - frame) * 2 - 1);
    // The other macroblocks inherit the first one's motion.
    let others = "11111".repeat(blocks as usize - 1);
    let bits = format!("10011010001{:09b}00111{shift}11{others}1", frame * 2);
    [&[0x01][..], &pack(&bits)].concat()
}

/// Returns the Exp-Golomb code of a number, as binary digits.
fn code(number: u32) -> String {
    let digits = format!("{:b}", number + 1);
    "0".repeat(digits.len() - 1) + &digits
}

/// Packs binary digits into bytes, padding the last one with zeros.
fn pack(digits: &str) -> Vec<u8> {
    let byte = |digits: &[u8]| digits.iter().fold(0, |byte, digit| byte << 1 | (digit & 1));
    let bytes = digits.as_bytes().chunks(8);
    bytes
        .map(|digits| byte(digits) << (8 - digits.len()))
        .collect()
}

/// Converts a color by ITU-R BT.601 in limited range, which players assume for small videos.
fn yuv(Rgb(rgb): Rgb<u8>) -> [u8; 3] {
    let [red, green, blue] = rgb.map(i32::from);
    [
        (66 * red + 129 * green + 25 * blue + 128) / 256 + 16,
        (-38 * red - 74 * green + 112 * blue + 128) / 256 + 128,
        (112 * red - 94 * green - 18 * blue + 128) / 256 + 128,
    ]
    .map(|value| u8::try_from(value).unwrap_or(u8::MAX))
}

/// Builds the `moov` box (ISO/IEC 14496-12) of one track with samples of these sizes, starting at
/// `offset`.
fn index((width, height): (u32, u32), sizes: &[u32], offset: u32) -> Vec<u8> {
    const MATRIX: [u32; 9] = [0x1_0000, 0, 0, 0, 0x1_0000, 0, 0, 0, 0x4000_0000];
    let count = word(sizes.len());
    let sequence = sequence_parameters((width, height));
    let sequence_length = sequence.len().to_le_bytes()[0];
    let settings = [
        &[1, 66, 0xc0, 30, 0xff, 0xe1, 0, sequence_length][..],
        &sequence,
        &[1, 0, 4],
        &PICTURE_PARAMETERS,
    ];
    let settings = boxed(*b"avcC", &settings);
    let keys: Vec<u32> = (1..=count).step_by(PERIOD as usize).collect();

    let shape = width << 16 | height;
    let entry = [0, 1, 0, 0, 0, 0, shape, 0x48_0000, 0x48_0000, 0, 0x1_0000];
    let entry = words(&[&entry[..], &[0; 7], &[0x18]].concat());
    let entry = boxed(*b"avc1", &[&entry, &[0xff, 0xff], &settings]);
    let table = boxed(
        *b"stbl",
        &[
            &boxed(*b"stsd", &[&words(&[0, 1]), &entry]),
            &boxed(*b"stts", &[&words(&[0, 1, count, 1])]),
            &boxed(*b"stsc", &[&words(&[0, 1, 1, count, 1])]),
            &boxed(*b"stsz", &[&words(&[0, 0, count]), &words(sizes)]),
            &boxed(*b"stco", &[&words(&[0, 1, offset])]),
            &boxed(*b"stss", &[&words(&[0, word(keys.len())]), &words(&keys)]),
        ],
    );
    let source = boxed(
        *b"dref",
        &[&words(&[0, 1]), &boxed(*b"url ", &[&words(&[1])])],
    );
    let information = boxed(
        *b"minf",
        &[
            &boxed(*b"vmhd", &[&words(&[1, 0, 0])]),
            &boxed(*b"dinf", &[&source]),
            &table,
        ],
    );
    let media = boxed(
        *b"mdia",
        &[
            &boxed(*b"mdhd", &[&words(&[0, 0, 0, RATE, count, 0x55c4_0000])]),
            &boxed(*b"hdlr", &[&words(&[0, 0]), b"vide", &[0; 13]]),
            &information,
        ],
    );
    let track = [3, 0, 0, 1, 0, count, 0, 0, 0, 0];
    let track = words(&[&track[..], &MATRIX, &[width << 16, height << 16]].concat());
    let track = boxed(*b"trak", &[&boxed(*b"tkhd", &[&track]), &media]);
    let movie = [0, 0, 0, RATE, count, 0x1_0000, 0x100_0000, 0, 0];
    let movie = words(&[&movie[..], &MATRIX, &[0; 6], &[2]].concat());
    boxed(*b"moov", &[&boxed(*b"mvhd", &[&movie]), &track])
}

fn boxed(name: [u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    [&length(content.len() + 8)[..], &name, &content].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Converts a number; films have only a few megabytes.
fn word(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn length(bytes: usize) -> [u8; 4] {
    word(bytes).to_be_bytes()
}
