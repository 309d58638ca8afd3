use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{mp3::Frames, *};
use crate::media::InvalidMedia;

/// Returns silent frames of MPEG-1 at 44.1 kHz, stereo; `version` 2 makes them MPEG-2 at 22.05 kHz.
pub(in crate::media) fn frames(version: u8, count: usize) -> Vec<u8> {
    let header = [0xff, 0xe3 | version << 3, 0x90, 0x00];
    // 128 kbit/s: 144 * 128000 / 44100; 80 kbit/s: 72 * 80000 / 22050.
    let length = if version == 3 { 417 } else { 261 };
    let mut frame = header.to_vec();
    frame.resize(length, 0);
    // Different bodies, so that a lost frame would show.
    frame[40] = version;
    frame.repeat(count)
}

fn id3(length: u8) -> Vec<u8> {
    let mut tag = vec![b'I', b'D', b'3', 4, 0, 0, 0, 0, 0, length];
    // A tag that contains bytes like frames.
    tag.extend(frames(3, 1).iter().take(length.into()));
    tag
}

fn table(name: &[u8]) -> Vec<u8> {
    let mut frame = frames(3, 1);
    frame[36..40].copy_from_slice(name);
    frame
}

fn seconds(count: f64) -> f64 {
    count * 1_152.0 / 44_100.0
}

#[test]
fn mp3_parts_become_one() {
    let tail = [b"TAG".as_slice(), &[b'x'; 125]].concat();
    let parts = [
        [id3(100), table(b"Xing"), frames(3, 10), tail].concat(),
        [id3(7), id3(120), table(b"Info"), frames(3, 5)].concat(),
        [table(b"VBRI"), frames(3, 3), frames(3, 1)[..200].to_vec()].concat(),
        Vec::new(),
    ];
    let joined = mp3_from_parts(&parts.map(Bytes::from)).unwrap();
    assert!((mp3_seconds(&joined).unwrap() - seconds(18.0)).abs() < 1e-9);
    let all: Vec<_> = Frames::new(&joined).collect();
    assert_eq!(all.len(), 19);
    assert!(all[0].is_table() && all[1..].iter().all(|frame| !frame.is_table()));
    let sound: Vec<u8> = all[1..]
        .iter()
        .flat_map(|frame| frame.bytes)
        .copied()
        .collect();
    assert_eq!(sound, frames(3, 18), "no byte of sound is lost");
    // The table: its name, its flags, frames, bytes, and ascending positions.
    let head = all[0].bytes;
    assert_eq!(&head[36..44], b"Info\0\0\0\x07");
    assert_eq!(head[44..48], 18_u32.to_be_bytes());
    assert_eq!(
        head[48..52],
        u32::try_from(joined.len()).unwrap().to_be_bytes()
    );
    assert!(head[52..152].is_sorted());
    assert!(head[151] > 230);
    // A joined file is not changed.
    assert_eq!(
        mp3_from_parts(std::slice::from_ref(&joined)).unwrap(),
        joined
    );
}

#[test]
fn mp3_parts_that_do_not_fit() {
    let join = |parts: &[Vec<u8>]| {
        let parts: Vec<_> = parts.iter().cloned().map(Bytes::from).collect();
        mp3_from_parts(&parts)
    };
    assert_eq!(join(&[]), Err(InvalidMedia::Empty));
    assert_eq!(join(&[vec![]]), Err(InvalidMedia::Empty));
    assert_eq!(
        join(&[frames(3, 5), frames(2, 5)]),
        Err(InvalidMedia::Mixed)
    );
    for bad in [
        b"<html>".repeat(50),
        vec![0; 500],
        vec![0xff; 500],
        id3(100),
        frames(3, 1)[..300].to_vec(),
    ] {
        let refused = join(&[frames(3, 5), bad]);
        assert!(
            matches!(refused, Err(InvalidMedia::Damaged(_))),
            "{refused:?}"
        );
    }
    let noisy = [frames(3, 2), vec![0x55; 2_000]].concat();
    assert!(mp3_seconds(&noisy).is_err());
}

#[test]
fn mp3_of_a_lower_rate() {
    let joined = mp3_from_parts(&[frames(2, 40).into()]).unwrap();
    assert!((mp3_seconds(&joined).unwrap() - 40.0 * 576.0 / 22_050.0).abs() < 1e-9);
    assert_eq!(Frames::new(&joined).count(), 41);
}

