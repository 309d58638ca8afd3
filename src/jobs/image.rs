//! Images: one submission, then each picture is brought to the asked pixels and stored.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::json;

use super::{
    Runner, RunningGuard,
    cancel::cancelled,
    files::unusable,
    submit::Submissions,
    task::{Started, Work, failure, log_failure},
};
use crate::{
    domain::{
        generation::{Failure, FailureCode, Output},
        pricing::ImageCeiling,
    },
    media::{MediaKind, fit_png},
    providers::{ImageAnswer, ImageCall, ImageProvider, ProviderPermit},
    store::{
        StoreError,
        generations::{NewGeneration, Outcome, Settlement},
    },
};

/// An image generation that is ready to be opened and run.
pub struct ImageJob {
    /// The row, with the hold.
    pub new: NewGeneration,
    /// What the provider is asked.
    pub call: ImageCall,
    /// The pixels that were asked of us.
    pub size: (u32, u32),
    pub provider: Arc<dyn ImageProvider>,
    pub price: ImageCeiling,
    /// Its seat at the provider, kept to the end.
    pub seat: ProviderPermit,
}

impl Runner {
    /// Opens an image generation and runs it. Answers as soon as the verdict on the hold is
    /// known.
    pub async fn start_image(&self, job: ImageJob) -> Result<Started, StoreError> {
        self.start(job).await
    }
}

#[async_trait]
impl Work for ImageJob {
    fn new_generation(&self) -> &NewGeneration {
        &self.new
    }

    async fn run(&self, runner: &Runner, slot: &RunningGuard) -> Settlement {
        let mut submissions = Submissions::begin(runner.0.submit);
        let (outcome, request_id) = tokio::select! {
            biased;
            ended = self.make(runner, slot, &mut submissions) => ended,
            () = slot.cancel.cancelled() => {
                runner.discard_files(self.new.id).await;
                (Outcome::Failed(cancelled()), None)
            }
            () = runner.0.interrupt.cancelled() => {
                let message = "the server stopped during the call";
                (Outcome::Failed(Failure::new(FailureCode::Interrupted, message)), None)
            }
        };
        runner.finish(self.new.id, outcome, Some(submissions.made), request_id)
    }
}

impl ImageJob {
    async fn make(
        &self,
        runner: &Runner,
        slot: &RunningGuard,
        submissions: &mut Submissions,
    ) -> (Outcome, Option<String>) {
        let answer = loop {
            submissions.made += 1;
            slot.submitted();
            match self.provider.generate(&self.call).await {
                Ok(answer) => break answer,
                Err(error) => match submissions.wait_after(&error) {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => {
                        log_failure(&self.new.provider, &self.new.model, &error);
                        return (Outcome::Failed(failure(&error)), error.request_id);
                    }
                },
            }
        };
        let request_id = answer.request_id.clone();
        (self.keep_all(runner, answer).await, request_id)
    }

    /// Stores what came and bills that; nothing usable is a failure.
    async fn keep_all(&self, runner: &Runner, answer: ImageAnswer) -> Outcome {
        let id = self.new.id;
        let mut outputs: Vec<Output> = Vec::new();
        let mut failed = None;
        let most = usize::try_from(self.price.n).unwrap_or(usize::MAX);
        for image in answer.images.into_iter().take(most) {
            let (width, height) = self.size;
            let fitted = runner.convert(move || fit_png(&image, width, height)).await;
            let index = u16::try_from(outputs.len()).unwrap_or(u16::MAX);
            let kept = match fitted {
                Ok(png) => runner.keep(id, index, MediaKind::Png, png).await,
                Err(error) => Err(unusable(id, &error)),
            };
            match kept {
                Ok(output) => outputs.push(output),
                Err(failure) => failed = Some(failure),
            }
        }
        let images = u32::try_from(outputs.len()).unwrap_or(0);
        match self.price.price(images) {
            Some(charged) if images > 0 => Outcome::Completed {
                result: None,
                outputs,
                usage: json!({ "images": images }),
                charged,
                finish_reason: None,
            },
            _ => Outcome::Failed(failed.unwrap_or_else(|| {
                Failure::new(FailureCode::ProviderError, "the provider made no image")
            })),
        }
    }
}
