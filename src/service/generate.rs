//! A text request becomes a generation: replay, model, price, ceiling, hold.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Service, ServiceError, TokenRefusal, auth::Caller, explain};
use crate::{
    domain::{
        catalogue::{Model, ModelKind, TextModel},
        credits::Credits,
        generation::{Generation, Modality},
        ids::GenerationId,
        json::fingerprint,
        pricing::TextCeiling,
        request::{DEFAULT_MAX_TOKENS, TextRequest, Unreadable},
        validate::{FieldCode, FieldError},
    },
    jobs::{Handle, TextJob},
    providers::{DeltaSink, TextCall},
    store::{
        credits::Balance,
        generations::{Idempotency, NewGeneration, Opened},
    },
};

/// What a request with an idempotency key turned out to be.
pub enum Begun {
    /// A new generation, held and running.
    New(Box<Generation>, Handle),
    /// The generation that the key made before.
    Replay(GenerationId),
}

/// A text request with what is resolved from it.
struct Resolved<'a> {
    model: &'a Model,
    text: &'a TextModel,
    max_tokens: u32,
}

/// The idempotency key of a request.
#[derive(Debug, Clone)]
pub struct KeyedRequest {
    key: String,
    fingerprint: [u8; 32],
}

impl KeyedRequest {
    /// A key for a request. The same request is the route and the body without `stream`.
    pub fn new(key: String, route: &str, body: &Map<String, Value>) -> Self {
        let mut body = body.clone();
        body.remove("stream");
        let fingerprint = fingerprint(route, &body);
        Self { key, fingerprint }
    }
}

