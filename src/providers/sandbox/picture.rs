//! Draws the sandbox's pictures: bands in two colors, curved by the seed.

use std::io::Cursor;

use bytes::Bytes;
use image::{ImageError, ImageFormat, Rgb, RgbImage};

use super::seed::Seed;
use crate::{domain::pricing::Quality, request::Style};

/// Draws a picture. The same seed gives the same motif at every size of one aspect ratio.
pub(super) fn draw(
    seed: &Seed,
    (width, height): (u32, u32),
    quality: Quality,
    style: Option<Style>,
) -> RgbImage {
    let colours = colours(seed, quality, style);
    let short = width.min(height).max(1);
    // The phase of a pixel is a sum of squares (ellipses) or their difference (hyperbolas), so each
    // column and each row has one term.
    let terms = |length: u32, at: usize| -> Vec<u32> {
        let centre = u32::from(seed.choice(at, u8::MAX));
        let bend = 1 + u32::from(seed.choice(at + 1, 4));
        let square = |pixel: u32| (pixel * 256 / short).abs_diff(centre).pow(2) * bend;
        (0..length).map(square).collect()
    };
    let (columns, rows) = (terms(width, 4), terms(height, 6));
    let is_ellipse = seed.choice(8, 2) == 0;
    RgbImage::from_fn(width, height, |x, y| {
        let (column, row) = (columns[x as usize], rows[y as usize]);
        let phase = if is_ellipse {
            column.wrapping_add(row)
        } else {
            column.wrapping_sub(row)
        };
        colours[(phase / 256 % 256) as usize]
    })
}

/// Returns colors from one to another and back. In standard quality there are eight.
fn colours(seed: &Seed, quality: Quality, style: Option<Style>) -> Vec<Rgb<u8>> {
    let tones = match quality {
        Quality::Standard => 0xe0,
        Quality::Hd => 0xff,
    };
    let tint = |value: u8| match style {
        None => value,
        Some(Style::Vivid) if value < 128 => value / 2,
        Some(Style::Vivid) => 127 + value / 2,
        Some(Style::Natural) => 64 + value / 2,
    };
    let start = [1, 2, 3].map(|at| seed.choice(at, u8::MAX));
    let colour = |index: u32| {
        let part = (index.min(255 - index) * 2) & tones;
        Rgb(start.map(|from| {
            let (from, to) = (u32::from(from), u32::from(from ^ 0x80));
            let value = (from * (255 - part) + to * part) / 255;
            tint(u8::try_from(value).unwrap_or(u8::MAX))
        }))
    };
    (0..256).map(colour).collect()
}

pub(super) fn png(picture: &RgbImage) -> Result<Bytes, ImageError> {
    let mut file = Cursor::new(Vec::new());
    picture.write_to(&mut file, ImageFormat::Png)?;
    Ok(file.into_inner().into())
}
