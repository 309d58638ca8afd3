//! Images of the sandbox: a PNG of exactly the requested size, derived from the prompt.
//!
//! The same call gets the same images, the images of a call differ, and quality and style change
//! the look but not the motif.

use std::io::Cursor;

use async_trait::async_trait;
use bytes::Bytes;
use image::{ImageError, ImageFormat};

use super::{
    Faults,
    art::{Field, Mood, palette},
    edit::edited,
    seed::{Seed, away, broken},
};
use crate::{
    domain::request::{Quality, Style},
    providers::{ImageAnswer, ImageCall, ImageProvider, ProviderError},
};

/// The sandbox's image adapter.
#[derive(Debug, Clone, Copy, Default)]
pub struct SandboxImage;

#[async_trait]
impl ImageProvider for SandboxImage {
    async fn generate(&self, call: &ImageCall) -> Result<ImageAnswer, ProviderError> {
        let faults = Faults::of(&call.prompt);
        if !faults.slow.is_zero() {
            tokio::time::sleep(faults.slow).await;
        }
        if let Some(fault) = faults.fault {
            return Err(fault.happen().await);
        }
        let request_id = Some(seed(call, &faults.rest, 0).request_id());
        let call = call.clone();
        let images = away(move |abandoned| {
            (0..call.n)
                .take_while(|_| !abandoned.is_cancelled())
                .map(|index| {
                    let drawn = draw(&call, &seed(&call, &faults.rest, index));
                    let drawn = drawn.map_err(|error| broken(&error))?;
                    if call.inputs.is_empty() {
                        return Ok(drawn);
                    }
                    edit_of(&call, &drawn)
                        .map_err(|_| ProviderError::rejected("an input cannot be decoded"))
                })
                .collect()
        })
        .await?;
        Ok(ImageAnswer {
            images,
            request_id,
            input_image_tokens: None,
        })
    }
}

fn edit_of(call: &ImageCall, drawn: &Bytes) -> Result<Bytes, ImageError> {
    let drawn = image::load_from_memory(drawn)?.into_rgb8();
    let mut file = Cursor::new(Vec::new());
    edited(&call.inputs, drawn)?.write_to(&mut file, ImageFormat::Png)?;
    Ok(file.into_inner().into())
}

/// The seed of the motif, on purpose without size, quality and style.
fn seed(call: &ImageCall, prompt: &str, index: u32) -> Seed {
    Seed::of(&[
        call.model.as_bytes(),
        prompt.as_bytes(),
        call.negative_prompt
            .as_deref()
            .unwrap_or_default()
            .as_bytes(),
        &index.to_le_bytes(),
    ])
}

fn draw(call: &ImageCall, seed: &Seed) -> Result<Bytes, png::EncodingError> {
    let (width, height) = call.size;
    let mood = match call.style {
        None => Mood::Plain,
        Some(Style::Vivid) => Mood::Vivid,
        Some(Style::Natural) => Mood::Natural,
    };
    // Standard: a few waves in 16 flat tones. Hd: more waves, and smooth.
    let (waves, tones) = match call.quality {
        Quality::Standard => (3, 0xf0),
        Quality::Hd => (5, 0xff),
    };
    let field = Field::new(seed, call.size, waves, 1);
    let mut pixels = Vec::new();
    let mut row = vec![0; usize::try_from(width).unwrap_or_default()];
    let mut sums = Vec::new();
    for y in 0..height {
        field.row(y, 0, &mut sums, &mut row);
        pixels.extend(row.iter().map(|index| index & tones));
    }
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    encoder.set_palette(palette(seed, mood).concat());
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(file.into())
}

#[cfg(test)]
mod tests;
