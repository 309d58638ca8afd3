//! Draws inputs in the sandbox. An edit shows the source together with the drawing of the prompt:
//! where the mask is transparent, around an extended source, or as a frame. References are small
//! pictures at the lower edge. A video begins with its first frame.

use std::{io::Cursor, sync::Mutex};

use image::{
    DynamicImage, ImageDecoder as _, ImageError, ImageReader, Limits, RgbImage, RgbaImage,
    imageops, metadata::Orientation,
};

use crate::{
    domain::{inputs::InputRole, lock::lock},
    media::{MAX_DECODED_BYTES, is_turned},
    providers::{InputPicture, ProviderError, media_call::inputs_with_role},
    request::Outpaint,
};

/// Held while a picture is decoded, because each decoder may use [`MAX_DECODED_BYTES`].
static DECODE_LOCK: Mutex<()> = Mutex::new(());
/// Divisors of the short side for the width of the frame and the side of a reference.
const FRAME: u32 = 16;
const REFERENCE: u32 = 5;

/// The inputs of a call, decoded once and scaled to its size.
pub(super) struct Pictures {
    /// The source of an image, or the first frame of a video.
    base: Option<RgbImage>,
    mask: Option<RgbaImage>,
    /// References and the last frame.
    small: Vec<RgbImage>,
}

impl Pictures {
    pub(super) fn read(
        inputs: &[InputPicture],
        size: (u32, u32),
        outpaint: Option<Outpaint>,
    ) -> Result<Self, ImageError> {
        let rgb = |image: RgbaImage| DynamicImage::from(image).into_rgb8();
        let first = |role| inputs_with_role(inputs, role).next();
        let base = first(InputRole::Source).or_else(|| first(InputRole::FirstFrame));
        let extended = match base.zip(outpaint) {
            Some((source, outpaint)) => Some(extend(source, size, outpaint)?),
            None => None,
        };
        let edge = (size.0.min(size.1) / REFERENCE).max(1);
        let references = inputs_with_role(inputs, InputRole::Reference);
        let small = references.chain(inputs_with_role(inputs, InputRole::LastFrame));
        Ok(Self {
            mask: match (&extended, first(InputRole::Mask)) {
                (Some(extended), _) => Some(extended.clone()),
                (None, mask) => mask.map(|mask| cover(mask, size)).transpose()?,
            },
            base: match (extended, base) {
                (Some(extended), _) => Some(rgb(extended)),
                (None, base) => base.map(|base| cover(base, size)).transpose()?.map(rgb),
            },
            small: small
                .map(|other| cover(other, (edge, edge)).map(rgb))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Draws the picture of a call. `drawn`: the drawing of its prompt.
    pub(super) fn edit(&self, mut drawn: RgbImage) -> RgbImage {
        let (width, height) = drawn.dimensions();
        let edge = width.min(height) / FRAME;
        if let Some(source) = &self.base {
            let inner = |x: u32, y: u32| x.min(width - 1 - x).min(y).min(height - 1 - y) >= edge;
            for (x, y, pixel) in drawn.enumerate_pixels_mut() {
                let keeps = match &self.mask {
                    Some(mask) => mask.get_pixel(x, y).0[3] > 127,
                    None => inner(x, y),
                };
                if keeps {
                    *pixel = *source.get_pixel(x, y);
                }
            }
        }
        self.with_small(drawn)
    }

    /// Returns the first picture of a video: its first frame, or else `drawn`.
    pub(super) fn open(mut self, drawn: RgbImage) -> RgbImage {
        let opening = self.base.take().unwrap_or(drawn);
        self.with_small(opening)
    }

    /// Adds references and the last frame at the lower edge.
    fn with_small(&self, mut picture: RgbImage) -> RgbImage {
        for (at, small) in (0..).zip(&self.small) {
            let side = i64::from(small.width());
            let top = i64::from(picture.height()) - side;
            imageops::replace(&mut picture, small, side * at, top);
        }
        picture
    }
}

pub(super) fn decoding_error(_: ImageError) -> ProviderError {
    ProviderError::rejected("an input cannot be decoded")
}

/// Returns a source inside a larger, transparent picture.
fn extend(
    source: &InputPicture,
    (width, height): (u32, u32),
    outpaint: Outpaint,
) -> Result<RgbaImage, ImageError> {
    let Outpaint { left, up, .. } = outpaint;
    let inner = |side: u32, added: u32| side.saturating_sub(added).max(1);
    let size = (
        inner(width, left + outpaint.right),
        inner(height, up + outpaint.down),
    );
    let source = cover(source, size)?;
    let mut extended = RgbaImage::new(width, height);
    imageops::replace(&mut extended, &source, left.into(), up.into());
    Ok(extended)
}

/// Decodes a picture, crops it to the aspect ratio of `size`, scales it and applies its EXIF
/// rotation. Cropping comes first, because a narrow picture would become huge if its short side
/// were scaled first.
fn cover(picture: &InputPicture, (width, height): (u32, u32)) -> Result<RgbaImage, ImageError> {
    let _decoding = lock(&DECODE_LOCK);
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MAX_DECODED_BYTES);
    let mut reader = ImageReader::new(Cursor::new(&picture.bytes)).with_guessed_format()?;
    reader.limits(limits);
    let mut decoder = reader.into_decoder()?;
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let image = DynamicImage::from_decoder(decoder)?;
    let (width, height) = if is_turned(orientation) {
        (height, width)
    } else {
        (width, height)
    };
    let (full_width, full_height) = (image.width(), image.height());
    // At most a side of the picture.
    let part = |side: u32, of: u32, by: u32| {
        let part = u64::from(side) * u64::from(of) / u64::from(by);
        u32::try_from(part).unwrap_or(u32::MAX).max(1)
    };
    let cut_width = part(full_height, width, height).min(full_width);
    let cut_height = part(full_width, height, width).min(full_height);
    let (left, top) = ((full_width - cut_width) / 2, (full_height - cut_height) / 2);
    let cut = imageops::crop_imm(&image, left, top, cut_width, cut_height);
    let mut scaled = DynamicImage::from(imageops::thumbnail(&*cut, width, height));
    scaled.apply_orientation(orientation);
    Ok(scaled.into_rgba8())
}

#[cfg(test)]
mod tests {
    use image::{
        ExtendedColorType, ImageEncoder as _, ImageFormat, Rgb, Rgba, RgbaImage,
        codecs::jpeg::JpegEncoder,
    };

    use super::*;

    const DRAWN: Rgb<u8> = Rgb([9, 9, 9]);

    fn edited(inputs: &[InputPicture], drawn: RgbImage) -> Result<RgbImage, ImageError> {
        Ok(Pictures::read(inputs, drawn.dimensions(), None)?.edit(drawn))
    }

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

    /// The EXIF rotation is a quarter turn clockwise: the left side becomes the top.
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
    fn a_long_and_narrow_source_takes_no_more_memory_than_it_has_pixels() {
        for (width, height) in [(200_000, 1), (1, 200_000)] {
            let source = picture(InputRole::Source, &RgbImage::new(width, height).into());
            let drawn = RgbImage::from_pixel(64, 64, DRAWN);
            let edited = edited(&[source], drawn).unwrap();
            assert_eq!(edited.get_pixel(32, 32), &Rgb([0, 0, 0]));
        }
    }

    #[test]
    fn what_cannot_be_decoded_is_an_error() {
        let mut source = picture(InputRole::Source, &plain([1, 2, 3], 30));
        source.bytes = source.bytes.slice(..40);
        assert!(edited(&[source], RgbImage::new(8, 8)).is_err());
    }
}
