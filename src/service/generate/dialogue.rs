//! Dialogues: how much they may write, and how much they read.

use std::sync::Arc;

use super::plan::{Plan, plan_call};
use crate::{
    domain::{
        catalogue::{Model, ModelKind, TextModel},
        credits::Credits,
        generation::Modality,
        pricing::TextCeiling,
        request::DialogueRequest,
    },
    providers::{DeltaSink, TextCall},
    service::{Service, ServiceError, auth::Caller},
    store::generations::SpendLimit,
};

/// Output tokens that a dialogue without a limit is worth beginning for.
const LEAST_OUTPUT: u32 = 256;

impl Service {
    pub(super) async fn plan_dialogue<'a>(
        &self,
        caller: &Caller,
        model: &'a Model,
        text: &TextModel,
        request: DialogueRequest,
        deltas: Option<DeltaSink>,
    ) -> Result<Plan<'a>, ServiceError> {
        let ceiling = TextCeiling {
            prices: Arc::clone(&text.prices),
            input_tokens: text.most_input(&request.conversation),
            max_tokens: text.limits.max_output_tokens,
            cache_writes: text.cache_writes,
        };
        // Some SDKs send the model's maximum where nobody has set a limit.
        let asked = request.max_tokens.filter(|&n| n < ceiling.max_tokens);
        let max_tokens = match asked {
            Some(asked) => asked,
            None => {
                let most = ceiling.affordable(self.spendable(caller).await?);
                let most = most.and_then(|most| u32::try_from(most).ok());
                most.unwrap_or(0).max(LEAST_OUTPUT.min(ceiling.max_tokens))
            }
        };
        let call = TextCall {
            model: model.id.clone(),
            conversation: request.conversation,
            max_tokens,
            sampling: request.sampling,
        };
        let input = ceiling.input_tokens;
        Ok(plan_call(model, text, request.prompt, call, input, deltas))
    }

    /// What the caller could have held now.
    async fn spendable(&self, caller: &Caller) -> Result<Credits, ServiceError> {
        let (store, now) = (&self.0.store, self.0.clock.now());
        let reading = store.spendable_balance(caller.account_id, caller.credential, now);
        let (balance, cap) = reading.await?;
        let available = balance.available();
        Ok(cap.map_or(available, |cap| available.min(SpendLimit::left(cap))))
    }

    /// What a dialogue asks that changes no answer and that its provider is not sent.
    pub fn left_out(&self, caller: &Caller, request: &DialogueRequest) -> Vec<&'static str> {
        let account = caller.account_default(Modality::Text);
        let model = self.0.catalogue.named(&request.model, &account);
        match model.map(|model| &model.kind) {
            Ok(ModelKind::Text(text)) => text.left_out(request),
            _ => Vec::new(),
        }
    }

    /// Input tokens that a dialogue cannot exceed.
    pub fn count_tokens(
        &self,
        caller: &Caller,
        request: &DialogueRequest,
    ) -> Result<u64, ServiceError> {
        let account = caller.account_default(Modality::Text);
        let model = self.0.catalogue.named(&request.model, &account);
        match &model.map_err(ServiceError::invalid)?.kind {
            ModelKind::Text(text) => Ok(text.most_input(&request.conversation)),
            kind => Err(ServiceError::Internal(format!("{kind:?} is no text model"))),
        }
    }
}
