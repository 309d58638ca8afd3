//! Plans of dialogues: bounds of their input and output.

use std::{mem, sync::Arc};

use super::plan::{Plan, check_context, plan_call};
use crate::{
    catalogue::{Model, ModelKind, TextModel},
    domain::{
        ability::Ability,
        conversation::{Image, ImageSource, Reasoning, ReplacedNames, Sampling, Thinking},
        credits::Credits,
        generation::{Generation, Modality},
        json::Members,
        pricing::TextCeiling,
        receipt::Blank,
        route::route_name,
    },
    jobs::{Call, TextWork},
    memory,
    providers::{DeltaSink, Released, TextCall},
    request::DialogueRequest,
    service::{Result, Service, ServiceError, auth::Caller},
    store::credits::{Balance, SpendLimit},
};

/// Minimum output tokens that a dialogue without a limit must be able to pay for.
const LEAST_OUTPUT: u32 = 256;

impl Service {
    pub(super) async fn plan_dialogue<'a>(
        &self,
        caller: &Caller,
        model: &'a Model,
        text: &TextModel,
        mut request: DialogueRequest,
        deltas: Option<DeltaSink>,
    ) -> Result<Plan<'a>> {
        let passes = text.passes(&request);
        // Before the input is bounded, because the translated request may be longer.
        let replaced_names = text.translate(&mut request);
        // A vendor that gets the original body may ignore a part of it.
        let may_shrink = passes
            && (!request.others.names.is_empty()
                || request.left_out.contains(&"context_management"));
        if !may_shrink {
            check_context(text, &request.conversation)?;
        }
        let (most, receipt) = self.most_input(caller, model, text, &request).await?;
        leave_out(text, &mut request);
        request.leave_out_blank_system();
        let searches = bound_searches(text, &mut request);
        let conversation = &request.conversation;
        let has_pdfs = conversation.pdfs() > 0;
        let mut bytes = conversation.bytes() + text.uncounted_image_bytes(conversation);
        // The minimum, until the vendor has counted the PDFs.
        let input_tokens = most.unwrap_or_else(|| conversation.least_tokens());
        let mut ceiling = TextCeiling {
            searches,
            ..base_ceiling(text, &request, input_tokens)
        };
        let mut call = dialogue_call(model, text, &mut request, passes, replaced_names);
        let least = least_output(text, call.sampling.reasoning);
        // Some SDKs send the model's maximum if no limit was set.
        let asked = request.max_tokens.filter(|&n| n < ceiling.max_tokens);
        // A limit of 0 only fills the vendor's cache.
        let asked = asked.map(|asked| match asked {
            0 => 0,
            asked => asked.max(text.dialogue.min_output_tokens),
        });
        if most.is_none() {
            let least = TextCeiling {
                max_tokens: asked.unwrap_or(least.min(ceiling.max_tokens)),
                ..ceiling.clone()
            };
            ceiling.input_tokens = self
                .counted_input(caller, model, text, request.surface, &call, least)
                .await?;
        }
        if has_pdfs {
            call.media_tokens = usize::try_from(ceiling.input_tokens).unwrap_or(usize::MAX);
            bytes = call.media_tokens.saturating_mul(4);
        }
        call.max_tokens = match asked {
            Some(asked) => asked,
            None => most_output(&ceiling, least, self.spendable(caller).await?.0).0,
        };
        let mut plan = plan_call(model, request.prompt, call, ceiling, bytes, deltas);
        if let Some(Call::Text(work)) = &mut plan.call {
            work.receipt = receipt;
        }
        plan.unlimited = asked.is_none();
        Ok(plan)
    }

    /// Reads the balance of the caller's account, and the spend limit of its key.
    pub(super) async fn spendable_balance(
        &self,
        caller: &Caller,
    ) -> Result<(Balance, Option<SpendLimit>)> {
        let (store, now) = (&self.0.store, self.0.clock.now());
        let reading = store.spendable_balance(caller.account_id, caller.credential, now);
        Ok(reading.await?)
    }

    /// Returns the credits that the caller could hold now, and those that the account holds.
    pub(super) async fn spendable(&self, caller: &Caller) -> Result<(Credits, Credits)> {
        let (balance, cap) = self.spendable_balance(caller).await?;
        let available = balance.available();
        let left = cap.map_or(available, |cap| available.min(SpendLimit::left(cap)));
        Ok((left, balance.held))
    }

    /// Returns the credits that the caller could hold if nothing else were on hold.
    pub(super) async fn spendable_without_holds(&self, caller: &Caller) -> Result<Credits> {
        let (balance, cap) = self.spendable_balance(caller).await?;
        let left = |cap: SpendLimit| cap.limit.minus_or_zero(cap.spent.minus_or_zero(cap.held));
        Ok(cap.map_or(balance.balance, |cap| balance.balance.min(left(cap))))
    }

    /// Returns the vendor's count of a dialogue's input tokens, or an estimate if it has none.
    /// Fails if a field would be refused.
    pub async fn count_tokens(&self, caller: &Caller, mut request: DialogueRequest) -> Result<u64> {
        let (model, text) = self.text_model(caller, &request)?;
        let errors = text.dialogue_violations(&request);
        if !errors.is_empty() {
            return Err(ServiceError::Invalid(errors));
        }
        let passes = text.passes(&request);
        let replaced_names = text.translate(&mut request);
        // Only the vendor can count PDFs.
        let estimate = (request.conversation.pdfs() == 0)
            .then(|| text.estimated_input(&request.conversation).max(1));
        // Only a running server calls vendors.
        if let Some(estimate) = estimate
            && (!text.dialogue.counts_tokens || self.require_running().is_err())
        {
            return Ok(estimate);
        }
        self.require_running()?;
        let ability = Ability::to_generate(Modality::Text);
        let confirmed = caller.confirm_for(ability).await?;
        let caller = confirmed.as_ref().unwrap_or(caller);
        leave_out(text, &mut request);
        request.leave_out_blank_system();
        let least = TextCeiling {
            max_tokens: text.dialogue.min_output_tokens,
            ..base_ceiling(text, &request, request.conversation.least_tokens())
        };
        let call = dialogue_call(model, text, &mut request, passes, replaced_names);
        // A count that can be estimated must not wait for a permit before paid calls.
        let waits = estimate.is_none();
        let counted = self.vendor_count(caller, model, request.surface, &call, least, waits);
        counted.await.or_else(|error| estimate.ok_or(error))
    }

    /// Returns the facts about a dialogue that are known before it is planned.
    pub fn preview(&self, caller: &Caller, request: &DialogueRequest) -> Preview {
        let Ok((_, text)) = self.text_model(caller, request) else {
            // It is refused.
            return Preview::default();
        };
        let others = route_name(&request.model).into_iter();
        let others = others.flat_map(|name| self.catalogue().candidates(name));
        let others = others.filter_map(|model| match &model.kind {
            ModelKind::Text(text) => Some((
                (model.provider.clone(), model.id.clone()),
                text.left_out(request),
            )),
            _ => None,
        });
        Preview {
            left_out: text.left_out(request),
            input_tokens: text.estimated_input(&request.conversation),
            by_candidate: others.collect(),
        }
    }

    fn text_model(
        &self,
        caller: &Caller,
        request: &DialogueRequest,
    ) -> Result<(&Model, &TextModel)> {
        let account = caller.account_default(Modality::Text);
        let catalogue = self.catalogue();
        let model = catalogue.named(Modality::Text, &request.model, &account, request.surface);
        let model = model.map_err(ServiceError::invalid)?;
        match &model.kind {
            ModelKind::Text(text) => Ok((model, text)),
            kind => Err(ServiceError::Internal(format!("{kind:?} is no text model"))),
        }
    }

    /// Returns the maximum input tokens of a dialogue: from the vendor's count of its beginning if
    /// that is known, else from its bytes; `None` if the vendor must count its PDFs. Also returns
    /// the receipt to write.
    async fn most_input(
        &self,
        caller: &Caller,
        model: &Model,
        text: &TextModel,
        request: &DialogueRequest,
    ) -> Result<(Option<u64>, Option<Blank>)> {
        let passes = text.passes(request);
        let others = if passes {
            request.others.bytes
        } else {
            text.shared_bytes(request)
        };
        let bound = text.input_bound(&request.conversation, others);
        // The content behind a URL may change.
        let by_url = |image: &Image| matches!(image.source, ImageSource::Url(_));
        let pdfs = request.conversation.pdfs();
        let is_worth = pdfs > 0 || Blank::is_worth(bound);
        let prefixes = request
            .prefixes
            .as_ref()
            .filter(|_| is_worth && !request.conversation.images().any(by_url));
        let Some(prefixes) = prefixes else {
            return Ok(((pdfs == 0).then(|| text.taken_input(bound)), None));
        };
        // Everything that decides how a body is bounded and how it is counted.
        let (account, limits) = (caller.account_id, &text.limits);
        let (provider, id, overhead) = (&model.provider, &model.id, text.overhead_tokens);
        let base_url = self.0.providers.base_urls.get(provider);
        let own = text.dialogue.own;
        // A count of a beginning without one of the PDFs does not bound the tokens of that PDF.
        let scope = format!(
            "{account} {provider} {base_url:?} {id} {passes} {overhead} {limits:?} {own:?} {pdfs}"
        );
        let keys = prefixes.keys(&scope);
        let found = if prefixes.may_follow() {
            let reading = self.0.store.receipt(account, &keys).await;
            // Without a receipt the hold is only larger.
            reading.unwrap_or_else(|error| {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "a receipt cannot be read");
                None
            })
        } else {
            None
        };
        let most = if pdfs > 0 {
            found.and_then(|receipt| receipt.most_after(bound))
        } else {
            Some(found.map_or(bound, |receipt| receipt.most(bound)))
        };
        // The next turn's billing lines differ, and all of them are new.
        let undigested = if passes { prefixes.undigested } else { 0 };
        let blank = keys.first().map(|&key| Blank {
            key,
            bound: bound.saturating_sub(undigested as u64),
            begun: found.map_or(0, |receipt| receipt.tokens),
        });
        Ok((most.map(|most| text.taken_input(most)), blank))
    }
}

