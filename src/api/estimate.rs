//! Estimates of the cost of a generation.

use axum::{Json, extract::State};

use super::{
    ApiState,
    body::JsonBody,
    error::ApiError,
    extract::{Authorized, ReadCredits},
    generate,
};
use crate::{domain::request::GenerationRequest, service::generate::Estimate};

const ESTIMATE: &str = "/v1/credits/estimate";

/// Estimate a generation
///
/// Takes the generation's body and its `type`. Validates it like a generation, including templates,
/// and creates nothing.
#[utoipa::path(
    post, path = ESTIMATE, tag = "credits",
    responses((status = 200, description = "What would be held", body = Estimate)),
)]
pub async fn estimate(
    State(state): State<ApiState>,
    auth: Authorized<ReadCredits>,
    body: JsonBody<GenerationRequest>,
) -> Result<Json<Estimate>, ApiError> {
    let caller = &auth.caller;
    let request = generate::read(&state, caller, body).await?;
    Ok(Json(state.service.estimate(caller, request).await?))
}
