//! Colored waves, the picture of the sandbox's images and videos.
//!
//! Integer arithmetic only, so that every machine draws the same and an unoptimized build is fast
//! enough.

use super::seed::Seed;

/// A sine table: a turn in 1024 steps, from -2047 to 2047.
static SINE: [i32; 1024] = sine();

/// Bhaskara's approximation (off by 0.2 % at most): it needs no floating point.
const fn sine() -> [i32; 1024] {
    let mut table = [0; 1024];
    let (mut index, mut step) = (0, 0);
    while index < 512 {
        let product = step * (512 - step);
        table[index] = 16 * product * 2047 / (5 * 512 * 512 - 4 * product);
        table[index + 512] = -table[index];
        index += 1;
        step += 1;
    }
    table
}

/// The sine of `phase`, of which a turn has 2^32 steps; -2047 to 2047.
pub(super) fn wave(phase: u32) -> i32 {
    let [high, low, ..] = phase.to_be_bytes();
    SINE[usize::from(u16::from_be_bytes([high, low]) >> 6)]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Plain,
    /// Saturated colors, far apart.
    Vivid,
    Natural,
}

/// 256 RGB colors; the last and the first are adjacent.
pub(super) fn palette(seed: &Seed, mood: Mood) -> [[u8; 3]; 256] {
    // The phase shift between channels, in 256ths of a turn: 0 gives grays, a third the whole
    // rainbow.
    let (middle, reach, behind) = match mood {
        Mood::Plain => ([128, 128, 132], 96, 18 + seed.choice(4, 34)),
        Mood::Vivid => ([132, 120, 128], 124, 56 + seed.choice(4, 34)),
        Mood::Natural => ([142, 126, 98], 52, 6),
    };
    let behind = u32::from(behind) << 24;
    // Which channel leads, and in which direction.
    let (lead, sense) = (seed.choice(5, 3), seed.choice(6, 2));
    let start = seed.word(0);
    let mut colours = [[0; 3]; 256];
    for (index, colour) in (0_u8..=255).zip(&mut colours) {
        let phase = u32::from(index) << 24;
        for (channel, value) in (0_u8..).zip(colour) {
            let place = u32::from((channel + lead) % 3);
            let lag = behind.wrapping_mul(if sense == 0 { place } else { 2 - place });
            let phase = phase.wrapping_add(start).wrapping_add(lag);
            let level = middle[usize::from(channel)] + reach * wave(phase) / 2047;
            *value = u8::try_from(level.clamp(0, 255)).unwrap_or(u8::MAX);
        }
    }
    colours
}

/// One wave: plane, or circular around a center. Phases are in 2^-32 turns.
#[derive(Debug, Clone, Copy)]
struct Wave {
    phase: u32,
    right: u32,
    down: u32,
    bend: u32,
    centre: (u32, u32),
    frame: u32,
    height: i32,
}

/// Superimposed waves.
#[derive(Debug, Clone)]
pub(super) struct Field {
    waves: Vec<Wave>,
}

impl Field {
    /// `count` waves over `size` pixels with a period of `period` frames. A field of more waves
    /// contains those of a field of fewer. The same seed gives the same picture at every size of
    /// one aspect ratio.
    pub(super) fn new(seed: &Seed, size: (u32, u32), count: usize, period: u32) -> Self {
        let short = size.0.min(size.1).max(1);
        // An eighth of a wave over the short side, and an eighth of a ring within it.
        let eighth = u32::MAX / short / 8;
        let ring = u32::MAX / short.saturating_mul(short) / 8;
        let waves = (0..count).map(|index| {
            let at = 7 + 5 * index;
            let (finer, height) = if index < 3 { (1, 36) } else { (4, 9) };
            // From -12 to 12 eighths, as a wrapping number.
            let slope = |index| {
                let eighths = u32::from(seed.choice(index, 25)).wrapping_sub(12);
                eighth.wrapping_mul(eighths).wrapping_mul(finer)
            };
            let bent = index % 2 == 0;
            let turns = 1 + u32::from(seed.choice(at + 3, 2));
            Wave {
                phase: seed.word(at),
                right: slope(at),
                down: slope(at + 1),
                bend: if bent {
                    ring * finer * (4 + u32::from(seed.choice(at + 2, 9)))
                } else {
                    0
                },
                centre: (
                    size.0 * u32::from(seed.choice(at + 3, 101)) / 100,
                    size.1 * u32::from(seed.choice(at + 4, 101)) / 100,
                ),
                frame: (u32::MAX / period.max(1)).wrapping_mul(if bent {
                    turns.wrapping_neg()
                } else {
                    turns
                }),
                height,
            }
        });
        Self {
            waves: waves.collect(),
        }
    }

    /// Palette indices of row `y` of `frame`.
    pub(super) fn row(&self, y: u32, frame: u32, sums: &mut Vec<i32>, row: &mut [u8]) {
        sums.clear();
        sums.resize(row.len(), 0);
        for wave_of in &self.waves {
            wave_of.add(y, frame, sums);
        }
        for (index, sum) in row.iter_mut().zip(sums) {
            // The palette is circular, so the index may wrap.
            [*index, ..] = (*sum / 1024 + 128).to_le_bytes();
        }
    }
}

impl Wave {
    fn add(&self, y: u32, frame: u32, sums: &mut [i32]) {
        let square = |value: u32| value.wrapping_mul(value);
        let mut phase = self
            .phase
            .wrapping_add(self.down.wrapping_mul(y))
            .wrapping_add(self.frame.wrapping_mul(frame));
        let distance = square(self.centre.0).wrapping_add(square(y.wrapping_sub(self.centre.1)));
        phase = phase.wrapping_add(self.bend.wrapping_mul(distance));
        // (x + 1 - c)^2 - (x - c)^2 grows by 2 from pixel to pixel.
        let mut step = self.right.wrapping_add(
            self.bend
                .wrapping_mul(1_u32.wrapping_sub(self.centre.0.wrapping_mul(2))),
        );
        for sum in sums {
            *sum += wave(phase) * self.height;
            phase = phase.wrapping_add(step);
            step = step.wrapping_add(self.bend.wrapping_mul(2));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sine_of_quarters() {
        for (phase, value) in [(0, 0), (1 << 30, 2047), (1 << 31, 0), (3 << 30, -2047)] {
            assert_eq!(wave(phase), value, "{phase}");
        }
        // An eighth of a turn: 0.7071.
        assert!((wave(1 << 29) - 1447).abs() < 6, "{}", wave(1 << 29));
    }

    #[test]
    fn natural_is_paler_than_vivid() {
        let seed = Seed::of(&[b"a"]);
        let spread = |mood| {
            let colours = palette(&seed, mood);
            colours
                .iter()
                .map(|rgb| u32::from(rgb.iter().max().unwrap() - rgb.iter().min().unwrap()))
                .sum::<u32>()
        };
        assert!(spread(Mood::Natural) < spread(Mood::Plain));
        assert!(spread(Mood::Plain) < spread(Mood::Vivid));
    }

    #[test]
    fn frames_come_back_to_the_first() {
        let field = Field::new(&Seed::of(&[b"a"]), (64, 64), 3, 96);
        let row = |frame| {
            let mut row = [0; 64];
            field.row(5, frame, &mut Vec::new(), &mut row);
            row
        };
        assert_ne!(row(0), row(10));
        let off = row(0).into_iter().zip(row(96)).filter(|(a, b)| a != b);
        assert!(off.count() < 8);
    }
}
