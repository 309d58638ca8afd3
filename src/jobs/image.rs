//! Images: one submission, then each image is scaled to the requested size and stored.

use serde_json::json;

use super::{
    ImageWork, Runner, RunningGuard,
    cancel::cancelled,
    files::{convert, unusable},
    step::Step,
    submit::Submission,
};
use crate::{
    domain::{
        generation::{Failure, FailureCode, Output},
        ids::GenerationId,
    },
    media::{MediaKind, fit_png},
    providers::ImageAnswer,
    store::{
        generations::{Completion, Outcome},
        jobs::Job,
    },
};

impl Runner {
    pub(super) async fn image_step(
        &self,
        job: &Job,
        guard: &RunningGuard,
        work: &ImageWork,
    ) -> Step {
        match self.make_images(job, guard, work).await {
            Err(Step::Cancelled) => {
                self.discard_files(job.id).await;
                Step::failed(cancelled())
            }
            Ok(step) | Err(step) => step,
        }
    }

    async fn make_images(
        &self,
        job: &Job,
        guard: &RunningGuard,
        work: &ImageWork,
    ) -> Result<Step, Step> {
        let provider = self.0.providers.image.get(&job.provider);
        let provider = provider.ok_or_else(|| Step::no_provider(job))?;
        let answer = self
            .submit(job, guard, Submission::Once, || {
                provider.generate(&work.call)
            })
            .await?;
        let request_id = answer.request_id.clone();
        let keeping = self.store_images(job.id, work, answer);
        Ok(Step::Finished {
            outcome: Box::new(self.unless_stopped(guard, keeping).await?),
            request_id,
        })
    }

    /// Stores and bills the usable images; without any, the generation fails. If the storage fails
    /// for one, the generation fails too, because only the files of failures are deleted: otherwise
    /// a file whose write was reported as failed could remain without an owner.
    async fn store_images(
        &self,
        id: GenerationId,
        work: &ImageWork,
        answer: ImageAnswer,
    ) -> Outcome {
        let mut outputs: Vec<Output> = Vec::new();
        let mut failed = None;
        let most = usize::try_from(work.price.n).unwrap_or(usize::MAX);
        for image in answer.images.into_iter().take(most) {
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
        let images = u32::try_from(outputs.len()).unwrap_or(0);
        match work.price.price(images) {
            Some(charged) if images > 0 => Outcome::Completed(Completion {
                result: None,
                outputs,
                answer: None,
                usage: json!({ "images": images }),
                charged,
                finish_reason: None,
                receipt: None,
            }),
            _ => Outcome::Failed(failed.unwrap_or_else(|| {
                Failure::new(FailureCode::ProviderError, "the provider returned no image")
            })),
        }
    }
}
