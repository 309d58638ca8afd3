//! The usage report.

use super::{Result, Service, ServiceError};
use crate::domain::{
    ids::AccountId,
    limiter::Permit,
    party::Party,
    report::{Span, UsageRow, UsageTotals},
    request::UsageRequest,
    validate::FieldCode,
};
use chrono::TimeDelta;
use serde::Serialize;
use utoipa::ToSchema;

/// Default period of a report.
const DEFAULT_DAYS: TimeDelta = TimeDelta::days(30);
/// Maximum number of groups in a report.
const MAX_GROUPS: usize = 10_000;

/// A usage report.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = UsageBody)]
pub struct UsageReport {
    /// The groups, in ascending order of what they are grouped by; one group of everything
    /// where no `group_by` was given.
    pub data: Vec<UsageRow>,
    /// Their sum.
    pub total: UsageTotals,
}

impl Service {
    /// Sums the generations of an account by their creation time.
    pub async fn usage(&self, account: AccountId, request: &UsageRequest) -> Result<UsageReport> {
        let now = self.0.clock.now();
        // The end is exclusive: "until now" includes this moment.
        let to = request.to.unwrap_or(now + TimeDelta::hours(1));
        let from = request
            .from
            .unwrap_or(request.to.unwrap_or(now) - DEFAULT_DAYS);
        if from >= to {
            let param = if request.from.is_some() { "from" } else { "to" };
            let message = "leaves no time between from and to";
            return Err(ServiceError::field(param, FieldCode::OutOfRange, message));
        }
        let limit = i64::try_from(MAX_GROUPS + 1).unwrap_or(i64::MAX);
        let span = Span { from, to };
        let _permit = self.report_permit(account.into()).await?;
        let usage = self.0.store.usage(account, span, &request.group_by, limit);
        let rows = usage.await?;
        if rows.len() > MAX_GROUPS {
            let message =
                format!("makes more than {MAX_GROUPS} groups; ask for a shorter time or fewer");
            let code = FieldCode::OutOfRange;
            return Err(ServiceError::field("group_by", code, message));
        }
        let mut total = UsageTotals::default();
        for row in &rows {
            total += row.totals;
        }
        Ok(UsageReport { data: rows, total })
    }

    pub(super) async fn report_permit(&self, party: Party) -> Result<Permit<Party>> {
        let permit = self.0.reports.acquire(party).await;
        permit.ok_or(ServiceError::Overloaded)
    }
}
