//! What was made and used, in groups.

use axum::{Json, extract::State};
use chrono::NaiveDate;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    ApiState,
    error::ApiError,
    extract::{Authorized, Query, ReadCredits},
};
use crate::{
    domain::{
        credits::Credits,
        ids::ApiKeyId,
        report::{UsageKey, UsageRow, UsageTotals},
        request::UsageRequest,
    },
    service::usage::UsageReport,
};

/// What was made and used.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageTotalsBody {
    /// All that were made, running ones included.
    pub generations: i64,
    /// Those that completed.
    pub completed: i64,
    /// Those that failed.
    pub failed: i64,
    /// What they cost.
    pub charged: Credits,
    /// Tokens of text.
    pub input_tokens: i64,
    /// Tokens of text.
    pub output_tokens: i64,
    /// Images.
    pub images: i64,
    /// Seconds of video.
    pub seconds: i64,
    /// Characters of speech.
    pub characters: i64,
}

/// One group. It names what the report is grouped by, and nothing else.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageRowBody {
    /// The day, in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day: Option<NaiveDate>,
    /// Modality.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// Provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The key's id; null for sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ApiKeyId>)]
    pub api_key: Option<UsageKey>,
    /// Its sums.
    #[serde(flatten)]
    pub totals: UsageTotalsBody,
}

/// A usage report.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageBody {
    /// The groups, in ascending order of what they are grouped by; one group of everything
    /// where no `group_by` was given.
    pub data: Vec<UsageRowBody>,
    /// Their sum.
    pub total: UsageTotalsBody,
}

impl From<UsageTotals> for UsageTotalsBody {
    fn from(totals: UsageTotals) -> Self {
        Self {
            generations: totals.generations,
            completed: totals.completed,
            failed: totals.failed,
            charged: totals.charged,
            input_tokens: totals.input_tokens,
            output_tokens: totals.output_tokens,
            images: totals.images,
            seconds: totals.seconds,
            characters: totals.characters,
        }
    }
}

impl From<UsageRow> for UsageRowBody {
    fn from(row: UsageRow) -> Self {
        Self {
            day: row.day,
            r#type: row.r#type,
            provider: row.provider,
            model: row.model,
            api_key: row.api_key,
            totals: row.totals.into(),
        }
    }
}

impl From<UsageReport> for UsageBody {
    fn from(report: UsageReport) -> Self {
        Self {
            data: report.rows.into_iter().map(Into::into).collect(),
            total: report.total.into(),
        }
    }
}

/// Report what was made and used
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
