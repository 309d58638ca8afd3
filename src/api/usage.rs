//! The usage report.

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    ApiState,
    error::ApiError,
    extract::{Authorized, Query, ReadCredits},
};
use crate::{
    domain::{
        report::{UsageRow, UsageTotals},
        request::UsageRequest,
    },
    service::usage::UsageReport,
};

/// A usage report.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageBody {
    /// The groups, in ascending order of what they are grouped by; one group of everything
    /// where no `group_by` was given.
    pub data: Vec<UsageRow>,
    /// Their sum.
    pub total: UsageTotals,
}

impl From<UsageReport> for UsageBody {
    fn from(report: UsageReport) -> Self {
        Self {
            data: report.rows,
            total: report.total,
        }
    }
}

/// Report generations and their usage
///
/// By creation time. Deleted generations count; failed ones count with nothing charged.
#[utoipa::path(
    get, path = "/v1/credits/usage", tag = "credits",
    responses((status = 200, description = "The report", body = UsageBody)),
)]
pub async fn usage(
    State(state): State<ApiState>,
    auth: Authorized<ReadCredits>,
    query: Query<UsageRequest>,
) -> Result<Json<UsageBody>, ApiError> {
    let request = query.read()?;
    let report = state
        .service
        .usage(auth.caller.account_id, &request)
        .await?;
    Ok(Json(report.into()))
}
