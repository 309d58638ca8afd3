use bytes::Bytes;
use image::{ImageFormat, RgbImage};
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::media::{fit_png, mp3_from_parts, wav_from_parts};

/// Builds a box with its header.
fn boxed(name: [u8; 4], content: &[u8]) -> Vec<u8> {
    let size = u32::try_from(content.len() + 8).unwrap();
    [&size.to_be_bytes(), name.as_slice(), content].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Builds a header and one video track of `units` milliseconds.
fn moov(units: u32, size: (u32, u32), turned: bool) -> Vec<u8> {
    let one = 0x1_0000;
    let matrix = if turned {
        [0, one, 0, u32::MAX - one + 1, 0, 0, 0, 0, 0x4000_0000]
    } else {
        [one, 0, 0, 0, one, 0, 0, 0, 0x4000_0000]
    };
    let tkhd = [
        words(&[0, 0, 0, 1, 0, units, 0, 0, 0, 0]),
        words(&matrix),
        words(&[size.0 << 16, size.1 << 16]),
    ];
    let hdlr = [words(&[0, 0]), b"vide".to_vec(), words(&[0, 0, 0])];
    let mdia = [
        boxed(*b"mdhd", &words(&[0, 0, 0, 1_000, units, 0])),
        boxed(*b"hdlr", &hdlr.concat()),
    ];
    let trak = [
        boxed(*b"tkhd", &tkhd.concat()),
        boxed(*b"mdia", &mdia.concat()),
    ];
    let parts = [
        boxed(*b"mvhd", &words(&[0, 0, 0, 1_000, units, 0, 0])),
        boxed(*b"trak", &boxed(*b"mdia", &[])),
        boxed(*b"trak", &trak.concat()),
    ];
    boxed(*b"moov", &parts.concat())
}

fn file(middle: &[Vec<u8>]) -> Vec<u8> {
    [
        boxed(*b"ftyp", b"isom\0\0\x02\0isomiso2avc1mp41"),
        middle.concat(),
        boxed(*b"mdat", &[1; 100]),
    ]
    .concat()
}

/// Builds a video of two and a half seconds.
pub(in crate::media) fn mp4() -> Vec<u8> {
    file(&[moov(2_500, (640, 360), false)])
}

fn picture(format: ImageFormat, width: u32, height: u32) -> Vec<u8> {
    let image = RgbImage::from_fn(width, height, |x, y| {
        image::Rgb([x, y, x ^ y].map(|part| part.to_le_bytes()[0]))
    });
    let mut bytes = Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// Returns one valid file of each format.
fn files() -> Vec<(MediaKind, Vec<u8>)> {
    let mp3 = audio::tests::frames(3, 20);
    let wav = wav_from_parts(&[Bytes::from(vec![200; 4_800])]).unwrap();
    vec![
        (MediaKind::Png, picture(ImageFormat::Png, 30, 20)),
        (MediaKind::Jpeg, picture(ImageFormat::Jpeg, 30, 20)),
        (MediaKind::Webp, picture(ImageFormat::WebP, 30, 20)),
        (
            MediaKind::Mp3,
            mp3_from_parts(&[mp3.into()]).unwrap().to_vec(),
        ),
        (MediaKind::Wav, wav.to_vec()),
        (MediaKind::Mp4, mp4()),
    ]
}

#[test]
fn files_are_what_they_are() {
    for (kind, bytes) in files() {
        let info = inspect(&bytes, &[kind]).unwrap();
        assert_eq!((info.kind, info.bytes), (kind, bytes.len() as u64));
        assert_eq!(info.sha256, <[u8; 32]>::from(Sha256::digest(&bytes)));
        let size = info.width.zip(info.height);
        let (wanted, long) = match kind {
            MediaKind::Mp3 => (None, Some(20.0 * 1_152.0 / 44_100.0)),
            MediaKind::Wav => (None, Some(0.1)),
            MediaKind::Mp4 => (Some((640, 360)), Some(2.5)),
            _ => (Some((30, 20)), None),
        };
        assert_eq!((size, info.seconds), (wanted, long), "{kind:?}");
        let others: Vec<_> = MediaKind::ALL
            .iter()
            .copied()
            .filter(|&other| other != kind)
            .collect();
        assert_eq!(
            inspect(&bytes, &others),
            Err(InvalidMedia::WrongType { found: kind })
        );
    }
}

#[test]
fn cut_files_are_refused() {
    for (kind, bytes) in files() {
        // MP3 has no end marker: the remaining frames are a valid file.
        for keep in [1, 2, 9, 30, bytes.len() / 2, bytes.len() - 1] {
            let cut = inspect(&bytes[..keep], MediaKind::ALL);
            assert!(
                kind == MediaKind::Mp3 || cut.is_err(),
                "{kind:?} {keep} {cut:?}"
            );
        }
    }
}

#[test]
fn other_things_are_refused() {
    for bytes in [
        b"<!DOCTYPE html><html>".as_slice(),
        b"{\"error\": \"expired\"}",
        b"GIF89a",
        b"RIFF\0\0\0\0AVI LIST",
        b"OggS",
        b"\xff\xf1\x50\x80",
        &[0; 1_000],
    ] {
        assert_eq!(inspect(bytes, MediaKind::ALL), Err(InvalidMedia::Unknown));
    }
    assert_eq!(inspect(b"", MediaKind::ALL), Err(InvalidMedia::Empty));
}

#[test]
fn videos_of_many_kinds() {
    let read = |bytes: Vec<u8>| inspect(&bytes, &[MediaKind::Mp4]);
    let turned = read(file(&[moov(1_000, (640, 360), true)])).unwrap();
    assert_eq!(turned.width.zip(turned.height), Some((360, 640)));
    // In fragments: one with five samples of the same length, one whose two samples have their own,
    // and one of another track.
    let fragment = |header: &[u32], run: &[u32]| {
        let parts = [
            boxed(*b"tfhd", &words(header)),
            boxed(*b"trun", &words(run)),
        ];
        boxed(*b"moof", &boxed(*b"traf", &parts.concat()))
    };
    let parts = file(&[
        moov(0, (16, 16), false),
        fragment(&[8, 1, 100], &[0, 5]),
        fragment(&[0, 1], &[0x301, 2, 0, 700, 9, 800, 9]),
        fragment(&[8, 2, 100], &[0, 5]),
    ]);
    assert_eq!(read(parts).unwrap().seconds, Some(2.0));
    let short = fragment(&[0, 1], &[0x100, u32::MAX, 700]);
    assert!(read(file(&[moov(0, (16, 16), false), short])).is_err());
    // The samples' box extends to the end in one file, and has a long size in the other.
    let mut open = file(&[moov(1_000, (16, 16), false)]);
    let at = open.len() - 108;
    open[at..at + 4].fill(0);
    assert!(read(open).is_ok());
    let long = [words(&[1]), b"free".to_vec(), words(&[0, 20]), words(&[0])].concat();
    assert!(read(file(&[long, moov(1_000, (16, 16), false)])).is_ok());
    let brand = |brand: &[u8]| {
        let rest = [moov(1_000, (16, 16), false), boxed(*b"mdat", &[1])].concat();
        read([boxed(*b"ftyp", &[brand, &[0; 4]].concat()), rest].concat())
    };
    assert!(brand(b"mp42").is_ok());
    assert!(brand(b"heic").is_err());
    assert!(brand(b"qt  ").is_err());
}

#[test]
fn broken_videos() {
    let read = |bytes: Vec<u8>| inspect(&bytes, &[MediaKind::Mp4]).unwrap_err();
    let good = moov(1_000, (16, 16), false);
    read(file(&[]));
    read(file(&[moov(0, (16, 16), false)]));
    read(file(&[moov(1_000, (0, 16), false)]));
    read(file(&[boxed(*b"moov", &good[8..116])]));
    read(file(&[good.clone(), words(&[7]), b"free".to_vec()]));
    read(file(&[
        good.clone(),
        words(&[1]),
        b"free".to_vec(),
        words(&[u32::MAX, u32::MAX]),
    ]));
    read([boxed(*b"ftyp", b"isom\0\0\0\0"), good.clone()].concat());
    let tiny: Vec<_> = (0..20_000).map(|_| boxed(*b"free", &[])).collect();
    read(file(&[good, tiny.concat()]));
}

/// Calls everything that reads untrusted bytes; none may panic or hang.
fn try_all(bytes: &[u8]) {
    let _info = inspect(bytes, MediaKind::ALL);
    let bytes = Bytes::copy_from_slice(bytes);
    let _file = mp3_from_parts(std::slice::from_ref(&bytes));
    let _file = wav_from_parts(std::slice::from_ref(&bytes));
    let _image = fit_png(&bytes, 15, 10);
}

proptest! {
    #[test]
    fn mutations_do_no_harm(
        which in 0..6_usize,
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        cut in proptest::option::of(any::<prop::sample::Index>()),
        doubled in any::<bool>(),
    ) {
        let mut bytes = files()[which].1.clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if doubled {
            bytes.extend_from_within(..);
        }
        try_all(&bytes);
    }

    /// Replaces four bytes, the length of sizes, by extreme values.
    #[test]
    fn extreme_sizes_do_no_harm(
        which in 0..6_usize,
        at in any::<prop::sample::Index>(),
        size in prop::sample::select(vec![0_u32, 1, 7, 8, 0x7fff_ffff, 0x8000_0000, u32::MAX]),
    ) {
        let mut bytes = files()[which].1.clone();
        let at = at.index(bytes.len() - 4);
        bytes[at..at + 4].copy_from_slice(&size.to_be_bytes());
        try_all(&bytes);
    }

    #[test]
    fn noise_does_no_harm(which in 0..6_usize, keep in 0..40_usize, noise in vec(any::<u8>(), 0..2_000)) {
        let start = files()[which].1.clone();
        try_all(&[&start[..keep.min(start.len())], &noise].concat());
    }
}
