//! The hold that a request would need, computed by the same plan as the generation itself.

use crate::{
    domain::{credits::Credits, generation::Modality, pricing::Prices, request::GenerationRequest},
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
