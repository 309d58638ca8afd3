//! Text requests.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Begun, KeyedRequest, Plan};
use crate::{
    domain::{
        catalogue::{Model, ModelKind, TextModel},
        generation::Modality,
        pricing::{Ceiling, TextCeiling},
        request::{DEFAULT_MAX_TOKENS, TextRequest},
        validate::{FieldCode, FieldError},
    },
    jobs::TextJob,
    providers::{DeltaSink, TextCall},
    service::{Service, ServiceError, auth::Caller},
};

impl Service {
    /// Checks a body statically, and where it fails says also what its model refuses.
    pub fn read_text(
        &self,
        caller: &Caller,
        body: &Map<String, Value>,
    ) -> Result<TextRequest, ServiceError> {
        TextRequest::read(body).map_err(|unreadable| {
            Self::refused_body(unreadable, |read| {
                self.resolve_text(caller, read).map(|_| ())
            })
        })
    }

    /// Holds the ceiling and starts the work, or finds what the idempotency key made before.
    pub async fn begin_text(
        &self,
        caller: &Caller,
        request: TextRequest,
        keyed: Option<&KeyedRequest>,
        deltas: Option<DeltaSink>,
    ) -> Result<Begun, ServiceError> {
        if let Some(id) = self.replayed(caller, keyed).await? {
            return Ok(Begun::Replay(id));
        }
        if self.is_draining() {
            return Err(ServiceError::ShuttingDown);
        }
        let (model, text) = self
            .resolve_text(caller, &request)
            .map_err(ServiceError::Invalid)?;
        // The default is ours, so it may bow to a smaller model; what was asked for may not.
        let max_tokens = request
            .max_tokens
            .unwrap_or(DEFAULT_MAX_TOKENS.min(text.limits.max_tokens));
        let bytes = request.prompt.len() + request.system_prompt.as_deref().map_or(0, str::len);
        let mut parameters = json!({ "max_tokens": max_tokens });
        if let Some(temperature) = request.temperature {
            parameters["temperature"] = json!(temperature);
        }
        let plan = Plan {
            model,
            prompt: request.prompt.clone(),
            system_prompt: request.system_prompt.clone(),
            negative_prompt: None,
            template: None,
            parameters,
            ceiling: Ceiling::Text(TextCeiling {
                prices: text.prices,
                input_tokens: bytes as u64 + u64::from(text.overhead_tokens),
                max_tokens,
            }),
            max_cost: request.max_cost,
        };
        let new = self.prepare(caller, &plan, keyed, false).await?;
        let provider = self.0.providers.text.get(&model.provider);
        let provider = provider
            .ok_or_else(|| ServiceError::Internal(format!("no adapter for {}", model.provider)))?;
        let job = TextJob {
            new,
            call: TextCall {
                model: model.id.clone(),
                prompt: request.prompt,
                // Blank instructions say nothing, and some providers refuse them.
                system_prompt: request.system_prompt.filter(|s| !s.trim().is_empty()),
                max_tokens,
                temperature: request.temperature,
            },
            provider: Arc::clone(provider),
            prices: text.prices,
            deltas,
        };
        let started = self.0.runner.start_text(job).await;
        self.begun(caller, started, &plan.ceiling, keyed).await
    }

    /// The model that a request means, and what it refuses.
    fn resolve_text(
        &self,
        caller: &Caller,
        request: &TextRequest,
    ) -> Result<(&Model, &TextModel), Vec<FieldError>> {
        let mut errors = Vec::new();
        if request.template.is_some() {
            let message = "is not a template of this account";
            errors.push(FieldError::new(
                "template_id",
                FieldCode::UnknownTemplate,
                message,
            ));
        }
        match self.resolve_model(caller, Modality::Text, &request.target) {
            Ok(model) => {
                if let ModelKind::Text(text) = &model.kind {
                    let chars = request.prompt.chars().count();
                    errors.extend(text.refusals(chars, request.max_tokens, request.temperature));
                    if errors.is_empty() {
                        return Ok((model, text));
                    }
                }
            }
            Err(more) => errors.extend(more),
        }
        Err(errors)
    }
}
