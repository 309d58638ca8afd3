//! Estimates of the cost of a generation.

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    ApiState,
    body::JsonBody,
    error::ApiError,
    extract::{Authorized, ReadCredits},
    generate,
};
use crate::domain::{
    credits::Credits,
    generation::Modality,
    pricing::Prices,
    request::{GenerationRequest, InputRole},
    route::Dropped,
};

const ESTIMATE: &str = "/v1/credits/estimate";

/// The estimated cost of a generation.
#[derive(Debug, Serialize, ToSchema)]
pub struct EstimateBody {
    /// Modality.
    pub r#type: Modality,
    /// Resolved provider.
    pub provider: String,
    /// Resolved model.
    pub model: String,
    /// The ceiling of its cost; what is charged is never above it. With several candidates the
    /// maximum of theirs.
    pub estimated: Credits,
    /// The credits that would be held: the same amount.
    pub hold: Credits,
    /// Whether it could be held now: within what is available, the key's own cap and the
    /// request's `max_cost`.
    pub sufficient: bool,
    /// The price row that it is computed from.
    pub prices: Prices,
    /// The part of the hold for each input, in the order of the request.
    pub inputs: Vec<EstimatedInputBody>,
    /// The candidates of a route, or the model and its fallbacks, in order; absent without these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<EstimatedCandidate>,
    /// The candidates that are ruled out; absent without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<Dropped>,
}

/// Part of a hold for one input.
#[derive(Debug, Serialize, ToSchema)]
pub struct EstimatedInputBody {
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

/// A candidate, and what it may cost.
#[derive(Debug, Serialize, ToSchema)]
pub struct EstimatedCandidate {
    /// Its provider.
    pub provider: String,
    /// Its model.
    pub model: String,
    /// The ceiling of its cost.
    pub estimated: Credits,
}

/// Estimate a generation
///
/// Takes the generation's body and its `type`. Validates it like a generation, including templates,
/// and creates nothing.
#[utoipa::path(
    post, path = ESTIMATE, tag = "credits",
    responses((status = 200, description = "What would be held", body = EstimateBody)),
)]
pub async fn estimate(
    State(state): State<ApiState>,
    auth: Authorized<ReadCredits>,
    body: JsonBody<GenerationRequest>,
) -> Result<Json<EstimateBody>, ApiError> {
    let caller = &auth.caller;
    let request = generate::read(&state, caller, body).await?;
    let found = state.service.estimate(caller, request).await?;
    let (candidates, dropped) = found
        .route
        .map_or_else(Default::default, |route| (route.candidates, route.dropped));
    let candidates =
        candidates
            .into_iter()
            .map(|(provider, model, estimated)| EstimatedCandidate {
                provider,
                model,
                estimated,
            });
    Ok(Json(EstimateBody {
        r#type: found.modality,
        provider: found.provider,
        model: found.model,
        estimated: found.hold,
        hold: found.hold,
        sufficient: found.sufficient,
        prices: found.prices,
        inputs: found
            .inputs
            .into_iter()
            .map(|input| EstimatedInputBody {
                role: input.role,
                sha256: input.sha256,
                width: input.size.0,
                height: input.size.1,
                price: input.price,
            })
            .collect(),
        candidates: candidates.collect(),
        dropped,
    }))
}
