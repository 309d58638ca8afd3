//! Converts masks: the changed area is transparent in ours and white in Stability's.

use std::io::Cursor;

use image::{DynamicImage, GrayImage, ImageFormat, ImageReader, Limits};

use crate::{
    domain::inputs::InputRole,
    media::MAX_DECODED_BYTES,
    offload::offload,
    providers::{ImageCall, InputPicture, ProviderError},
};

/// Returns the call with its masks in Stability's format.
pub(super) async fn convert_masks(call: &ImageCall) -> Result<ImageCall, ProviderError> {
    let mut call = call.clone();
    for mask in &mut call.inputs {
        if mask.role == InputRole::Mask {
            let ours = mask.clone();
            let white = offload(move || white(&ours)).await.flatten();
            *mask = white.ok_or_else(|| ProviderError::rejected("the mask cannot be read"))?;
        }
    }
    Ok(call)
}

fn white(mask: &InputPicture) -> Option<InputPicture> {
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MAX_DECODED_BYTES);
    let mut reader = ImageReader::with_format(Cursor::new(&mask.bytes), ImageFormat::Png);
    reader.limits(limits);
    let ours = reader.decode().ok()?.into_rgba8();
    let (width, height) = ours.dimensions();
    let opposite = ours.pixels().map(|pixel| 255 - pixel.0[3]).collect();
    let white = GrayImage::from_raw(width, height, opposite)?;
    let mut png = Cursor::new(Vec::new());
    DynamicImage::from(white)
        .write_to(&mut png, ImageFormat::Png)
        .ok()?;
    Some(InputPicture {
        bytes: png.into_inner().into(),
        ..mask.clone()
    })
}

#[cfg(test)]
mod tests {
    use image::{Rgba, RgbaImage};

    use super::*;

    #[test]
    fn transparent_pixels_become_white() {
        let ours = RgbaImage::from_fn(2, 1, |x, _| Rgba([9, 9, 9, if x == 0 { 0 } else { 255 }]));
        let mut png = Cursor::new(Vec::new());
        ours.write_to(&mut png, ImageFormat::Png).unwrap();
        let mask = InputPicture {
            role: InputRole::Mask,
            content_type: "image/png".to_owned(),
            bytes: png.into_inner().into(),
        };
        let sent = image::load_from_memory(&white(&mask).unwrap().bytes).unwrap();
        assert_eq!(sent.into_luma8().into_raw(), [255, 0]);
    }
}
