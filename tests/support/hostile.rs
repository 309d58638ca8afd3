//! Pictures that are crafted to break a decoder.

use image::{ImageFormat, RgbImage};

use super::picture::encoded;

const FORMATS: [ImageFormat; 3] = [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP];

/// A file with one of: changed bytes, a changed header, a cut, two formats in one, giant
/// dimensions, noise. `picture`: its content by width and height.
pub fn broken(random: &mut fastrand::Rng, picture: fn(u32, u32) -> RgbImage) -> Vec<u8> {
    let format = random.choice(FORMATS).unwrap();
    let mut bytes = encoded(picture(random.u32(1..90), 33), format);
    match random.u8(..6) {
        0 => {
            for _ in 0..random.usize(1..20) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
        }
        1 => {
            let end = bytes.len().min(64);
            bytes[random.usize(..end)..end].fill_with(|| random.u8(..));
        }
        2 => bytes.truncate(random.usize(..bytes.len())),
        3 => {
            let other = encoded(picture(5, 5), random.choice(FORMATS).unwrap());
            let at = random.usize(..bytes.len());
            bytes.splice(at..at, other);
        }
        4 => {
            let at = random.usize(..bytes.len().min(40));
            let end = (at + 4).min(bytes.len());
            bytes[at..end].fill(0xff);
        }
        _ => {
            let noise = std::iter::repeat_with(|| random.u8(..)).take(2_000);
            bytes.splice(12.., noise.collect::<Vec<_>>());
        }
    }
    bytes
}

/// The media type that the first byte of a picture suggests.
pub fn media_type(picture: &[u8]) -> &'static str {
    match picture.first() {
        Some(0xff) => "image/jpeg",
        Some(b'R') => "image/webp",
        _ => "image/png",
    }
}
