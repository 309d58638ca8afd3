//! Reports: the usage and the history of an account, and the outcomes of the models in the last day.

use std::{ops::Range, sync::Arc};

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;
use tokio::sync::Mutex;
use utoipa::ToSchema;

use super::{Result, Service, ServiceError};
use crate::{
    domain::{
        clock::rfc3339,
        generation::{Generation, Modality},
        ids::AccountId,
        limiter::Permit,
        page::{Page, PageRequest},
        party::Party,
        report::{Span, UsageRow, UsageTotals},
        validate::FieldCode,
    },
    request::UsageRequest,
    store::{StoreError, history::HistoryFilter, operators::ModelHealth},
};

/// Default period of a report.
const DEFAULT_DAYS: TimeDelta = TimeDelta::days(30);
/// Maximum number of groups in a report.
const MAX_GROUPS: usize = 10_000;

/// A usage report.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = UsageBody)]
pub struct UsageReport {
    /// The groups, in ascending order; one group of everything if no `group_by` was given.
    pub data: Vec<UsageRow>,
    /// Their sum.
    pub total: UsageTotals,
}

const PERIOD: TimeDelta = TimeDelta::days(1);
/// Maximum age of the cached figures.
const MAX_AGE: TimeDelta = TimeDelta::minutes(1);
/// Time after a failed read in which the statement is not repeated.
const RETRY_AFTER: TimeDelta = TimeDelta::seconds(5);
/// Maximum generations that are read for the figures.
const MAX_READ: i64 = 20_000;
/// Minimum generations of a model with figures. Figures of fewer would reveal the activity of
/// single accounts.
const MIN_GENERATIONS: i64 = 20;

/// A cache of the last read. Locked during a read, so that a server runs one read at a time.
pub type ModelStatsCache = Arc<Mutex<Option<LastRead>>>;

/// A completed read of the figures.
#[derive(Debug)]
pub struct LastRead {
    /// The period in which callers get this result.
    fresh_during: Range<DateTime<Utc>>,
    /// If the read failed, the figures of an earlier one, or the error if there are none.
    stats: Result<Arc<ModelStats>, StoreError>,
}

/// Figures of the last day, over all accounts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelStatsBody)]
pub struct ModelStats {
    /// Generations that ended from this time on are counted: those of the last day, or the newest
    /// 20,000 of all models if there were more.
    #[serde(serialize_with = "rfc3339")]
    pub since: DateTime<Utc>,
    /// The listed models with at least 20 such generations.
    pub data: Vec<ModelFigures>,
}

/// Figures of a model.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelFiguresBody)]
pub struct ModelFigures {
    /// Provider name.
    pub provider: String,
    /// The provider's model id.
    pub model: String,
    /// Modality.
    pub r#type: Modality,
    /// Completed generations divided by completed ones plus provider failures, 0 to 1; null if
    /// there are none.
    #[schema(required, nullable)]
    pub success_rate: Option<f64>,
    /// Median of the seconds from start to end of completed generations; null if there are none.
    #[schema(required, nullable)]
    pub median_seconds: Option<f64>,
}

impl Service {
    /// Sums the generations of an account by their creation time.
    pub async fn usage(&self, account: AccountId, request: &UsageRequest) -> Result<UsageReport> {
        let now = self.0.clock.now();
        // The end is exclusive, but a report until now includes this moment.
        let to = request.to.unwrap_or(now + TimeDelta::hours(1));
        let from = request
            .from
            .unwrap_or(request.to.unwrap_or(now) - DEFAULT_DAYS);
        if from >= to {
            let param = if request.from.is_some() { "from" } else { "to" };
            let message = "must leave time between from and to";
            return Err(ServiceError::field(param, FieldCode::OutOfRange, message));
        }
        let limit = i64::try_from(MAX_GROUPS + 1).unwrap_or(i64::MAX);
        let span = Span { from, to };
        let _permit = self.report_permit(account.into()).await?;
        let usage = self.0.store.usage(account, span, &request.group_by, limit);
        let rows = usage.await?;
        if rows.len() > MAX_GROUPS {
            let message = format!(
                "results in more than {MAX_GROUPS} groups; use a shorter time or fewer members"
            );
            let code = FieldCode::OutOfRange;
            return Err(ServiceError::field("group_by", code, message));
        }
        let mut total = UsageTotals::default();
        for row in &rows {
            total += row.totals;
        }
        Ok(UsageReport { data: rows, total })
    }

    /// Returns a page of an account's generations, newest first. A search takes the permit of a
    /// report, so that searches of one account leave connections to others.
    pub async fn history(
        &self,
        account: AccountId,
        filter: &HistoryFilter,
        page: &PageRequest,
    ) -> Result<Page<Generation>> {
        let _permit = if filter.is_search() {
            Some(self.report_permit(account.into()).await?)
        } else {
            None
        };
        Ok(self.0.store.history(account, filter, page).await?)
    }

    pub(super) async fn report_permit(&self, party: Party) -> Result<Permit<Party>> {
        let permit = self.0.reports.acquire(party).await;
        permit.ok_or(ServiceError::Overloaded)
    }

    /// Returns the figures of the last day, at most a minute old unless reads fail. A read
    /// completes even if the caller disconnects, so that disconnects do not repeat it.
    pub async fn model_stats(&self) -> Result<Arc<ModelStats>> {
        let mut cached = Arc::clone(&self.0.model_stats).lock_owned().await;
        let now = self.0.clock.now();
        if let Some(last) = cached
            .as_ref()
            .filter(|last| last.fresh_during.contains(&now))
        {
            return Ok(last.stats.clone()?);
        }
        let service = self.clone();
        let reading = self.complete("the reading of model statistics", async move {
            let read = service.read_model_stats().await;
            let max_age = if read.is_ok() { MAX_AGE } else { RETRY_AFTER };
            let earlier = cached.take().and_then(|last| last.stats.ok());
            let stats = read.or_else(|error| {
                tracing::warn!(%error, "model statistics could not be read");
                earlier.ok_or(error)
            });
            let ended_at = service.0.clock.now();
            *cached = Some(LastRead {
                fresh_during: ended_at..ended_at + max_age,
                stats: stats.clone(),
            });
            stats
        });
        Ok(reading.await??)
    }

    async fn read_model_stats(&self) -> Result<Arc<ModelStats>, StoreError> {
        let day = self.0.clock.now() - PERIOD;
        let health = self.0.store.model_health(MAX_READ, Some(day)).await?;
        let read: i64 = health.iter().map(|model| model.generations).sum();
        let first = health.iter().map(|model| model.first_at).min();
        let is_shown = |health: &ModelHealth| {
            health.generations >= MIN_GENERATIONS
                && self.catalogue().listed().any(|model| {
                    model.provider == health.provider
                        && model.id == health.model
                        && model.modality() == health.modality
                })
        };
        let shown = health.into_iter().filter(is_shown);
        let figures = shown.map(|health| ModelFigures {
            success_rate: health.success_rate(),
            provider: health.provider,
            model: health.model,
            r#type: health.modality,
            median_seconds: health.median_seconds,
        });
        Ok(Arc::new(ModelStats {
            since: first.filter(|_| read == MAX_READ).unwrap_or(day),
            data: figures.collect(),
        }))
    }
}
