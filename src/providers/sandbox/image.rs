//! Images of the sandbox: a PNG of exactly the requested size, derived from the prompt.
//!
//! Equal calls get equal images; the images of one call differ. Quality and style change the look
//! but not the motif.

use async_trait::async_trait;

use super::{
    Faults,
    edit::{Pictures, decoding_error},
    picture::{draw, png},
    seed::{Seed, failed, offloaded},
};
use crate::providers::{ImageAnswer, ImageCall, ImageProvider, ProviderError};

#[derive(Debug, Clone, Copy, Default)]
pub struct SandboxImage;

#[async_trait]
impl ImageProvider for SandboxImage {
    async fn generate(&self, call: &ImageCall) -> Result<ImageAnswer, ProviderError> {
        let faults = Faults::of(&call.prompt);
        faults.happen().await?;
        let request_id = Some(seed(call, &faults.rest, 0).request_id());
        let call = call.clone();
        let images = offloaded(move || {
            let pictures =
                Pictures::read(&call.inputs, call.size, call.outpaint).map_err(decoding_error)?;
            let picture = |index| {
                let seed = seed(&call, &faults.rest, index);
                let drawn = draw(&seed, call.size, call.quality, call.style);
                png(&pictures.edit(drawn)).map_err(failed)
            };
            (0..call.n).map(picture).collect::<Result<Vec<_>, _>>()
        })
        .await??;
        Ok(ImageAnswer {
            images,
            request_id,
            ..ImageAnswer::default()
        })
    }
}

/// Returns the seed of the motif, which does not depend on size, quality and style.
fn seed(call: &ImageCall, prompt: &str, index: u32) -> Seed {
    let negative_prompt = call.negative_prompt.as_deref().unwrap_or_default();
    Seed::of(&[
        call.model.as_bytes(),
        prompt.as_bytes(),
        negative_prompt.as_bytes(),
        &index.to_le_bytes(),
    ])
}

#[cfg(test)]
mod tests;
