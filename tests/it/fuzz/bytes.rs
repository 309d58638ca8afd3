//! Random mutations of valid bytes.

use proptest::{collection::vec, prelude::*, sample::Index};

/// A mutation of bytes.
#[derive(Debug, Clone)]
pub enum Cut {
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    /// Duplicates that many bytes.
    Repeat(Index, usize),
    /// Flips bits of one byte.
    Flip(Index, u8),
    /// Moves the rest to the front.
    Turn(Index),
    Truncate(Index),
}

/// Up to `most` mutations of bytes.
pub fn cuts(most: usize) -> impl Strategy<Value = Vec<Cut>> {
    let at = || any::<Index>();
    let odd: Vec<&[u8]> = vec![
        b"\0",
        b"\xff",
        b"\xc3\x28",
        b"\"",
        b"{",
        b"}",
        b"[",
        b",",
        b"1e999",
        b"-",
        b"NaN",
        b"\\ud800",
        b"\\u0000",
        b"\"a\":1,\"a\":2,",
        b"\n\n",
        b"\r",
        b"data:",
        b"event: error\n",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"\x7f\xff\xff\xff",
    ];
    let odd = prop_oneof![
        prop::sample::select(odd).prop_map(<[u8]>::to_vec),
        vec(any::<u8>(), 1..8),
    ];
    let one = prop_oneof![
        4 => (at(), odd)
                .prop_map(|(at, bytes)| Cut::Insert(at, bytes)),
        3 => (at(), 1..40_usize)
                .prop_map(|(at, n)| Cut::Remove(at, n)),
        3 => (at(), 1..400_usize)
                .prop_map(|(at, n)| Cut::Repeat(at, n)),
        4 => (at(), 1..=255_u8)
                .prop_map(|(at, bits)| Cut::Flip(at, bits)),
        1 => at().prop_map(Cut::Turn),
        1 => at().prop_map(Cut::Truncate),
    ];
    vec(one, 0..=most)
}

/// Applies the mutations.
pub fn cut(bytes: &mut Vec<u8>, cuts: &[Cut]) {
    for cut in cuts {
        let at = |index: &Index| index.index(bytes.len() + 1);
        match cut {
            Cut::Insert(index, new) => {
                let at = at(index);
                bytes.splice(at..at, new.iter().copied());
            }
            Cut::Remove(index, n) => {
                let at = at(index);
                let end = bytes.len().min(at + n);
                bytes.drain(at..end);
            }
            Cut::Repeat(index, n) => {
                let at = at(index);
                let again = bytes[at..bytes.len().min(at + n)].to_vec();
                bytes.splice(at..at, again);
            }
            Cut::Flip(index, bits) => {
                let at = at(index);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= bits;
                }
            }
            Cut::Turn(index) => {
                let at = at(index);
                bytes.rotate_left(at);
            }
            Cut::Truncate(index) => {
                let at = at(index);
                bytes.truncate(at);
            }
        }
    }
}
