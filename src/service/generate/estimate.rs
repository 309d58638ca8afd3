//! The hold that a request would need, computed by the same plan as the generation itself.

use serde::Serialize;
use utoipa::ToSchema;

use super::{candidates::Planned, plan::Plan};
use crate::{
    domain::{
        credits::Credits,
        generation::Modality,
        inputs::InputRole,
        pricing::{Ceiling, Prices},
        route::Dropped,
    },
    request::GenerationRequest,
    service::{Result, Service, auth::Caller},
    store::credits::SpendLimit,
};

/// The estimated cost of a generation.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = EstimateBody)]
pub struct Estimate {
    /// Modality.
    pub r#type: Modality,
    /// Resolved provider.
    pub provider: String,
    /// Resolved model.
    pub model: String,
    /// The maximum cost; the charge never exceeds it. With several candidates, the maximum of all.
    pub estimated: Credits,
    /// The credits that would be held; the same amount.
    pub hold: Credits,
    /// Whether it could be held now: within the available credits, the key's spend limit and the
    /// request's `max_cost`.
    pub sufficient: bool,
    /// The prices from which it is computed.
    pub prices: Prices,
    /// The part of the hold for each input, in the order of the request.
    pub inputs: Vec<EstimatedInput>,
    /// The candidates of a route, or the model and its fallbacks, in order; absent if neither a
    /// route nor fallbacks were requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<EstimatedCandidate>,
    /// The candidates that are ruled out; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<Dropped>,
}

/// Part of a hold for one input.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = EstimatedInputBody)]
pub struct EstimatedInput {
    /// Role of the input.
    pub role: InputRole,
    /// SHA-256, hexadecimal.
    pub sha256: String,
    /// Pixels, as displayed.
    pub width: u32,
    /// Pixels, as displayed.
    pub height: u32,
    /// Maximum price in credits.
    pub price: Credits,
}

/// A candidate and its maximum cost.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct EstimatedCandidate {
    /// Its provider.
    pub provider: String,
    /// Its model.
    pub model: String,
    /// Its maximum cost.
    pub estimated: Credits,
}

impl EstimatedCandidate {
    fn of(plan: &Plan<'_>) -> Self {
        Self {
            provider: plan.model.provider.clone(),
            model: plan.model.id.clone(),
            estimated: plan.ceiling.hold(),
        }
    }
}

impl Service {
    /// Returns the hold that a request would need now. Creates nothing.
    pub async fn estimate(&self, caller: &Caller, request: GenerationRequest) -> Result<Estimate> {
        let Planned { first: plan, route } = self.plan_all(caller, request, None).await?;
        let first = EstimatedCandidate::of(&plan);
        let (mut candidates, mut dropped) = (Vec::new(), Vec::new());
        if let Some(route) = route {
            candidates.push(first.clone());
            candidates.extend(route.others.iter().map(EstimatedCandidate::of));
            dropped = route.dropped;
        }
        let ceilings = candidates.iter().map(|candidate| candidate.estimated);
        let hold = ceilings.fold(first.estimated, Credits::max);
        let (balance, cap) = self.spendable_balance(caller).await?;
        let limits = [
            plan.max_cost,
            cap.map(SpendLimit::left),
            Some(balance.available()),
        ];
        let price = match &plan.ceiling {
            Ceiling::Units(ceiling) => ceiling.inputs.per_image,
            Ceiling::Text(_) => Credits::ZERO,
        };
        let inputs = plan.inputs.iter().map(|input| {
            let (width, height) = input.size();
            EstimatedInput {
                role: input.role,
                sha256: input.info.sha256_hex(),
                width,
                height,
                price,
            }
        });
        Ok(Estimate {
            r#type: plan.model.modality(),
            provider: first.provider,
            model: first.model,
            estimated: hold,
            hold,
            sufficient: limits.into_iter().flatten().all(|limit| hold <= limit),
            prices: plan.model.prices(),
            inputs: inputs.collect(),
            candidates,
            dropped,
        })
    }
}
