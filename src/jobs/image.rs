//! Images: submits once, then scales each image to the requested size and stores it.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::{
    ImageWork,
    cancel::cancelled,
    files::{convert, unusable},
    step::{Run, Step},
    submit::Submission,
};
use crate::{
    domain::{
        generation::{Failure, FailureCode, Output},
        ids::GenerationId,
    },
    media::{MediaKind, fit_png},
    memory,
    providers::{ImageAnswer, ImageCall},
    store::generations::{Completion, Outcome},
};

/// Maximum bytes of a downloaded image.
const MAX_IMAGE_BYTES: u64 = 20 << 20;
/// Attempts to download an image, and the pause between them.
const DOWNLOAD_TRIES: u32 = 3;
const DOWNLOAD_PAUSE: Duration = Duration::from_millis(500);
/// Maximum time of all attempts, since the caller waits.
const DOWNLOAD_TIME: Duration = Duration::from_mins(2);

impl Run<'_> {
    pub(super) async fn image_step(&self, work: &ImageWork) -> Step {
        match self.make_images(work).await {
            Err(Step::Cancelled) => {
                self.discard_files(self.job.id).await;
                Step::failed(cancelled())
            }
            Ok(step) | Err(step) => step,
        }
    }

    async fn make_images(&self, work: &ImageWork) -> Result<Step, Step> {
        let answer = self.call_provider(work).await;
        if let Some(memory) = &self.guard.input_memory
            // The next candidate needs it.
            && !matches!(answer, Err(Step::Left(_)))
        {
            memory.release();
        }
        let answer = answer?;
        memory::keep(answer.images.iter().map(Bytes::len).sum());
        let request_id = answer.request_id.clone();
        let keeping = self.store_images(work, answer);
        Ok(Step::Finished {
            outcome: Box::new(self.unless_stopped(keeping).await?),
            request_id,
        })
    }

    async fn call_provider(&self, work: &ImageWork) -> Result<ImageAnswer, Step> {
        let job = self.job;
        let provider = self.0.providers.image.get(&job.provider);
        let provider = provider.ok_or_else(|| Step::no_provider(job))?;
        let loaded = self.load_inputs(&work.inputs).await;
        let (inputs, _memory) = loaded.map_err(|step| match step {
            // The caller waits, so the call is not retried later.
            Step::NotStored(failure) => Step::failed(failure),
            step => step,
        })?;
        let call = ImageCall {
            inputs,
            ..work.call.clone()
        };
        let submitting = self.submit(Submission::Once, || provider.generate(&call));
        submitting.await
    }

    /// Downloads an image that the provider has already charged.
    async fn download_image(&self, id: GenerationId, url: &Url) -> Result<Bytes, Failure> {
        let until = Instant::now() + DOWNLOAD_TIME;
        let mut tries = 0;
        loop {
            let downloader = &self.0.downloader;
            let downloading = downloader.to_bytes(url, None, MAX_IMAGE_BYTES);
            let error = match timeout_at(until, downloading).await {
                Ok(Ok(bytes)) => return Ok(bytes),
                Ok(Err(error)) => error,
                Err(elapsed) => return Err(unusable(id, &elapsed)),
            };
            tries += 1;
            if tries >= DOWNLOAD_TRIES || error.is_final() {
                return Err(unusable(id, &error));
            }
            tracing::warn!(generation = %id, %error, "a download failed and will be retried");
            tokio::time::sleep(DOWNLOAD_PAUSE).await;
        }
    }

    /// Stores and bills the usable images; fails the generation if there are none. Also fails it if
    /// storing one image fails: only files of failed generations are deleted, so a file whose write
    /// was reported as failed could otherwise remain unreferenced.
    async fn store_images(&self, work: &ImageWork, answer: ImageAnswer) -> Outcome {
        let id = self.job.id;
        let mut outputs: Vec<Output> = Vec::new();
        let mut failed = None;
        let tokens = answer.input_image_tokens;
        let delivered = answer.images.len() + answer.urls.len();
        let most = usize::try_from(work.price.units).unwrap_or(usize::MAX);
        let mut images: Vec<Result<Bytes, Failure>> = answer.images.into_iter().map(Ok).collect();
        for url in answer.urls {
            let image = self.download_image(id, &url).await;
            memory::keep(image.as_ref().map_or(0, Bytes::len));
            images.push(image);
        }
        for image in images.into_iter().take(most) {
            let image = match image {
                Ok(image) => image,
                Err(failure) => {
                    failed = Some(failure);
                    continue;
                }
            };
            let (width, height) = work.size;
            let fitted = convert(move || fit_png(&image, width, height)).await;
            let index = u16::try_from(outputs.len()).unwrap_or(u16::MAX);
            let stored = match fitted {
                Ok(png) => self.store_file(id, index, MediaKind::Png, png).await,
                Err(error) => Err(unusable(id, &error)),
            };
            match stored {
                Ok(output) => outputs.push(output),
                Err(failure) if failure.code == FailureCode::StorageUnavailable => {
                    return Outcome::Failed(failure);
                }
                Err(failure) => failed = Some(failure),
            }
        }
        let images = outputs.len() as u64;
        let by_tokens = work.price.inputs.price_by_tokens(tokens);
        let mut usage = json!({ "images": images });
        if !work.inputs.is_empty() {
            usage["input_images"] = work.inputs.len().into();
        }
        // If inputs are charged by tokens, the record has the tokens.
        let price = if let Some(inputs) = by_tokens.filter(|_| !work.inputs.is_empty()) {
            usage["input_image_tokens"] = tokens.into();
            let made = work.price.without_inputs(images);
            made.and_then(|price| price.checked_add(inputs))
        } else {
            work.price.price(images)
        };
        // The vendor bills every delivered image and all counted tokens.
        let mut billed = usage.clone();
        billed["images"] = delivered.into();
        if !work.inputs.is_empty() && work.price.inputs.per_million.is_some() {
            billed["input_image_tokens"] = tokens.into();
        }
        match price {
            Some(charged) if images > 0 => Outcome::Completed(Completion {
                outputs,
                list_cost: self.job.list_cost(&billed),
                usage,
                charged,
                ..Completion::default()
            }),
            _ => Outcome::Failed(failed.unwrap_or_else(|| {
                Failure::new(FailureCode::ProviderError, "the provider returned no image")
            })),
        }
    }
}
