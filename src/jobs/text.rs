//! Text: one call, streamed or not.

use super::{
    Runner, RunningGuard, TextWork,
    cancel::cancelled,
    step::{Step, storable},
    submit::Submission,
};
use crate::{
    domain::{
        conversation::Answered, credits::Credits, generation::FinishReason, json::without_nul,
        usage::TextUsage,
    },
    providers::{DeltaSink, TextAnswer},
    store::{
        generations::{Completion, Outcome},
        jobs::Job,
    },
};

impl Runner {
    pub(super) async fn text_step(&self, job: &Job, guard: &RunningGuard, work: &TextWork) -> Step {
        let Some(provider) = self.0.providers.text.get(&job.provider) else {
            return Step::no_provider(job);
        };
        let submit = self.submit(job, guard, Submission::Once, || {
            provider.generate(&work.call, work.deltas.as_ref())
        });
        match submit.await {
            Ok(answer) => self.completed_text(job, work, answer, None),
            // What was delivered before a cancel is kept and charged, even where the provider
            // has not reported its counts. Nothing delivered costs nothing.
            Err(Step::Cancelled) => match work.deltas.as_ref().and_then(DeltaSink::delivered) {
                Some(delivered) => {
                    self.completed_text(job, work, delivered, Some(FinishReason::Cancelled))
                }
                None => Step::failed(cancelled()),
            },
            Err(step) => step,
        }
    }

    fn completed_text(
        &self,
        job: &Job,
        work: &TextWork,
        answer: TextAnswer,
        finish_reason: Option<FinishReason>,
    ) -> Step {
        let usage = TextUsage::from_counts(answer.usage, work.input_bytes, answer.bytes());
        let at_limit = usage.output_tokens >= work.call.max_tokens.into();
        // A prompt of a text has no answer but text.
        let beyond = if work.call.is_dialogue {
            Answered::beyond_text(&answer.parts, &answer.stop, at_limit)
        } else {
            None
        };
        // What is cut short has no last counts.
        let blank = work.receipt.filter(|_| finish_reason.is_none());
        let receipt = blank.and_then(|blank| {
            let receipt = blank.counted(&answer.usage)?;
            Some((blank.key, receipt))
        });
        let (charged, excess) = work.prices.charge(&usage, job.held);
        if excess > Credits::ZERO {
            tracing::warn!(
                provider = %job.provider, model = %job.model, %excess, ?usage,
                "the provider's usage exceeds the ceiling; the operator bears the excess"
            );
            self.0.metrics.overrun(&job.provider, &job.model, excess);
        }
        Step::Finished {
            outcome: Box::new(Outcome::Completed(Completion {
                result: Some(storable(&answer.text())),
                outputs: Vec::new(),
                answer: beyond.map(without_nul),
                usage: serde_json::json!(usage),
                charged,
                finish_reason,
            })),
            request_id: answer.request_id,
            receipt,
        }
    }
}
