//! What a request would hold, by the plan that the generation itself is made from.

use serde_json::{Map, Value};

use super::Plan;
use crate::{
    domain::{
        credits::Credits,
        generation::Modality,
        pricing::Prices,
        request::GenerationRequest,
        validate::{FieldCode, FieldError},
    },
    service::{Service, ServiceError, auth::Caller},
    store::generations::SpendLimit,
};

/// What a request would cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    pub modality: Modality,
    pub provider: String,
    pub model: String,
    /// What would be held.
    pub hold: Credits,
    /// Whether it could be held now.
    pub sufficient: bool,
    /// What it is computed from.
    pub prices: Prices,
}

impl Service {
    /// Checks a body statically: `type`, and what the generation of that type takes.
    pub fn read_any(
        &self,
        caller: &Caller,
        body: &Map<String, Value>,
    ) -> Result<GenerationRequest, ServiceError> {
        let refuse = |code, message: &str| {
            Err(ServiceError::invalid(FieldError::new(
                "type", code, message,
            )))
        };
        let modality = match body.get("type") {
            None | Some(Value::Null) => return refuse(FieldCode::Required, "is required"),
            Some(Value::String(name)) => Modality::parse(name),
            Some(_) => return refuse(FieldCode::InvalidType, "must be a string"),
        };
        let mut body = body.clone();
        body.remove("type");
        match modality {
            Some(Modality::Text) => self.read_text(caller, &body).map(GenerationRequest::Text),
            Some(Modality::Image) => self.read_image(caller, &body).map(GenerationRequest::Image),
            Some(Modality::Video) => self.read_video(caller, &body).map(GenerationRequest::Video),
            Some(Modality::Audio) => self
                .read_speech(caller, &body)
                .map(GenerationRequest::Audio),
            None => refuse(
                FieldCode::NotAllowed,
                "must be one of text, image, video, audio",
            ),
        }
    }

    /// What a request would hold now. Makes nothing.
    pub async fn estimate(
        &self,
        caller: &Caller,
        request: GenerationRequest,
    ) -> Result<Estimate, ServiceError> {
        let plan: Plan<'_> = match request {
            GenerationRequest::Text(request) => self.plan_text(caller, &request).await?.0,
            GenerationRequest::Image(request) => self.plan_image(caller, request)?.plan,
            GenerationRequest::Video(request) => self.plan_video(caller, request)?,
            GenerationRequest::Audio(request) => self.plan_speech(caller, request)?,
        };
        let hold = plan.ceiling.hold();
        let now = self.0.clock.now();
        let store = &self.0.store;
        let (balance, cap) = store
            .spendable_balance(caller.account_id, caller.credential, now)
            .await?;
        let limits = [
            plan.max_cost,
            cap.map(SpendLimit::left),
            Some(balance.available()),
        ];
        Ok(Estimate {
            modality: plan.model.modality(),
            provider: plan.model.provider.clone(),
            model: plan.model.id.clone(),
            hold,
            sufficient: limits.into_iter().flatten().all(|limit| hold <= limit),
            prices: plan.model.prices(),
        })
    }
}
