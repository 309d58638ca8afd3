//! Text: one call, streamed or not.

use super::{
    Runner, RunningGuard, TextWork,
    cancel::cancelled,
    step::{Step, storable},
};
use crate::{
    domain::{
        credits::Credits,
        generation::FinishReason,
        usage::{TextUsage, TokenCounts},
    },
    providers::{DeltaSink, ReportedUsage},
    store::{
        generations::{Completion, Outcome},
        jobs::Job,
    },
};

/// A complete or cancelled text.
struct Ended<'a> {
    text: &'a str,
    counts: TokenCounts,
    reason: Option<FinishReason>,
    request_id: Option<String>,
}

impl Runner {
    pub(super) async fn text_step(&self, job: &Job, guard: &RunningGuard, work: &TextWork) -> Step {
        let Some(provider) = self.0.providers.text.get(&job.provider) else {
            return Step::no_provider();
        };
        let submit = self.submit(job, guard, || {
            provider.generate(&work.call, work.deltas.as_ref())
        });
        match submit.await {
            Ok(answer) => self.completed_text(
                job,
                work,
                Ended {
                    text: &answer.text,
                    counts: counts(&answer.usage),
                    reason: None,
                    request_id: answer.request_id,
                },
            ),
            Err(Step::LeaseLost) => self.cancelled_text(job, work),
            Err(step) => step,
        }
    }

    /// What was delivered before a cancel is stored and charged, even where the provider has not
    /// reported its usage. If nothing was delivered, nothing is charged.
    fn cancelled_text(&self, job: &Job, work: &TextWork) -> Step {
        let Some(delivered) = work.deltas.as_ref().and_then(DeltaSink::delivered) else {
            return Step::failed(cancelled());
        };
        let ended = Ended {
            text: &delivered.text,
            counts: TokenCounts {
                uncounted_bytes: delivered.uncounted_bytes,
                ..counts(&delivered.usage)
            },
            reason: Some(FinishReason::Cancelled),
            request_id: delivered.request_id,
        };
        self.completed_text(job, work, ended)
    }

    fn completed_text(&self, job: &Job, work: &TextWork, ended: Ended<'_>) -> Step {
        let call = &work.call;
        let input_bytes = call.prompt.len() + call.system_prompt.as_deref().map_or(0, str::len);
        let usage = TextUsage::from_counts(ended.counts, input_bytes, ended.text.len());
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
                result: Some(storable(ended.text)),
                outputs: Vec::new(),
                usage: serde_json::json!(usage),
                charged,
                finish_reason: ended.reason,
            })),
            request_id: ended.request_id,
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
