//! Reports over all accounts for operators, and the users who are operators.

use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Result, Store, StoreError, exactly_one, history::lowest_id};
use crate::domain::{
    clock::rfc3339,
    credits::Credits,
    generation::{ACCOUNT_REFUSED, FailureCode, Modality, Status},
    ids::{AccountId, GenerationId, UserId},
    route::MoveReason,
};

/// The outcomes of a model's generations.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelHealthBody)]
pub struct ModelHealth {
    #[serde(skip)]
    pub provider: String,
    /// The model.
    pub model: String,
    /// Its modality.
    #[serde(rename = "type")]
    pub modality: Modality,
    /// Number of generations that ended.
    pub generations: i64,
    /// Number of generations that failed.
    pub failed: i64,
    /// Number of failures caused by the provider: without refused content, cancellations and
    /// generations interrupted by a restart of the server.
    pub faults: i64,
    /// Number of failures because the provider refused the server's key or account. The operator
    /// must act.
    pub account_errors: i64,
    /// Median duration of completed generations, in seconds; null if there are none.
    #[schema(required, nullable)]
    pub median_seconds: Option<f64>,
    /// 95th percentile of these durations, in seconds.
    #[schema(required, nullable)]
    pub p95_seconds: Option<f64>,
    /// When the first of the generations ended.
    #[serde(skip)]
    pub first_at: DateTime<Utc>,
}

impl ModelHealth {
    /// Returns completed generations divided by completed ones plus provider failures, 0 to 1;
    /// `None` if there are none.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub fn success_rate(&self) -> Option<f64> {
        let completed = self.generations - self.failed;
        let judged = completed + self.faults;
        (judged > 0).then(|| completed as f64 / judged as f64)
    }
}

/// The grouping of a spending report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpendingBy {
    Model,
    Account,
}

/// Number of one provider's generations with the same outcome, among the last settled ones.
#[derive(Debug)]
pub struct ProviderErrors {
    pub provider: String,
    /// `None`: completed generations.
    pub code: Option<FailureCode>,
    /// Whether the provider refused the operator's key or account.
    pub is_account_refused: bool,
    pub count: i64,
    pub last_at: DateTime<Utc>,
}

/// A generation that has not ended.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UnfinishedBody)]
pub struct UnfinishedJob {
    /// Its id.
    #[serde(rename = "uuid")]
    pub id: GenerationId,
    /// The account it belongs to.
    pub account: AccountId,
    /// Its modality.
    #[serde(rename = "type")]
    pub modality: Modality,
    /// Its provider.
    pub provider: String,
    /// Its model.
    pub model: String,
    /// pending or processing.
    pub status: Status,
    /// Submissions to the provider.
    pub attempts: i32,
    /// 0 to 100; null if the provider does not report it.
    #[schema(required, nullable)]
    pub progress: Option<i16>,
    /// Credits on hold for it.
    pub held: Credits,
    /// When it was created.
    #[serde(serialize_with = "rfc3339")]
    pub created_at: DateTime<Utc>,
    /// Number of all unfinished generations.
    #[serde(skip)]
    pub total: i64,
}

/// The charges and list costs of a model, or of an account.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SpendingRowBody)]
pub struct Spending {
    /// The provider of a model; null for accounts.
    #[schema(required, nullable)]
    pub provider: Option<String>,
    /// The model; null for accounts.
    #[schema(required, nullable)]
    pub model: Option<String>,
    /// The id of an account; null for models.
    #[schema(required, nullable)]
    pub account: Option<AccountId>,
    /// The name of an account; null for models.
    #[schema(required, nullable)]
    pub name: Option<String>,
    #[serde(flatten)]
    pub sums: SpendingSums,
}

