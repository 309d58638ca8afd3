//! How the models did in the last day, over all accounts.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;
use tokio::sync::Mutex;
use utoipa::ToSchema;

use super::{Service, ServiceError};
use crate::{
    domain::{clock::rfc3339, generation::Modality},
    store::operators::ModelHealth,
};

const PERIOD: TimeDelta = TimeDelta::days(1);
/// Maximum age of the cached figures.
const MAX_AGE: TimeDelta = TimeDelta::minutes(1);
/// Maximum generations that are read for the figures.
const MAX_READ: i64 = 20_000;

/// The last figures, with the time of their reading. Locked while they are read, so that a server
/// reads them once.
pub type ModelStatsCache = Mutex<Option<(DateTime<Utc>, Arc<ModelStats>)>>;

/// Figures of the last day, over all accounts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelStatsBody)]
pub struct ModelStats {
    /// The generations that ended from this time on are counted: the last day, or less where the
    /// last 20,000 generations of all models ended within less.
    #[serde(serialize_with = "rfc3339")]
    pub since: DateTime<Utc>,
    /// The models with such generations.
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
    /// Generations that ended.
    pub generations: i64,
    /// The completed ones, from 0 to 1, among those that completed or failed because of the
    /// provider. Refused content, invalid requests and cancellations count as neither; null without
    /// any.
    #[schema(required, nullable)]
    pub success_rate: Option<f64>,
    /// Median of the seconds from start to end of completed ones; null without any.
    #[schema(required, nullable)]
    pub median_seconds: Option<f64>,
}

impl From<ModelHealth> for ModelFigures {
    fn from(health: ModelHealth) -> Self {
        Self {
            success_rate: health.success_rate(),
            provider: health.provider,
            model: health.model,
            r#type: health.modality,
            generations: health.generations,
            median_seconds: health.median_seconds,
        }
    }
}

impl Service {
    /// The figures of the last day, at most a minute old.
    pub async fn model_stats(&self) -> Result<Arc<ModelStats>, ServiceError> {
        let mut cached = self.0.model_stats.lock().await;
        let now = self.0.clock.now();
        let is_fresh = |at: DateTime<Utc>| (TimeDelta::zero()..MAX_AGE).contains(&(now - at));
        if let Some((_, stats)) = cached.as_ref().filter(|(at, _)| is_fresh(*at)) {
            return Ok(Arc::clone(stats));
        }
        let day = now - PERIOD;
        let health = self.0.store.model_health(MAX_READ, Some(day)).await?;
        let read: i64 = health.iter().map(|model| model.generations).sum();
        let first = health.iter().map(|model| model.first_at).min();
        let stats = Arc::new(ModelStats {
            since: first.filter(|_| read == MAX_READ).unwrap_or(day),
            data: health.into_iter().map(ModelFigures::from).collect(),
        });
        *cached = Some((now, Arc::clone(&stats)));
        Ok(stats)
    }
}
