//! What a request would hold, by the plan that the generation itself is made from.

use super::Plan;
use crate::{
    domain::{credits::Credits, generation::Modality, pricing::Prices, request::GenerationRequest},
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
