//! Scales images to exact pixel sizes.

use std::io::Cursor;

use bytes::Bytes;
use image::{
    DynamicImage, ImageDecoder, ImageEncoder, ImageError, ImageFormat, ImageReader, Limits,
    codecs::png::{CompressionType, FilterType as PngFilter, PngEncoder},
    imageops::FilterType,
};

use super::{
    InvalidMedia, MediaKind,
    probe::{picture_size, sniff},
};

/// Maximum side of a decoded image, in pixels.
pub const LONGEST_SIDE: u32 = 8_192;

/// Maximum pixels of a decoded image.
pub const MOST_PIXELS: u64 = 32 << 20;

/// Memory limit of decoding, in bytes: 32 Mi pixels of 16-bit RGBA.
const MOST_MEMORY: u64 = 256 << 20;

/// Tolerance of the aspect ratio, in hundredths: vendors round sides to multiples of 8 or 64.
const SHAPE_TOLERANCE: u64 = 2;

/// Returns a PNG of exactly `width` by `height` pixels, from a PNG, JPEG or WebP of that aspect
/// ratio (within 2 %). A PNG of this size is decoded once, to check it, and returned unchanged.
/// Other images are scaled (Lanczos) up or down, with 8 bits per channel and their color profile.
///
/// Takes up to seconds and some 300 MiB for the largest image (8,192 pixels a side, 32 Mi
/// pixels): call it on a blocking thread, and not for many images at once.
///
/// Refused: other formats ([`InvalidMedia::Unknown`], [`InvalidMedia::WrongType`]), other aspect
/// ratios, and images that are too large once decoded, truncated or damaged.
pub fn fit_png(bytes: &Bytes, width: u32, height: u32) -> Result<Bytes, InvalidMedia> {
    let kind = sniff(bytes)?;
    let format = ImageFormat::from_mime_type(kind.content_type());
    let format = format.ok_or(InvalidMedia::WrongType { found: kind })?;
    let claimed = picture_size(kind, bytes)?;
    check_size(claimed)?;
    let (image, profile) = decode(format, bytes)?;
    let has = (image.width(), image.height());
    if !same_shape(has, (width, height)) {
        let (width, height) = has;
        return Err(InvalidMedia::Shape { width, height });
    }
    if kind == MediaKind::Png && has == (width, height) {
        return Ok(bytes.clone());
    }
    encode(&scale(image, (width, height)), profile)
}

fn check_size((width, height): (u32, u32)) -> Result<(), InvalidMedia> {
    let pixels = u64::from(width) * u64::from(height);
    if width > LONGEST_SIDE || height > LONGEST_SIDE || pixels > MOST_PIXELS {
        return Err(InvalidMedia::TooLarge);
    }
    Ok(())
}

/// Returns the decoded image, upright, and its color profile.
fn decode(
    format: ImageFormat,
    bytes: &[u8],
) -> Result<(DynamicImage, Option<Vec<u8>>), InvalidMedia> {
    let mut limits = Limits::default();
    limits.max_image_width = Some(LONGEST_SIDE);
    limits.max_image_height = Some(LONGEST_SIDE);
    limits.max_alloc = Some(MOST_MEMORY);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(|error| refusal(&error))?;
    check_size(decoder.dimensions())?;
    if decoder.total_bytes() > MOST_MEMORY {
        return Err(InvalidMedia::TooLarge);
    }
    // Both are optional: an image without them is valid.
    let profile = decoder.icc_profile().ok().flatten();
    let orientation = decoder.orientation().ok();
    let mut image = DynamicImage::from_decoder(decoder).map_err(|error| refusal(&error))?;
    if let Some(orientation) = orientation {
        image.apply_orientation(orientation);
    }
    Ok((image, profile))
}

pub(super) fn refusal(error: &ImageError) -> InvalidMedia {
    match error {
        ImageError::Limits(_) => InvalidMedia::TooLarge,
        ImageError::Unsupported(_) => InvalidMedia::Unsupported("this kind of image"),
        ImageError::IoError(_) => InvalidMedia::Cut,
        _ => InvalidMedia::Damaged("its pixels cannot be decoded"),
    }
}

/// Whether two sizes have the same aspect ratio within the tolerance, in exact arithmetic.
pub fn same_shape(has: (u32, u32), wanted: (u32, u32)) -> bool {
    let one = u64::from(has.0) * u64::from(wanted.1);
    let other = u64::from(has.1) * u64::from(wanted.0);
    let (low, high) = (one.min(other), one.max(other));
    low > 0 && u128::from(high - low) * 100 <= u128::from(low) * u128::from(SHAPE_TOLERANCE)
}

/// Scales to exactly this size, with eight bits per channel. Colors are weighted by alpha, so that
/// those of transparent pixels do not bleed into their neighbors.
fn scale(image: DynamicImage, (width, height): (u32, u32)) -> DynamicImage {
    if !image.color().has_alpha() {
        let image = DynamicImage::from(image.into_rgb8());
        return resize(&image, width, height);
    }
    let mut image = image.into_rgba8();
    for pixel in image.pixels_mut() {
        let [red, green, blue, alpha] = pixel.0;
        let weigh = |colour: u8| {
            let weighed = (u16::from(colour) * u16::from(alpha) + 127) / 255;
            u8::try_from(weighed).unwrap_or(u8::MAX)
        };
        pixel.0 = [weigh(red), weigh(green), weigh(blue), alpha];
    }
    let mut image = resize(&DynamicImage::from(image), width, height).into_rgba8();
    for pixel in image.pixels_mut() {
        let [red, green, blue, alpha] = pixel.0;
        let unweigh = |colour: u8| {
            let full = (u16::from(colour) * 255 + u16::from(alpha) / 2)
                .checked_div(u16::from(alpha))
                .unwrap_or(0);
            u8::try_from(full).unwrap_or(u8::MAX)
        };
        pixel.0 = [unweigh(red), unweigh(green), unweigh(blue), alpha];
    }
    image.into()
}

fn resize(image: &DynamicImage, width: u32, height: u32) -> DynamicImage {
    if (image.width(), image.height()) == (width, height) {
        return image.clone();
    }
    image.resize_exact(width, height, FilterType::Lanczos3)
}

fn encode(image: &DynamicImage, profile: Option<Vec<u8>>) -> Result<Bytes, InvalidMedia> {
    let mut png = Vec::new();
    let mut encoder =
        PngEncoder::new_with_quality(&mut png, CompressionType::Default, PngFilter::Adaptive);
    if let Some(profile) = profile {
        // An encoder without profile support writes the image without it.
        let _unsupported = encoder.set_icc_profile(profile);
    }
    let colour = image.color().into();
    encoder
        .write_image(image.as_bytes(), image.width(), image.height(), colour)
        .map_err(|_| InvalidMedia::Damaged("its pixels cannot be written"))?;
    Ok(png.into())
}

#[cfg(test)]
mod tests;
