//! The hold that a request would need, computed by the same plan as the generation itself.

use crate::{
    domain::{
        credits::Credits,
        generation::Modality,
        pricing::{Ceiling, Prices},
        request::{GenerationRequest, InputRole},
    },
    service::{Service, ServiceError, auth::Caller},
    store::generations::SpendLimit,
};

#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    pub modality: Modality,
    pub provider: String,
    pub model: String,
    pub hold: Credits,
    pub sufficient: bool,
    pub prices: Prices,
    pub inputs: Vec<EstimatedInput>,
}

/// An input's line of the estimate.
#[derive(Debug, Clone, PartialEq)]
pub struct EstimatedInput {
    pub role: InputRole,
    /// SHA-256, hexadecimal.
    pub sha256: String,
    /// In pixels, as displayed.
    pub size: (u32, u32),
    /// Part of the hold for this input.
    pub price: Credits,
}

impl Service {
    /// The hold that a request would need now. Creates nothing.
    pub async fn estimate(
        &self,
        caller: &Caller,
        request: GenerationRequest,
    ) -> Result<Estimate, ServiceError> {
        let plan = self.plan(caller, request, None).await?;
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
        let price = match &plan.ceiling {
            Ceiling::Image(image) => image.inputs.per_image,
            Ceiling::Video(video) => video.inputs.per_image,
            Ceiling::Text(_) | Ceiling::Speech(_) => Credits::ZERO,
        };
        Ok(Estimate {
            modality: plan.model.modality(),
            provider: plan.model.provider.clone(),
            model: plan.model.id.clone(),
            hold,
            sufficient: limits.into_iter().flatten().all(|limit| hold <= limit),
            prices: plan.model.prices(),
            inputs: plan
                .inputs
                .iter()
                .map(|input| EstimatedInput {
                    role: input.role(),
                    sha256: input.sha256(),
                    size: input.size(),
                    price,
                })
                .collect(),
        })
    }
}