/// Charges and list costs of generations.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SpendingSumsBody)]
pub struct SpendingSums {
    /// Number of completed generations.
    pub completed: i64,
    /// Number of failed generations.
    pub failed: i64,
    /// Total charged: the sum of `list_cost`, `margin` and `unknown_cost_charged`.
    pub charged: Credits,
    /// Cost of completed generations at the vendors' list prices of their creation, without those
    /// of `unknown_cost`. Includes usage above the hold, which is not charged.
    pub list_cost: Credits,
    /// The charges of these generations less `list_cost`. Negative if they cost more.
    pub margin: Credits,
    /// Completed generations without a known list cost, for example because an earlier version
    /// created, settled or counted them. They are not part of the margin.
    pub unknown_cost: i64,
    /// The charges of the `unknown_cost` generations.
    pub unknown_cost_charged: Credits,
    /// Completed generations that were charged by estimated counts, because the provider reported
    /// no usable counts, or the stream was cancelled before the final counts.
    pub estimated_counts: i64,
    /// Calls whose answer was lost and after which the generation fell back (`fallback_on:
    /// "unknown"`), whether or not it completed; unfinished generations are included. The provider
    /// may bill these calls. No account is charged for them, and `list_cost` does not include them.
    pub lost_calls: i64,
}

impl Store {
    /// Makes a user an operator, or an operator a normal user.
    pub async fn set_operator(
        &self,
        user: UserId,
        operator: bool,
        now: DateTime<Utc>,
    ) -> Result<()> {
        let done = sqlx::query!(
            "update users set operator_since = case when $2 then coalesce(operator_since, $3) end
             where id = $1",
            user.0,
            operator,
            now,
        )
        .execute(self.requests.named("make an operator"))
        .await?;
        exactly_one("making an operator", done.rows_affected())
    }

    /// Returns the outcomes by model of the last `most` generations of all accounts, without those
    /// that ended before `since`.
    pub async fn model_health(
        &self,
        most: i64,
        since: Option<DateTime<Utc>>,
    ) -> Result<Vec<ModelHealth>> {
        let reading = sqlx::query_as!(
            ModelHealth,
            r#"
            with recent as (
                -- The index of what is settled, backwards.
                select model_id, failed, error_code, error_message, completed_at,
                       extract(epoch from completed_at - started_at)::float8 as seconds
                from finished_generations order by settled desc limit $1
            )
            select m.type as "modality: Modality", m.provider, m.name as model,
                   count(*) as "generations!",
                   count(*) filter (where failed) as "failed!",
                   count(*) filter (where error_code in ('provider_error', 'provider_timeout',
                       'provider_overloaded', 'expired')) as "faults!",
                   count(*) filter (where error_message = $2) as "account_errors!",
                   percentile_cont(0.5) within group (order by seconds)
                       filter (where not failed) as median_seconds,
                   percentile_cont(0.95) within group (order by seconds)
                       filter (where not failed) as p95_seconds,
                   min(completed_at) as "first_at!"
            from recent join models m on m.id = recent.model_id
            where $3::timestamptz is null or completed_at >= $3
            group by m.type, m.provider, m.name order by m.provider, m.type, m.name
            "#,
            most,
            ACCOUNT_REFUSED,
            since,
        )
        .fetch_all(self.requests.named("look at the models").long());
        Ok(reading.await?)
    }

    /// Counts the outcomes of the last `most` generations of all accounts by provider and code,
    /// newest first. An attempt that ended because a provider refused the server's account counts
    /// as an error of that provider.
    pub async fn provider_errors(&self, most: i64) -> Result<Vec<ProviderErrors>> {
        let reading = sqlx::query_as!(
            ProviderErrors,
            r#"
            with recent as (
                select id, model_id, error_code, error_message, completed_at, route
                from finished_generations order by settled desc limit $1
            ), outcomes as (
                select model_id, error_code, coalesce(error_message = $2, false) as is_refused,
                       completed_at as ended_at
                from recent
                union all
                select a.model_id, $3, true, a.ended_at
                from recent join generation_attempts a on a.generation_id = recent.id
                where recent.route is not null and a.outcome = $4
            )
            select m.provider, error_code as "code: FailureCode", is_refused as "is_account_refused!",
                   count(*) as "count!", max(ended_at) as "last_at!"
            from outcomes join models m on m.id = model_id
            group by 1, 2, 3 order by max(ended_at) desc
            "#,
            most,
            ACCOUNT_REFUSED,
            FailureCode::ProviderError.as_str(),
            MoveReason::AccountRefused.as_str(),
        )
        .fetch_all(self.requests.named("look at the providers' errors").long());
        Ok(reading.await?)
    }