/// The facts about a dialogue that are known before it is planned.
#[derive(Debug, Default)]
pub struct Preview {
    /// Approximate input tokens.
    pub input_tokens: u64,
    left_out: Vec<&'static str>,
    /// Ignored fields of a route's candidates, by provider and model.
    by_candidate: Vec<((String, String), Vec<&'static str>)>,
}

impl Preview {
    /// Returns the fields that are not sent to a generation's provider; they change no answer.
    pub fn left_out(&self, record: &Generation) -> &[&'static str] {
        let mut all = self.by_candidate.iter();
        let own = all
            .find(|((provider, model), _)| *provider == record.provider && *model == record.model);
        own.map_or(&self.left_out, |(_, left_out)| left_out)
    }
}

/// Updates the output limit of a dialogue that has none. `false` if the credits are too few.
pub(super) fn replan_text(
    text: &TextModel,
    ceiling: &mut TextCeiling,
    work: &mut TextWork,
    spendable: Credits,
) -> bool {
    ceiling.max_tokens = text.limits.max_output_tokens;
    let least = least_output(text, work.call.sampling.reasoning);
    let (most, fits) = most_output(ceiling, least, spendable);
    ceiling.max_tokens = most;
    work.call.max_tokens = most;
    fits
}

/// Limits the web searches of a request without its own limit. Returns their maximum number.
fn bound_searches(text: &TextModel, request: &mut DialogueRequest) -> u32 {
    let most = text.limits.searches;
    match (request.search, &mut request.original) {
        (None, _) => 0,
        (Some(search), Some(original)) if search.most.is_none() => {
            original.bound_searches(request.surface, most);
            most
        }
        (Some(search), _) => search.most.unwrap_or(most),
    }
}

/// Returns the ceiling of a dialogue for the maximum output and no search.
fn base_ceiling(text: &TextModel, request: &DialogueRequest, input_tokens: u64) -> TextCeiling {
    let thinking = thinking_budget(text, request.sampling.reasoning).unwrap_or_default();
    TextCeiling {
        prices: Arc::clone(&text.prices),
        input_tokens,
        max_tokens: text.limits.max_output_tokens,
        min_tokens: text
            .dialogue
            .min_output_tokens
            .max(thinking.saturating_add(1))
            .min(text.limits.max_output_tokens),
        choices: request.choices,
        searches: 0,
        search_tokens: text.limits.search_tokens,
        cache_writes: text.dialogue_writes(request),
    }
}

/// Removes other vendors' parts that this vendor refuses.
fn leave_out(text: &TextModel, request: &mut DialogueRequest) {
    if !text.dialogue.thought_signatures {
        request.leave_out_thought_signatures();
    }
    if !text.dialogue.reasoning_fields {
        request.leave_out_reasoning_fields();
    }
}

/// Takes the call of a dialogue, without its output limit, from a request. Either the conversation
/// or the caller's body is sent; the other one is dropped here.
fn dialogue_call(
    model: &Model,
    text: &TextModel,
    request: &mut DialogueRequest,
    passes: bool,
    replaced_names: ReplacedNames,
) -> TextCall {
    let shared = match &request.original {
        Some(original) if !passes => original.shared(&text.shared_members(request)),
        _ => Members::default(),
    };
    let conversation = mem::take(&mut request.conversation);
    let media_tokens = text.image_tokens(&conversation);
    let (conversation, original) = match request.original.take().filter(|_| passes) {
        Some(original) => {
            if let Some(reserved) = memory::current() {
                reserved.shrink_to(original.members.bytes());
            }
            (Arc::default(), Some(Released::from(*original)))
        }
        None => (conversation, None),
    };
    TextCall {
        model: model.id.clone(),
        media_tokens,
        conversation: Released::of(conversation),
        n: request.choices,
        max_input_tokens: text.limits.max_input_tokens,
        sampling: taken(mem::take(&mut request.sampling), text),
        replaced_names,
        is_dialogue: true,
        original,
        shared,
        ..TextCall::default()
    }
}

fn least_output(text: &TextModel, reasoning: Reasoning) -> u32 {
    let thinking = thinking_budget(text, reasoning).unwrap_or_default();
    thinking.saturating_add(LEAST_OUTPUT)
}

/// A budget of thinking is a part of the output. Without room for more Anthropic refuses it, and
/// Gemini returns no text.
fn thinking_budget(text: &TextModel, reasoning: Reasoning) -> Option<u32> {
    match reasoning.thinking {
        Some(Thinking::Budget(budget)) if text.dialogue.thinking_budgets => Some(budget),
        _ => None,
    }
}

/// Returns the output tokens that these credits pay for, up to the ceiling's, and `true`; or the
/// minimum and `false` if fewer are affordable.
fn most_output(ceiling: &TextCeiling, least: u32, spendable: Credits) -> (u32, bool) {
    let most = ceiling.affordable(spendable);
    let most = most.and_then(|most| u32::try_from(most).ok()).unwrap_or(0);
    let least = least.min(ceiling.max_tokens);
    (most.max(least), most >= least)
}

/// Removes sampling values, all of them defaults, if the model accepts none.
fn taken(sampling: Sampling, text: &TextModel) -> Sampling {
    if text.limits.temperature.is_some() {
        return sampling;
    }
    Sampling {
        temperature: None,
        top_p: None,
        ..sampling
    }
}
