//! Text requests.

use std::sync::Arc;

use serde_json::json;

use super::{IdempotentRequest, Plan, Submitted};
use crate::{
    domain::{
        catalogue::{Model, ModelKind, TextModel},
        generation::Modality,
        pricing::{Ceiling, TextCeiling, TextPrices},
        request::{DEFAULT_MAX_TOKENS, TextRequest},
        validate::FieldError,
    },
    jobs::TextJob,
    providers::{DeltaSink, TextCall},
    service::{Service, ServiceError, auth::Caller},
};

impl Service {
    /// Holds the ceiling and starts the work, or finds what the idempotency key made before.
    pub(super) async fn begin_text(
        &self,
        caller: &Caller,
        request: TextRequest,
        keyed: Option<&IdempotentRequest>,
        deltas: Option<DeltaSink>,
    ) -> Result<Submitted, ServiceError> {
        if let Some(id) = self.replayed(caller, keyed).await? {
            return Ok(Submitted::Replay(id));
        }
        if self.is_draining() {
            return Err(ServiceError::ShuttingDown);
        }
        let (plan, call, prices) = self.plan_text(caller, &request).await?;
        let mut new = self.prepare(caller, &plan, keyed, false).await?;
        new.streamed = deltas.is_some();
        let seat = match self.seat(caller, &plan, keyed).await? {
            Ok(seat) => seat,
            Err(id) => return Ok(Submitted::Replay(id)),
        };
        let model = plan.model;
        let provider = self.0.providers.text.get(&model.provider);
        let provider = provider
            .ok_or_else(|| ServiceError::Internal(format!("no adapter for {}", model.provider)))?;
        let job = TextJob {
            new,
            call,
            provider: Arc::clone(provider),
            prices,
            deltas,
            seat,
        };
        let started = self.0.runner.start_text(job).await;
        self.begun(caller, started, &plan.ceiling, keyed).await
    }

    /// What a request comes to: its template applied, its model, its ceiling.
    pub(super) async fn plan_text(
        &self,
        caller: &Caller,
        request: &TextRequest,
    ) -> Result<(Plan<'_>, TextCall, TextPrices), ServiceError> {
        let words = self.rendered_prompt(caller, request).await?;
        let chars = match &words {
            Ok(words) => words.prompt.chars().count(),
            Err(_) => request.prompt.chars().count(),
        };
        let resolved = self.resolve_text(caller, request, chars);
        let (words, (model, text)) = match (words, resolved) {
            (Ok(words), Ok(resolved)) => (words, resolved),
            (words, resolved) => {
                let mut errors = words.err().unwrap_or_default();
                errors.extend(resolved.err().unwrap_or_default());
                return Err(ServiceError::Invalid(errors));
            }
        };
        // The default is ours, so it may bow to a smaller model; what was asked for may not.
        let max_tokens = request
            .max_tokens
            .unwrap_or(DEFAULT_MAX_TOKENS.min(text.limits.max_tokens));
        let bytes = words.prompt.len() + words.system_prompt.as_deref().map_or(0, str::len);
        let mut parameters = json!({ "max_tokens": max_tokens });
        if let Some(temperature) = request.temperature {
            parameters["temperature"] = json!(temperature);
        }
        let call = TextCall {
            model: model.id.clone(),
            prompt: words.prompt.clone(),
            // Blank instructions say nothing, and some providers refuse them.
            system_prompt: words.system_prompt.clone().filter(|s| !s.trim().is_empty()),
            max_tokens,
            temperature: request.temperature,
        };
        let plan = Plan {
            model,
            prompt: words.prompt,
            system_prompt: words.system_prompt,
            negative_prompt: None,
            template: words.template,
            parameters,
            ceiling: Ceiling::Text(TextCeiling {
                prices: text.prices,
                input_tokens: bytes as u64 + u64::from(text.overhead_tokens),
                max_tokens,
            }),
            max_cost: request.max_cost,
        };
        Ok((plan, call, text.prices))
    }

    /// The model that a request means, unless it refuses it. `chars`: of the prompt as sent.
    pub(super) fn resolve_text(
        &self,
        caller: &Caller,
        request: &TextRequest,
        chars: usize,
    ) -> Result<(&Model, &TextModel), Vec<FieldError>> {
        let model = self.resolve_model(caller, Modality::Text, &request.target)?;
        let ModelKind::Text(text) = &model.kind else {
            return Err(Vec::new());
        };
        match text.violations(chars, request.max_tokens, request.temperature) {
            none if none.is_empty() => Ok((model, text)),
            errors => Err(errors),
        }
    }
}
