//! Text: one call, streamed or whole.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    Runner, RunningGuard,
    cancel::cancelled,
    submit::Submissions,
    task::{Started, Work, failure, log_failure, storable},
};
use crate::{
    domain::{
        credits::Credits,
        generation::{Failure, FailureCode, FinishReason},
        pricing::TextPrices,
        usage::{TextUsage, TokenCounts},
    },
    providers::{
        Delivered, DeltaSink, ProviderError, ProviderPermit, ReportedUsage, TextAnswer, TextCall,
        TextProvider,
    },
    store::{
        StoreError,
        generations::{NewGeneration, Outcome, Settlement},
    },
};

/// A text generation that is ready to be opened and run.
pub struct TextJob {
    /// The row, with the hold.
    pub new: NewGeneration,
    /// What the provider is asked.
    pub call: TextCall,
    pub provider: Arc<dyn TextProvider>,
    /// The price row of the bill.
    pub prices: TextPrices,
    /// Where the pieces go, when they are wanted.
    pub deltas: Option<DeltaSink>,
    /// Its seat at the provider, kept to the end.
    pub seat: ProviderPermit,
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

    async fn run(&self, runner: &Runner, slot: &RunningGuard) -> Settlement {
        let mut submissions = Submissions::begin(runner.0.submit);
        let result = tokio::select! {
            // An answer that is there is not given up for anything that comes with it.
            biased;
            result = submit(self, &mut submissions, slot) => result,
            () = slot.cancel.cancelled() => {
                let (outcome, request_id) = self.cancelled(runner);
                return runner.finish(self.new.id, outcome, Some(submissions.made), request_id);
            }
            () = runner.0.interrupt.cancelled() => {
                let message = "the server stopped during the call";
                let failure = Failure::new(FailureCode::Interrupted, message);
                let attempts = Some(submissions.made);
                return runner.finish(self.new.id, Outcome::Failed(failure), attempts, None);
            }
        };
        let (outcome, request_id) = match result {
            Ok(answer) => {
                let request_id = answer.request_id.clone();
                let usage = counts(&answer.usage);
                (
                    self.completed(runner, &answer.text, usage, None),
                    request_id,
                )
            }
            Err(error) => {
                log_failure(&self.new.provider, &self.new.model, &error);
                (Outcome::Failed(failure(&error)), error.request_id)
            }
        };
        runner.finish(self.new.id, outcome, Some(submissions.made), request_id)
    }
}

/// Submits, and again where the provider is known not to have started.
async fn submit(
    job: &TextJob,
    submissions: &mut Submissions,
    slot: &RunningGuard,
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

impl TextJob {
    /// The end by a cancel: what was delivered is kept and charged, even where the provider
    /// has told no counts of it. Nothing delivered costs nothing.
    fn cancelled(&self, runner: &Runner) -> (Outcome, Option<String>) {
        let Some(delivered) = self.deltas.as_ref().and_then(DeltaSink::delivered) else {
            return (Outcome::Failed(cancelled()), None);
        };
        let Delivered {
            text,
            usage,
            uncounted_bytes,
            request_id,
        } = delivered;
        let counts = TokenCounts {
            uncounted_bytes,
            ..counts(&usage)
        };
        let reason = Some(FinishReason::Cancelled);
        (self.completed(runner, &text, counts, reason), request_id)
    }

    fn completed(
        &self,
        runner: &Runner,
        text: &str,
        counts: TokenCounts,
        finish_reason: Option<FinishReason>,
    ) -> Outcome {
        let TextCall {
            prompt,
            system_prompt,
            ..
        } = &self.call;
        let input_bytes = prompt.len() + system_prompt.as_deref().map_or(0, str::len);
        let usage = TextUsage::from_counts(counts, input_bytes, text.len());
        let (charged, excess) = self.prices.charge(&usage, self.new.hold);
        if excess > Credits::ZERO {
            tracing::warn!(
                provider = %self.new.provider, model = %self.new.model, %excess, ?usage,
                "the provider counted more than the ceiling; the operator bears the rest"
            );
            let metrics = &runner.0.metrics;
            metrics.overrun(&self.new.provider, &self.new.model, excess);
        }
        Outcome::Completed {
            result: Some(storable(text)),
            outputs: Vec::new(),
            usage: serde_json::json!(usage),
            charged,
            finish_reason,
        }
    }
}

fn counts(usage: &ReportedUsage) -> TokenCounts {
    TokenCounts {
        input: usage.input_tokens,
        output: usage.output_tokens,
        uncounted_bytes: 0,
        cached_input: usage.cached_input_tokens,
        reasoning: usage.reasoning_tokens,
    }
}
