//! Masks: ours are transparent where the source is changed, Stability's are white there.

use std::io::Cursor;

use image::{DynamicImage, GrayImage, ImageFormat, ImageReader, Limits};

use crate::{
    domain::request::InputRole,
    offload::offload,
    providers::{ImageCall, InputPicture, ProviderError},
};

/// The most pixels of a picture that the vendor takes.
const MAX_PIXELS: u64 = 9_437_184;

/// The call with its masks as Stability takes them.
pub(super) async fn converted(call: &ImageCall) -> Result<ImageCall, ProviderError> {
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
    limits.max_alloc = Some(MAX_PIXELS * 8);
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
