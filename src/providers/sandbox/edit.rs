//! What the sandbox makes of pictures: the source with the drawing of the prompt where the mask is
//! transparent, or else around it; references as small pictures at the lower edge. A video begins
//! with its first frame.

use std::{
    io::Cursor,
    sync::{Mutex, PoisonError},
};

use image::{
    DynamicImage, ImageDecoder as _, ImageError, ImageReader, Limits, RgbImage, imageops,
    imageops::FilterType, metadata::Orientation,
};

use crate::{
    domain::request::InputRole,
    providers::{InputPicture, ProviderError, picture::of_role},
};

/// Memory for decoding: 40 million pixels of RGBA, and some more.
const MAX_MEMORY: u64 = 192 << 20;
/// Locked while a picture is decoded, because each may take that much.
static DECODING: Mutex<()> = Mutex::new(());
/// Parts of the short side: the frame around a source, and the side of a reference.
const FRAME: u32 = 16;
const REFERENCE: u32 = 5;

/// The picture of a call whose prompt alone gives `drawn`.
pub(super) fn edited(inputs: &[InputPicture], mut drawn: RgbImage) -> Result<RgbImage, ImageError> {
    let (width, height) = drawn.dimensions();
    let short = width.min(height);
    if let Some(source) = of_role(inputs, InputRole::Source).next() {
        let source = filling(source, (width, height))?.into_rgb8();
        let mask = of_role(inputs, InputRole::Mask).next();
        let mask = mask.map(|mask| stretched(mask, (width, height)));
        let mask = mask.transpose()?.map(DynamicImage::into_rgba8);
        let inner = |x: u32, y: u32| {
            let edge = short / FRAME;
            x.min(width - 1 - x).min(y).min(height - 1 - y) >= edge
        };
        for (x, y, pixel) in drawn.enumerate_pixels_mut() {
            let keeps = match &mask {
                Some(mask) => mask.get_pixel(x, y).0[3] > 127,
                None => inner(x, y),
            };
            if keeps {
                *pixel = *source.get_pixel(x, y);
            }
        }
    }
    add_small(inputs, &mut drawn)?;
    Ok(drawn)
}

/// What a video begins with: its first frame, or else `drawn`, with the other inputs as small
/// pictures.
pub(super) fn opening(inputs: &[InputPicture], drawn: RgbImage) -> Result<RgbImage, ImageError> {
    let mut opening = match of_role(inputs, InputRole::FirstFrame).next() {
        Some(first) => filling(first, drawn.dimensions())?.into_rgb8(),
        None => drawn,
    };
    add_small(inputs, &mut opening)?;
    Ok(opening)
}

pub(super) fn undecodable(_: ImageError) -> ProviderError {
    ProviderError::rejected("an input cannot be decoded")
}

/// Adds references and the last frame at the lower edge.
fn add_small(inputs: &[InputPicture], picture: &mut RgbImage) -> Result<(), ImageError> {
    let side = (picture.width().min(picture.height()) / REFERENCE).max(1);
    let references = of_role(inputs, InputRole::Reference);
    let others = references.chain(of_role(inputs, InputRole::LastFrame));
    for (at, other) in (0..).zip(others) {
        let small = filling(other, (side, side))?.into_rgb8();
        let (left, top) = (i64::from(side) * at, i64::from(picture.height() - side));
        imageops::replace(picture, &small, left, top);
    }
    Ok(())
}

/// Scales a picture so that it fills `size`, and cuts it to that.
fn filling(picture: &InputPicture, size: (u32, u32)) -> Result<DynamicImage, ImageError> {
    let fill = |image: &DynamicImage, width, height| {
        image.resize_to_fill(width, height, FilterType::Triangle)
    };
    scaled(picture, size, fill)
}

fn stretched(picture: &InputPicture, size: (u32, u32)) -> Result<DynamicImage, ImageError> {
    let stretch = |image: &DynamicImage, width, height| {
        image.resize_exact(width, height, FilterType::Nearest)
    };
    scaled(picture, size, stretch)
}

