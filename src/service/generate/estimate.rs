//! The hold that a request would need, computed by the same plan as the generation itself.

use super::{
    candidates::{Planned, PlannedRoute},
    plan::Plan,
};
use crate::{
    domain::{
        credits::Credits,
        generation::Modality,
        pricing::{Ceiling, Prices},
        request::{GenerationRequest, InputRole},
        route::Dropped,
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
    /// `None` if the request has one candidate only.
    pub route: Option<EstimatedRoute>,
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

/// The candidates of a request, each with its own ceiling. The hold is the maximum of these.
#[derive(Debug, Clone, PartialEq)]
pub struct EstimatedRoute {
    pub candidates: Vec<(String, String, Credits)>,
    pub dropped: Vec<Dropped>,
}

impl EstimatedRoute {
    fn of(first: &Plan<'_>, route: PlannedRoute<'_>) -> Self {
        let candidate = |plan: &Plan<'_>| {
            let model = plan.model;
            let ceiling = plan.ceiling.hold();
            (model.provider.clone(), model.id.clone(), ceiling)
        };
        Self {
            candidates: std::iter::once(first)
                .chain(&route.others)
                .map(candidate)
                .collect(),
            dropped: route.dropped,
        }
    }

    fn hold(&self) -> Credits {
        let ceilings = self.candidates.iter().map(|(_, _, ceiling)| *ceiling);
        ceilings.fold(Credits::ZERO, Credits::max)
    }
}

impl Service {
    /// The hold that a request would need now. Creates nothing.
    pub async fn estimate(
        &self,
        caller: &Caller,
        request: GenerationRequest,
    ) -> Result<Estimate, ServiceError> {
        let Planned { first: plan, route } = self.plan_all(caller, request, None).await?;
        let candidates = route.map(|route| EstimatedRoute::of(&plan, *route));
        let hold = (candidates.as_ref()).map_or_else(|| plan.ceiling.hold(), EstimatedRoute::hold);
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
            route: candidates,
        })
    }
}
