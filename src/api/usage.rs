//! The usage report.

use axum::{Json, extract::State};

use super::{
    ApiState,
    error::ApiError,
    extract::{Authorized, Query, ReadCredits},
};
use crate::{domain::request::UsageRequest, service::reports::UsageReport};

/// Report generations and their usage
///
/// By creation time. Deleted generations count; failed ones count with nothing charged.
#[utoipa::path(
    get, path = "/v1/credits/usage", tag = "credits",
    responses((status = 200, description = "The report", body = UsageReport)),
)]
pub async fn usage(
    State(state): State<ApiState>,
    auth: Authorized<ReadCredits>,
    query: Query<UsageRequest>,
) -> Result<Json<UsageReport>, ApiError> {
    let request = query.read()?;
    let account = auth.caller.account_id;
    Ok(Json(state.service.usage(account, &request).await?))
}
