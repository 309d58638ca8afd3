//! Text: one call, streamed or not.

use std::{pin::pin, time::Instant};

use super::{
    RunningGuard, TextWork,
    cancel::cancelled,
    step::{Run, Step, storable},
    submit::Submission,
};
use crate::{
    domain::{
        conversation::{Answered, searches},
        credits::Credits,
        generation::FinishReason,
        json::without_nul,
        route::MoveReason,
        usage::TextUsage,
    },
    memory,
    providers::{DeltaSink, ProviderError, TextAnswer, TextProvider},
    store::generations::{Completion, Outcome},
};

impl Run<'_> {
    pub(super) async fn text_step(&self, work: &TextWork) -> Step {
        let (job, guard) = (self.job, self.guard);
        let Some(provider) = self.0.providers.text.get(&job.provider) else {
            return Step::no_provider(job);
        };
        let health = &self.0.health;
        if job.candidates.is_some() && work.deltas.is_some() {
            health.trying(&job.provider, &job.model, self.0.clock.monotonic());
        }
        let begun = Instant::now();
        let submit = self.submit(Submission::OfText, || call(provider.as_ref(), guard, work));
        let sink = work.deltas.as_ref();
        let called = submit.await;
        if let Some(at) = sink.and_then(DeltaSink::first_at) {
            let (after, now) = (
                at.saturating_duration_since(begun),
                self.0.clock.monotonic(),
            );
            health.measured(&job.provider, &job.model, after, now);
        }
        let is_closed = sink.is_some_and(DeltaSink::is_closed);
        let counted = match called {
            Ok(Some(answer)) if is_closed => Some(answer),
            Ok(Some(answer)) => return self.completed_text(work, answer, None),
            Ok(None) | Err(Step::Cancelled) => None,
            // The upstream failed, or a shutdown began, after the cancel.
            Err(_) if is_closed => None,
            // The delivered part cannot be taken back.
            Err(Step::Left(left))
                if left.reason == MoveReason::Unknown
                    && sink.is_some_and(DeltaSink::has_delivered) =>
            {
                return left.into_failure(job);
            }
            Err(step) => return step,
        };
        // If nothing was delivered, nothing is charged.
        let Some(delivered) = sink.and_then(DeltaSink::delivered) else {
            return Step::failed(cancelled());
        };
        let answer = match counted {
            Some(counted) => TextAnswer {
                usage: counted.usage,
                request_id: counted.request_id,
                ..delivered
            },
            None => delivered,
        };
        self.completed_text(work, answer, Some(FinishReason::Cancelled))
    }

    fn completed_text(
        &self,
        work: &TextWork,
        answer: TextAnswer,
        cut: Option<FinishReason>,
    ) -> Step {
        let job = self.job;
        // Until it is stored, the record's copies are in memory too, and those of a stream.
        let copies = if work.deltas.is_some() { 4 } else { 2 };
        memory::keep(answer.bytes() * copies);
        let mut usage = TextUsage::from_counts(answer.usage, work.input_bytes, answer.bytes());
        // An incomplete answer may not have the final counts.
        let is_final = cut.is_none() && answer.usage.uncounted_bytes == 0;
        let made = searches(&answer.parts);
        let is_counted = is_final && answer.usage.searches.is_some();
        if !is_counted && usage.searches.is_none_or(|counted| counted < made) && made > 0 {
            usage.searches = Some(made);
            usage.estimated = true;
        }
        let at_limit =
            usage.output_tokens >= u64::from(work.call.max_tokens) * u64::from(work.call.choices());
        // Without a dialogue, the answer is only text.
        let beyond = if work.call.is_dialogue {
            let own = answer.own.clone();
            Answered::beyond_text(&answer.parts, &answer.stop, own, at_limit)
        } else {
            None
        };
        // The vendor also counts the results of searches as input.
        let has_searched = made > 0 || usage.searches.is_some();
        let blank = work.receipt.filter(|_| is_final && !has_searched);
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
        let usage = serde_json::json!(usage);
        Step::Finished {
            outcome: Box::new(Outcome::Completed(Completion {
                result: Some(storable(&answer.text())),
                outputs: Vec::new(),
                answer: beyond.map(without_nul),
                list_cost: job.list_cost(&usage),
                usage,
                charged,
                finish_reason: cut.or(answer.stop.finish_reason()),
                receipt,
            })),
            request_id: answer.request_id,
        }
    }
}

/// Calls the provider. A cancel drops the call, unless part of the answer was delivered and the
/// model may have reasoned unseen, which the provider bills. Then the delivery ends, and the call
/// is read to its end for the counts. Returns `None` if the call was dropped.
async fn call(
    provider: &dyn TextProvider,
    guard: &RunningGuard,
    work: &TextWork,
) -> Result<Option<TextAnswer>, ProviderError> {
    // Determined before the call, which drops the conversation once the provider has accepted it.
    let may_hide = work.deltas.is_some() && provider.may_hide_reasoning(&work.call);
    let mut call = pin!(provider.generate(&work.call, work.deltas.as_ref()));
    tokio::select! {
        biased;
        answer = &mut call => return answer.map(Some),
        () = guard.handle.cancel.cancelled() => {}
    }
    let sink = work.deltas.as_ref().filter(|_| may_hide);
    if !sink.is_some_and(DeltaSink::close) {
        return Ok(None);
    }
    let read = guard.handle.abandon.run_until_cancelled(call);
    read.await.transpose()
}