    /// Returns the oldest `most` unfinished generations of all accounts, and the number of all.
    pub async fn unfinished_jobs(&self, most: i64) -> Result<(Vec<UnfinishedJob>, i64)> {
        let jobs = sqlx::query_as!(
            UnfinishedJob,
            r#"
            select g.id as "id: GenerationId", g.account_id as "account: AccountId",
                   m.type as "modality: Modality", m.provider, m.name as model,
                   g.status as "status: Status", g.attempts, g.progress,
                   g.estimated as "held: Credits", g.created_at, count(*) over () as "total!"
            from running_generations g join models m on m.id = g.model_id
            order by g.id limit $1
            "#,
            most,
        )
        .fetch_all(self.requests.named("list unfinished work").long())
        .await?;
        let total = jobs.first().map_or(0, |job| job.total);
        Ok((jobs, total))
    }

    /// Sums spending by creation on whole days (UTC). Of running work, only lost calls count.
    /// Returns the `most` groups with the highest charges, or all, and the sum of all groups.
    pub async fn spending(
        &self,
        by: SpendingBy,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
        most: Option<i64>,
    ) -> Result<(Vec<Spending>, SpendingSums)> {
        let rows = sqlx::query!(
            r#"
            with parts as (
                select model_id, account_id, completed, failed, charged, costed, costed_charged,
                       list_cost, estimated_counts, 0 as lost_calls
                from usage_sums where span = 'd' and start >= $1 and start < $2
                union all
                -- What the sums do not count yet.
                select model_id, account_id, completed, failed, charged, costed, costed_charged,
                       list_cost, estimated_counts, 0
                from usage_counted
                where span = 'd' and start >= $1 and start < $2
                  and settled >= (select upto from settled_cursors where name = 'usage')
                union all
                select model_id, account_id, 0, 0, 0, 0, 0, 0, 0, 1 from generation_attempts
                where outcome = 'unknown' and generation_id >= $3 and generation_id < $4
            )
            select m.provider as "provider?", m.name as "model?",
                   a.id as "account?: AccountId", a.name as "name?",
                   coalesce(sum(completed), 0)::bigint as "completed!",
                   coalesce(sum(failed), 0)::bigint as "failed!",
                   coalesce(sum(charged), 0)::bigint as "charged!",
                   coalesce(sum(costed), 0)::bigint as "costed!",
                   coalesce(sum(costed_charged), 0)::bigint as "costed_charged!",
                   least(coalesce(sum(list_cost), 0), 9223372036854775807)::bigint as "list_cost!",
                   coalesce(sum(estimated_counts), 0)::bigint as "estimated_counts!",
                   coalesce(sum(lost_calls), 0)::bigint as "lost_calls!"
            from parts
                left join models m on m.id = model_id and $5
                left join accounts a on a.id = account_id and not $5
            group by grouping sets ((m.type, m.provider, m.name, a.id, a.name), ())
            -- The sum of all first.
            order by grouping(m.name, a.id) desc, sum(charged) desc, m.provider, m.name, a.id
            limit $6
            "#,
            from,
            to,
            lowest_id(from),
            lowest_id(to),
            by == SpendingBy::Model,
            most.map(|most| most + 1),
        )
        .fetch_all(self.requests.named("report spending").long())
        .await?;
        let mut rows = rows.into_iter().map(|row| Spending {
            provider: row.provider,
            model: row.model,
            account: row.account,
            name: row.name,
            sums: SpendingSums {
                completed: row.completed,
                failed: row.failed,
                charged: Credits::from_micros(row.charged),
                list_cost: Credits::from_micros(row.list_cost),
                margin: Credits::from_micros(row.costed_charged - row.list_cost),
                unknown_cost: row.completed - row.costed,
                unknown_cost_charged: Credits::from_micros(row.charged - row.costed_charged),
                estimated_counts: row.estimated_counts,
                lost_calls: row.lost_calls,
            },
        });
        let total = rows.next().ok_or(StoreError::RowCount {
            statement: "reporting spending",
            rows: 0,
        })?;
        Ok((rows.collect(), total.sums))
    }
}