impl Service {
    /// Checks a body statically, and where it fails says also what its model refuses, so that
    /// one answer names everything.
    pub fn read_text(
        &self,
        caller: &Caller,
        body: &Map<String, Value>,
    ) -> Result<TextRequest, ServiceError> {
        TextRequest::read(body).map_err(|unreadable| {
            let Unreadable { mut errors, read } = *unreadable;
            let more = self.resolve_text(caller, &read).err().unwrap_or_default();
            let known = |param: &str| errors.iter().any(|e| e.param == param);
            let more: Vec<_> = more.into_iter().filter(|e| !known(&e.param)).collect();
            errors.extend(more);
            ServiceError::Invalid(errors)
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
        let resolved = self
            .resolve_text(caller, &request)
            .map_err(ServiceError::Invalid)?;
        let ceiling = ceiling(&resolved, &request);
        // A hold that overflows is above every balance.
        let hold = ceiling.hold().unwrap_or(Credits::from_micros(i64::MAX));
        self.check_max_cost(caller, &request, hold, &ceiling)
            .await?;
        let job = self.text_job(caller, request, &resolved, hold, keyed, deltas)?;
        match self.0.runner.start_text(job).await? {
            Ok((generation, handle)) => Ok(Begun::New(Box::new(generation), handle)),
            Err(refused) => self.refused(caller, refused, hold, &ceiling, keyed).await,
        }
    }

    async fn replayed(
        &self,
        caller: &Caller,
        keyed: Option<&KeyedRequest>,
    ) -> Result<Option<GenerationId>, ServiceError> {
        let Some(keyed) = keyed else { return Ok(None) };
        let now = self.0.clock.now();
        let bound = self
            .0
            .store
            .bound_key(caller.account_id, &keyed.key, now)
            .await?;
        match bound {
            Some(bound) if bound.fingerprint == keyed.fingerprint => Ok(Some(bound.generation)),
            Some(_) => Err(ServiceError::IdempotencyKeyReused),
            None => Ok(None),
        }
    }

    /// The model that a request means, and what it refuses.
    fn resolve_text(
        &self,
        caller: &Caller,
        request: &TextRequest,
    ) -> Result<Resolved<'_>, Vec<FieldError>> {
        let mut errors = Vec::new();
        if request.template.is_some() {
            let message = "is not a template of this account";
            errors.push(FieldError::new(
                "template_id",
                FieldCode::UnknownTemplate,
                message,
            ));
        }
        let account = caller.account_default(Modality::Text);
        let model = match self
            .0
            .catalogue
            .resolve(Modality::Text, &request.target, &account)
        {
            Ok(model) => model,
            Err(error) => {
                errors.push(error);
                return Err(errors);
            }
        };
        let ModelKind::Text(text) = &model.kind;
        let chars = request.prompt.chars().count();
        errors.extend(text.refusals(chars, request.max_tokens, request.temperature));
        if !errors.is_empty() {
            return Err(errors);
        }
        // The default is ours, so it may bow to a smaller model; what was asked for may not.
        let default = DEFAULT_MAX_TOKENS.min(text.limits.max_tokens);
        Ok(Resolved {
            model,
            text,
            max_tokens: request.max_tokens.unwrap_or(default),
        })
    }

    async fn check_max_cost(
        &self,
        caller: &Caller,
        request: &TextRequest,
        hold: Credits,
        ceiling: &TextCeiling,
    ) -> Result<(), ServiceError> {
        let Some(max_cost) = request.max_cost.filter(|max| hold > *max) else {
            return Ok(());
        };
        let (balance, unfinished) = self.0.store.standing(caller.account_id).await?;
        self.check_jobs(unfinished)?;
        let short = explain::above_max_cost(hold, max_cost, balance, ceiling);
        Err(ServiceError::CreditsShort(Box::new(short)))
    }

    fn check_jobs(&self, unfinished: i32) -> Result<(), ServiceError> {
        let most = self.0.settings.max_jobs_per_account;
        if unfinished >= most {
            return Err(ServiceError::TooManyJobs(most));
        }
        Ok(())
    }

    fn text_job(
        &self,
        caller: &Caller,
        request: TextRequest,
        resolved: &Resolved<'_>,
        hold: Credits,
        keyed: Option<&KeyedRequest>,
        deltas: Option<DeltaSink>,
    ) -> Result<TextJob, ServiceError> {
        let Model {
            provider: name,
            id: model,
            ..
        } = resolved.model;
        let provider = self
            .0
            .providers
            .text
            .get(name)
            .ok_or_else(|| ServiceError::Internal(format!("no adapter for {name}")))?;
        let id = self.0.ids.next(self.0.clock.now());
        let now = id.created_at();
        let mut parameters = json!({"max_tokens": resolved.max_tokens});
        if let Some(temperature) = request.temperature {
            parameters["temperature"] = json!(temperature);
        }
        let call = TextCall {
            model: model.clone(),
            prompt: request.prompt.clone(),
            // Blank instructions say nothing, and some providers refuse them.
            system_prompt: request
                .system_prompt
                .clone()
                .filter(|s| !s.trim().is_empty()),
            max_tokens: resolved.max_tokens,
            temperature: request.temperature,
        };
        let new = NewGeneration {
            id,
            account_id: caller.account_id,
            credential: caller.credential,
            modality: Modality::Text,
            provider: name.clone(),
            model: model.clone(),
            prompt: request.prompt,
            system_prompt: request.system_prompt,
            parameters,
            pricing: json!(resolved.text.prices),
            hold,
            instance: self.0.runner.instance(),
            max_unfinished: self.0.settings.max_jobs_per_account,
            idempotency: keyed.map(|k| Idempotency {
                key: k.key.clone(),
                fingerprint: k.fingerprint,
                expires_at: now + self.0.settings.idempotency_period,
            }),
            now,
        };
        Ok(TextJob {
            new,
            call,
            provider: Arc::clone(provider),
            prices: resolved.text.prices,
            deltas,
        })
    }

    async fn refused(
        &self,
        caller: &Caller,
        refused: Opened,
        hold: Credits,
        ceiling: &TextCeiling,
        keyed: Option<&KeyedRequest>,
    ) -> Result<Begun, ServiceError> {
        let short = |balance: Balance| {
            let short = explain::above_available(hold, balance, ceiling);
            ServiceError::CreditsShort(Box::new(short))
        };
        Err(match refused {
            Opened::KeyBound => {
                // A parallel request with the same key was first.
                return match self.replayed(caller, keyed).await? {
                    Some(id) => Ok(Begun::Replay(id)),
                    None => Err(ServiceError::IdempotencyInProgress),
                };
            }
            Opened::CredentialEnded => ServiceError::Token(match caller.user_id {
                None if caller.expires_at.is_some_and(|at| at <= self.0.clock.now()) => {
                    TokenRefusal::Expired
                }
                None => TokenRefusal::Revoked,
                Some(_) => TokenRefusal::Invalid,
            }),
            Opened::Suspended => ServiceError::Suspended,
            Opened::TooManyJobs => ServiceError::TooManyJobs(self.0.settings.max_jobs_per_account),
            Opened::Short(balance) => short(balance),
            Opened::Held => ServiceError::Internal("a hold was both placed and refused".to_owned()),
        })
    }
}

fn ceiling(resolved: &Resolved<'_>, request: &TextRequest) -> TextCeiling {
    let bytes = request.prompt.len() + request.system_prompt.as_deref().map_or(0, str::len);
    TextCeiling {
        prices: resolved.text.prices,
        input_tokens: bytes as u64 + u64::from(resolved.text.overhead_tokens),
        max_tokens: resolved.max_tokens,
    }
}
