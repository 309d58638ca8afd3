//! Text: one call, streamed or whole.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    Runner, Slot,
    submit::Submissions,
    task::{Started, Work, failure, log_failure, storable},
};
use crate::{
    domain::{
        generation::{Failure, FailureCode},
        pricing::TextPrices,
        usage::{TextUsage, TokenCounts},
    },
    providers::{DeltaSink, ProviderError, Seat, TextAnswer, TextCall, TextProvider},
    store::{
        StoreError,
        generations::{Finish, NewGeneration, Outcome},
    },
};

/// A text generation that is ready to be opened and run.
pub struct TextJob {
    /// The row, with the hold.
    pub new: NewGeneration,
    /// What the provider is asked.
    pub call: TextCall,
    /// The provider.
    pub provider: Arc<dyn TextProvider>,
    /// The price row of the bill.
    pub prices: TextPrices,
    /// Where the pieces go, when they are wanted.
    pub deltas: Option<DeltaSink>,
    /// Its seat at the provider, kept to the end.
    pub seat: Seat,
}

impl Runner {
    /// Opens a text generation and runs it. Answers as soon as the verdict on the hold is
    /// known.
    pub async fn start_text(&self, job: TextJob) -> Result<Started, StoreError> {
        self.start(job).await
    }
}

#[async_trait]
impl Work for TextJob {
    fn new_generation(&self) -> &NewGeneration {
        &self.new
    }

    async fn run(&self, runner: &Runner, slot: &Slot) -> Option<Finish> {
        let mut submissions = Submissions::begin(runner.0.submit);
        let result = tokio::select! {
            // An answer that is there is not given up for anything that comes with it.
            biased;
            result = submit(self, &mut submissions, slot) => result,
            () = slot.cancel.cancelled() => return None,
            () = runner.0.interrupt.cancelled() => {
                let message = "the server stopped during the call";
                let failure = Failure::new(FailureCode::Interrupted, message);
                let attempts = Some(submissions.made);
                return Some(runner.finish(self.new.id, Outcome::Failed(failure), attempts, None));
            }
        };
        let (outcome, request_id) = match result {
            Ok(answer) => {
                let request_id = answer.request_id.clone();
                (completed(self, runner, &answer), request_id)
            }
            Err(error) => {
                log_failure(&self.new.provider, &self.new.model, &error);
                (Outcome::Failed(failure(&error)), error.request_id)
            }
        };
        Some(runner.finish(self.new.id, outcome, Some(submissions.made), request_id))
    }
}

/// Submits, and again where the provider is known not to have started.
async fn submit(
    job: &TextJob,
    submissions: &mut Submissions,
    slot: &Slot,
) -> Result<TextAnswer, ProviderError> {
    loop {
        submissions.made += 1;
        slot.submitted();
        let error = match job.provider.generate(&job.call, job.deltas.as_ref()).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        match submissions.wait_after(&error) {
            Some(wait) => {
                tracing::info!(provider = %job.new.provider, %error, ?wait, "submitting again");
                tokio::time::sleep(wait).await;
            }
            None => return Err(error),
        }
    }
}

fn completed(job: &TextJob, runner: &Runner, answer: &TextAnswer) -> Outcome {
    let counts = TokenCounts {
        input: answer.usage.input_tokens,
        output: answer.usage.output_tokens,
        cached_input: answer.usage.cached_input_tokens,
        reasoning: answer.usage.reasoning_tokens,
    };
    let input_bytes = job.call.prompt.len() + job.call.system_prompt.as_deref().map_or(0, str::len);
    let usage = TextUsage::from_counts(counts, input_bytes, answer.text.len());
    let (charged, excess) = job.prices.charge(&usage, job.new.hold);
    if excess > crate::domain::credits::Credits::ZERO {
        tracing::warn!(
            provider = %job.new.provider, model = %job.new.model, %excess, ?usage,
            "the provider counted more than the ceiling; the operator bears the rest"
        );
        let metrics = &runner.0.metrics;
        metrics.overrun(&job.new.provider, &job.new.model, excess);
    }
    Outcome::Completed {
        result: Some(storable(&answer.text)),
        outputs: Vec::new(),
        usage: serde_json::json!(usage),
        charged,
    }
}