/// Builds a WAV with the given sizes, and a chunk between format and samples.
fn wav(rate: u32, channels: u16, claimed: u32, samples: &[u8]) -> Bytes {
    let block = channels * 2;
    [
        b"RIFF".as_slice(),
        &claimed.wrapping_add(46).to_le_bytes(),
        b"WAVEfmt \x10\0\0\0\x01\0",
        &channels.to_le_bytes(),
        &rate.to_le_bytes(),
        &(rate * u32::from(block)).to_le_bytes(),
        &block.to_le_bytes(),
        b"\x10\0LIST\x01\0\0\0x\0data",
        &claimed.to_le_bytes(),
        samples,
    ]
    .concat()
    .into()
}

#[test]
fn wav_parts_become_one() {
    let bare = Bytes::from(vec![200; 4_801]);
    for claimed in [0, 9_600, 0x7fff_ffff, 0xffff_ffff, 0xffff_ffd7] {
        let part = wav(24_000, 1, claimed, &[100; 9_600]);
        let joined = wav_from_parts(&[part, bare.clone()]).unwrap();
        assert_eq!(joined.len(), 44 + 9_600 + 4_800);
        assert_eq!(joined[4..8], (36_u32 + 14_400).to_le_bytes());
        assert_eq!(joined[40..44], 14_400_u32.to_le_bytes());
        assert_eq!(joined[44..44 + 9_600], [100; 9_600]);
        assert!((wav_seconds(&joined).unwrap() - 0.3).abs() < 1e-9);
        assert_eq!(
            wav_from_parts(std::slice::from_ref(&joined)).unwrap(),
            joined
        );
    }
    let stereo = wav_from_parts(&[wav(44_100, 2, 0, &[1; 4_411])]).unwrap();
    assert_eq!(stereo.len(), 44 + 4_408, "whole blocks");
}

#[test]
fn wav_parts_that_do_not_fit() {
    let join = wav_from_parts;
    let good = wav(24_000, 1, 4, &[0; 4]);
    assert_eq!(join(&[]), Err(InvalidMedia::Empty));
    assert_eq!(join(&[Bytes::new()]), Err(InvalidMedia::Empty));
    assert_eq!(join(&[wav(24_000, 1, 0, &[])]), Err(InvalidMedia::Empty));
    assert_eq!(
        join(&[good.clone(), wav(16_000, 1, 4, &[0; 4])]),
        Err(InvalidMedia::Mixed)
    );
    assert_eq!(
        join(&[good.clone(), wav(24_000, 2, 4, &[0; 4])]),
        Err(InvalidMedia::Mixed)
    );
    assert_eq!(
        join(&[wav(24_000, 1, 100, &[0; 90])]),
        Err(InvalidMedia::Cut)
    );
    assert_eq!(join(&[good.slice(..30)]), Err(InvalidMedia::Cut));
    assert!(matches!(
        join(&[wav(24_000, 3, 6, &[0; 6])]),
        Err(InvalidMedia::Unsupported(_))
    ));
    assert!(matches!(
        join(&[wav(0, 1, 6, &[0; 6])]),
        Err(InvalidMedia::Unsupported(_))
    ));
    for text in [
        b"<html><body>502 Bad Gateway".as_slice(),
        b"{\"error\": {}}",
        b"ID3\x04",
    ] {
        assert_eq!(
            join(&[Bytes::from_static(text)]),
            Err(InvalidMedia::Unknown)
        );
    }
}

#[test]
fn a_wav_must_have_true_sizes() {
    for claimed in [0, 5, 0xffff_ffff] {
        assert!(
            wav_seconds(&wav(24_000, 1, claimed, &[1; 4])).is_err(),
            "{claimed}"
        );
    }
    assert!(wav_seconds(&wav(24_000, 1, 4, &[1; 4])).is_ok());
}

/// Joining depends on the parts alone.
#[test]
fn the_same_again() {
    let parts = [Bytes::from(frames(3, 100)), Bytes::from(frames(3, 7))];
    let digest = || Sha256::digest(mp3_from_parts(&parts).unwrap());
    assert_eq!(digest(), digest());
}
