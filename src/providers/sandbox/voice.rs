//! A humming voice: vowels sing, consonants close the mouth, words have a melody.
//!
//! Integer arithmetic only, for the same reasons as [`super::art`].

use super::{art::wave, seed::Seed};

const PARTIALS: usize = 8;
/// A major pentatonic scale, in thousandths: no two of its notes clash.
const SCALE: [u64; 5] = [1_000, 1_122, 1_260, 1_498, 1_682];
/// Samples between two updates of the timbre.
const BLOCK: usize = 32;
/// Fade-out, in samples.
const FADE: usize = 1_024;
/// Transition between timbres, in samples.
const BLEND: i32 = 256;

/// The index of a closed mouth in [`TIMBRES`].
const CLOSED: usize = 5;
/// The partials of a, e, i, o, u, and of a closed mouth.
const TIMBRES: [[i32; PARTIALS]; 6] = [
    [60, 50, 60, 55, 40, 20, 12, 8],
    [60, 70, 30, 15, 25, 40, 25, 10],
    [90, 50, 12, 8, 8, 20, 35, 25],
    [70, 80, 60, 20, 10, 6, 4, 3],
    [100, 60, 15, 8, 5, 3, 2, 1],
    [70, 24, 10, 4, 2, 1, 0, 0],
];

/// The sound of one character: level, index into [`TIMBRES`], note.
#[derive(Debug, Clone, Copy)]
struct Sound {
    level: i32,
    timbre: usize,
    note: usize,
}

/// `total` samples of `text`, evenly spread over its characters. `seed` sets the pitch.
pub(super) fn sing(text: &str, seed: &Seed, rate: u32, total: usize) -> Vec<i16> {
    let sounds = sounds(text);
    // 110 to 205 Hz, in thousandths.
    let base = 110_000 + 500 * u64::from(seed.choice(0, 191));
    let steps = SCALE.map(|share| {
        let hertz = base * share / 1_000;
        u32::try_from((hertz << 32) / (u64::from(rate.max(1)) * 1_000)).unwrap_or_default()
    });
    let tables = TIMBRES.map(turn);
    let mut samples = Vec::with_capacity(total);
    let (mut phase, mut step, mut level) = (0_u32, steps[0], 0_i32);
    let (mut before, mut now, mut blend) = (&tables[CLOSED], &tables[CLOSED], BLEND);
    let mut last = CLOSED;
    while samples.len() < total {
        let Some(sound) = sounds.get(samples.len() * sounds.len() / total) else {
            break;
        };
        let left = total - samples.len();
        // All parameters glide: a jump would click.
        if blend == BLEND && sound.timbre != last {
            last = sound.timbre;
            (before, now, blend) = (now, &tables[last], 0);
        }
        step = step / 8 * 7 + steps[sound.note % SCALE.len()] / 8;
        let goal = if left < FADE { 0 } else { sound.level << 16 };
        for _ in 0..left.min(BLOCK) {
            level += (goal - level) >> 8;
            phase = phase.wrapping_add(step);
            let [high, low, ..] = phase.to_be_bytes();
            let place = usize::from(u16::from_be_bytes([high, low]) >> 6);
            let mut sum = now[place];
            if blend < BLEND {
                sum = before[place] + (sum - before[place]) * blend / BLEND;
                blend += 1;
            }
            let sample = (sum * (level >> 16)) >> 9;
            samples.push(i16::try_from(sample).unwrap_or_default());
        }
    }
    samples
}

/// One turn of a tone with `partials`, in 1024 steps.
fn turn(partials: [i32; PARTIALS]) -> [i32; 1024] {
    let mut table = [0; 1024];
    for (place, value) in (0_u32..).zip(&mut table) {
        for (order, partial) in (1_u32..).zip(partials) {
            *value += wave((place << 22).wrapping_mul(order)) * partial;
        }
        *value /= 16;
    }
    table
}

/// A word begins on the note that its letters add up to, and every syllable moves on.
fn sounds(text: &str) -> Vec<Sound> {
    let mut sounds = Vec::new();
    let (mut note, mut was_vowel) = (0_usize, false);
    for piece in text.split_inclusive(char::is_whitespace) {
        note = piece.bytes().map(usize::from).sum::<usize>() % SCALE.len();
        for letter in piece.chars() {
            let (level, timbre) = kind(letter);
            let is_vowel = level == LOUD;
            if is_vowel && !was_vowel {
                note += 1 + usize::from(letter.is_ascii_lowercase()) * (note % 3);
            }
            was_vowel = is_vowel;
            sounds.push(Sound {
                level,
                timbre,
                note,
            });
        }
    }
    if sounds.is_empty() {
        sounds.push(Sound {
            level: LOUD,
            timbre: 3,
            note,
        });
    }
    sounds
}

/// Level of a vowel.
const LOUD: i32 = 256;

/// Level and timbre. Letters of other scripts are vowels, chosen by their number.
fn kind(letter: char) -> (i32, usize) {
    match letter.to_ascii_lowercase() {
        'a' => (LOUD, 0),
        'e' => (LOUD, 1),
        'i' | 'y' => (LOUD, 2),
        'o' => (LOUD, 3),
        'u' => (LOUD, 4),
        other if other.is_ascii_alphanumeric() => (110, CLOSED),
        other if other.is_alphabetic() => {
            let [number, ..] = u32::from(other).to_le_bytes();
            (LOUD, usize::from(number) % CLOSED)
        }
        _ => (0, CLOSED),
    }
}