/// Decodes a picture, scales it, and turns it upright.
fn scaled(
    picture: &InputPicture,
    (width, height): (u32, u32),
    scale: impl Fn(&DynamicImage, u32, u32) -> DynamicImage,
) -> Result<DynamicImage, ImageError> {
    let _decoding = DECODING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MAX_MEMORY);
    let mut reader = ImageReader::new(Cursor::new(&picture.bytes)).with_guessed_format()?;
    reader.limits(limits);
    let mut decoder = reader.into_decoder()?;
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let is_turned = matches!(
        orientation,
        Orientation::Rotate90
            | Orientation::Rotate270
            | Orientation::Rotate90FlipH
            | Orientation::Rotate270FlipH
    );
    let image = DynamicImage::from_decoder(decoder)?;
    let mut scaled = if is_turned {
        scale(&image, height, width)
    } else {
        scale(&image, width, height)
    };
    scaled.apply_orientation(orientation);
    Ok(scaled)
}

#[cfg(test)]
mod tests {
    use image::{
        ExtendedColorType, ImageEncoder as _, ImageFormat, Rgb, Rgba, RgbaImage,
        codecs::jpeg::JpegEncoder,
    };

    use super::*;

    const DRAWN: Rgb<u8> = Rgb([9, 9, 9]);

    fn picture(role: InputRole, image: &DynamicImage) -> InputPicture {
        let mut png = Cursor::new(Vec::new());
        image.write_to(&mut png, ImageFormat::Png).unwrap();
        InputPicture {
            role,
            content_type: "image/png".to_owned(),
            bytes: png.into_inner().into(),
        }
    }

    fn plain(color: [u8; 3], side: u32) -> DynamicImage {
        RgbImage::from_pixel(side, side, Rgb(color)).into()
    }

    #[test]
    fn an_edit_shows_its_source_and_references() {
        let drawn = RgbImage::from_pixel(64, 64, DRAWN);
        let source = picture(InputRole::Source, &plain([200, 0, 0], 30));
        let reference = picture(InputRole::Reference, &plain([0, 200, 0], 30));
        let edited = edited(&[source, reference], drawn).unwrap();
        assert_eq!(edited.get_pixel(32, 32), &Rgb([200, 0, 0]));
        assert_eq!(edited.get_pixel(0, 0), &DRAWN);
        assert_eq!(edited.get_pixel(1, 63), &Rgb([0, 200, 0]));
    }

    #[test]
    fn a_mask_says_what_changes() {
        let drawn = RgbImage::from_pixel(64, 64, DRAWN);
        let source = picture(InputRole::Source, &plain([200, 0, 0], 64));
        let mask = RgbaImage::from_fn(64, 64, |x, _| Rgba([0, 0, 0, if x < 32 { 0 } else { 255 }]));
        let mask = picture(InputRole::Mask, &mask.into());
        let edited = edited(&[source, mask], drawn).unwrap();
        assert_eq!(edited.get_pixel(10, 32), &DRAWN);
        assert_eq!(edited.get_pixel(63, 0), &Rgb([200, 0, 0]));
    }

    /// A quarter turn to the right: what is at the left is at the top.
    #[test]
    fn a_turned_source_is_shown_upright() {
        let pixels = RgbImage::from_fn(40, 40, |x, _| Rgb([if x < 20 { 250 } else { 0 }, 0, 0]));
        let tag = [1, 18, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0];
        let exif = [b"MM\0\x2a\0\0\0\x08\0\x01", &tag[..], &[0; 4]].concat();
        let mut jpeg = Vec::new();
        let mut encoder = JpegEncoder::new(&mut jpeg);
        encoder.set_exif_metadata(exif).unwrap();
        encoder
            .write_image(&pixels, 40, 40, ExtendedColorType::Rgb8)
            .unwrap();
        let source = InputPicture {
            role: InputRole::Source,
            content_type: "image/jpeg".to_owned(),
            bytes: jpeg.into(),
        };
        let edited = edited(&[source], RgbImage::new(40, 40)).unwrap();
        assert!(edited.get_pixel(20, 8).0[0] > 200);
        assert!(edited.get_pixel(8, 32).0[0] < 50);
    }

    #[test]
    fn what_cannot_be_decoded_is_an_error() {
        let mut source = picture(InputRole::Source, &plain([1, 2, 3], 30));
        source.bytes = source.bytes.slice(..40);
        assert!(edited(&[source], RgbImage::new(8, 8)).is_err());
    }
}
