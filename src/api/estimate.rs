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
    /// The ceiling of its cost; what is charged is never above it.
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
    }))
}
