//! The usage report.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Map, Value};

use super::{Service, ServiceError, keys::time};
use crate::domain::{
    ids::AccountId,
    report::{Span, UsageGroup, UsageRow, UsageTotals},
    validate::{Errors, FieldCode, FieldError, Fields},
};

/// How far a report reaches back unless told.
const DEFAULT_DAYS: TimeDelta = TimeDelta::days(30);
/// How long a report waits for its turn.
const REPORT_WAIT: Duration = Duration::from_secs(5);
/// Groups that one report may have.
const MAX_GROUPS: usize = 10_000;

/// What a report is asked for.
#[derive(Debug, Clone, Default)]
pub struct UsageRequest {
    /// Inclusive; 30 days before the end by default.
    pub from: Option<DateTime<Utc>>,
    /// Exclusive; up to now by default.
    pub to: Option<DateTime<Utc>>,
    pub group_by: Vec<UsageGroup>,
}

#[derive(Debug, Clone)]
pub struct UsageReport {
    /// The groups, in ascending order.
    pub rows: Vec<UsageRow>,
    pub total: UsageTotals,
}

impl UsageRequest {
    /// Reads and checks the parameters of a query.
    pub fn read(query: &Map<String, Value>) -> Result<Self, ServiceError> {
        let errors = Errors::default();
        let fields = Fields::query(query, &errors);
        let request = Self::read_fields(&fields);
        fields.finish();
        match errors.take() {
            errors if errors.is_empty() => Ok(request),
            errors => Err(ServiceError::Invalid(errors)),
        }
    }

    /// Reads the parameters of a query that may have others.
    pub fn read_fields(fields: &Fields<'_>) -> Self {
        Self {
            from: time(fields, "from"),
            to: time(fields, "to"),
            group_by: groups(fields),
        }
    }
}

fn groups(fields: &Fields<'_>) -> Vec<UsageGroup> {
    let mut groups = Vec::new();
    for name in fields
        .string("group_by")
        .iter()
        .flat_map(|text| text.split(','))
    {
        match UsageGroup::parse(name) {
            Some(group) if !groups.contains(&group) => groups.push(group),
            Some(group) => {
                let message = format!("names {group} twice");
                fields.error("group_by", FieldCode::NotAllowed, message);
                break;
            }
            None => {
                let names: Vec<_> = UsageGroup::ALL.iter().map(|g| g.as_str()).collect();
                let message = format!("must be any of {}, with commas between", names.join(", "));
                fields.error("group_by", FieldCode::NotAllowed, message);
                break;
            }
        }
    }
    groups
}

impl Service {
    /// What an account made in a span of creation times.
    pub async fn usage(
        &self,
        account: AccountId,
        request: &UsageRequest,
    ) -> Result<UsageReport, ServiceError> {
        let now = self.0.clock.now();
        // "Up to now" includes what is made at this very moment.
        let to = request.to.unwrap_or(now + TimeDelta::hours(1));
        let from = request
            .from
            .unwrap_or(request.to.unwrap_or(now) - DEFAULT_DAYS);
        if from >= to {
            return Err(ServiceError::invalid(FieldError::new(
                if request.from.is_some() { "from" } else { "to" },
                FieldCode::OutOfRange,
                "leaves no time between from and to",
            )));
        }
        let limit = i64::try_from(MAX_GROUPS + 1).unwrap_or(i64::MAX);
        let span = Span { from, to };
        let turn = tokio::time::timeout(REPORT_WAIT, self.0.reports.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            return Err(ServiceError::Overloaded);
        };
        let usage = self.0.store.usage(account, span, &request.group_by, limit);
        let rows = usage.await?;
        if rows.len() > MAX_GROUPS {
            return Err(ServiceError::invalid(FieldError::new(
                "group_by",
                FieldCode::OutOfRange,
                format!("makes more than {MAX_GROUPS} groups; ask for a shorter time or fewer"),
            )));
        }
        let mut total = UsageTotals::default();
        for row in &rows {
            total += row.totals;
        }
        Ok(UsageReport { rows, total })
    }
}
