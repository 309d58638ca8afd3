//! Reports for operators: providers, unfinished work, spending, the self-audit.

use axum::Json;
use chrono::{DateTime, Datelike as _, Days, NaiveDate, NaiveTime, Utc};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

use super::Operator;
use crate::{
    api::{
        catalogue::CircuitBody,
        error::ApiError,
        extract::{NoQuery, Query},
    },
    domain::{
        clock::rfc3339,
        generation::FailureCode,
        validate::{FieldCode, Fields, Input, Parsed, parsed},
    },
    service::operators::{ProviderCalls, ROWS},
    store::operators::{
        ModelHealth, ProviderErrors, Spending, SpendingBy, SpendingSums, UnfinishedJob,
    },
};
use serde_json::json;

/// The current state of a provider.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProviderHealthBody {
    /// Its name.
    pub provider: String,
    /// Maximum concurrent calls of this server; null without a limit.
    #[schema(required, nullable)]
    pub limit: Option<usize>,
    /// Running calls of this server; null without a limit.
    #[schema(required, nullable)]
    pub in_use: Option<usize>,
    /// `account_refused` or `failing` if its last error or timeout is newer than its last completed
    /// generation, on any server, otherwise `ok`; `idle` without recent generations.
    /// `account_refused`: it refuses the API key or account of this server, and the operator must
    /// act.
    pub state: ProviderState,
    /// When its last completed generation ended; null if there is none.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub last_completed_at: Option<DateTime<Utc>>,
    /// Its failures by kind, newest first.
    pub errors: Vec<ProviderErrorBody>,
    /// Outcomes of its generations, by model. All counts cover the last 5,000 generations of all
    /// providers and servers.
    pub models: Vec<ModelHealth>,
    /// Its models that this server skips if a request has other candidates, because their last
    /// calls were not started.
    pub open_circuits: Vec<CircuitBody>,
}

/// The state of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProviderState {
    Ok,
    Idle,
    Failing,
    AccountRefused,
}

/// Failures of a provider of one kind.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProviderErrorBody {
    /// The code of the failed generations.
    pub code: FailureCode,
    /// Whether the provider refused the key or account of this server.
    pub account_refused: bool,
    /// Number of failures. With `account_refused`, calls of generations that then fell back count
    /// too.
    pub count: i64,
    /// Time of the last failure.
    #[serde(serialize_with = "rfc3339")]
    pub last_at: DateTime<Utc>,
}

/// All providers.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProvidersHealthBody {
    /// The providers of this server.
    pub data: Vec<ProviderHealthBody>,
}

fn provider_state(
    ended: &[ProviderErrors],
    last_completed_at: Option<DateTime<Utc>>,
) -> ProviderState {
    let is_newest = |errors: &&ProviderErrors| Some(errors.last_at) > last_completed_at;
    let fault = ended.iter().filter(is_newest).find(|errors| {
        errors.code.is_some_and(|code| {
            matches!(
                code,
                FailureCode::ProviderError
                    | FailureCode::ProviderTimeout
                    | FailureCode::ProviderOverloaded
                    | FailureCode::Expired
            )
        })
    });
    match fault {
        Some(errors) if errors.is_account_refused => ProviderState::AccountRefused,
        Some(_) => ProviderState::Failing,
        None if ended.is_empty() => ProviderState::Idle,
        None => ProviderState::Ok,
    }
}

/// List the health of providers
#[utoipa::path(
    get, path = "/v1/admin/providers", tag = "admin",
    responses((status = 200, description = "How they do", body = ProvidersHealthBody)),
)]
pub async fn providers(
    operator: Operator,
    _query: NoQuery,
) -> Result<Json<ProvidersHealthBody>, ApiError> {
    let (calls, mut models, mut errors) = operator.service.provider_health().await?;
    let circuits = operator.service.open_circuits();
    let error = |errors: &ProviderErrors| {
        Some(ProviderErrorBody {
            code: errors.code?,
            account_refused: errors.is_account_refused,
            count: errors.count,
            last_at: errors.last_at,
        })
    };
    let health = |calls: ProviderCalls| {
        let errors = errors.extract_if(.., |ended| ended.provider == calls.provider);
        let errors: Vec<_> = errors.collect();
        let models = models.extract_if(.., |model| model.provider == calls.provider);
        let completed = errors.iter().find(|ended| ended.code.is_none());
        let last_completed_at = completed.map(|ended| ended.last_at);
        ProviderHealthBody {
            state: provider_state(&errors, last_completed_at),
            last_completed_at,
            errors: errors.iter().filter_map(error).collect(),
            models: models.collect(),
            open_circuits: CircuitBody::of(&calls.provider, &circuits),
            provider: calls.provider,
            limit: calls.limit,
            in_use: calls.in_use,
        }
    };
    Ok(Json(ProvidersHealthBody {
        data: calls.into_iter().map(health).collect(),
    }))
}

/// Unfinished generations.
#[derive(Debug, Serialize, ToSchema)]
pub struct UnfinishedListBody {
    /// The oldest 100.
    pub data: Vec<UnfinishedJob>,
    /// Number of all unfinished generations.
    pub total: i64,
}

/// List unfinished generations
///
/// Lists those of all accounts, oldest first, without their prompts.
#[utoipa::path(
    get, path = "/v1/admin/jobs", tag = "admin",
    responses((status = 200, description = "What has not ended", body = UnfinishedListBody)),
)]
pub async fn jobs(
    operator: Operator,
    _query: NoQuery,
) -> Result<Json<UnfinishedListBody>, ApiError> {
    let (data, total) = operator.service.store().unfinished_jobs(ROWS).await?;
    Ok(Json(UnfinishedListBody { data, total }))
}

/// The query of a spending report.
pub struct SpendingQuery {
    by: SpendingBy,
    from: Option<NaiveDate>,
    to: Option<NaiveDate>,
}

const DAY: Parsed<NaiveDate> = parsed(
    || json!({"type": "string", "format": "date"}),
    |text| {
        let day = text.parse::<NaiveDate>().ok();
        let day = day.filter(|day| (1..=9999).contains(&day.year()));
        let message = "must be a day, such as 2030-01-31";
        day.ok_or((FieldCode::InvalidFormat, message.into()))
    },
);
const BY: Parsed<SpendingBy> = parsed(
    || json!({"type": "string", "enum": ["model", "account"]}),
    |text| match text {
        "model" => Ok(SpendingBy::Model),
        "account" => Ok(SpendingBy::Account),
        _ => Err((FieldCode::NotAllowed, "must be model or account".into())),
    },
);

impl Input for SpendingQuery {
    fn read(fields: &Fields<'_>) -> Option<Self> {
        let by = fields.optional("group_by", "Default: model", BY);
        Some(Self {
            by: by.unwrap_or(SpendingBy::Model),
            from: fields.optional(
                "from",
                "The first day, UTC. Default: 30 days before `to`",
                DAY,
            ),
            to: fields.optional("to", "The last day, UTC. Default: today", DAY),
        })
    }
}

/// A spending report.
#[derive(Debug, Serialize, ToSchema)]
pub struct SpendingBody {
    /// The most expensive first; at most 100 accounts.
    pub data: Vec<Spending>,
    /// Sums of all models and accounts.
    pub total: SpendingSums,
}

/// Report charges and margin
///
/// Returns the charges of all accounts on whole days (UTC), by creation of the generations, and
/// their cost at the vendors' list prices: the prices at the creation of a generation, before the
/// markup of that time. Unfinished generations count only in `lost_calls`.
#[utoipa::path(
    get, path = "/v1/admin/usage", tag = "admin",
    responses((status = 200, description = "The report", body = SpendingBody)),
)]
pub async fn usage(
    operator: Operator,
    Query(SpendingQuery { by, from, to }): Query<SpendingQuery>,
) -> Result<Json<SpendingBody>, ApiError> {
    let midnight = |day: NaiveDate| day.and_time(NaiveTime::MIN).and_utc();
    let last = to.unwrap_or_else(|| operator.service.now().date_naive());
    let first = from
        .or_else(|| last.checked_sub_days(Days::new(30)))
        .unwrap_or(last);
    let end = last.checked_add_days(Days::new(1)).unwrap_or(last);
    let spending = operator
        .service
        .spending(by, midnight(first), midnight(end));
    let (data, total) = spending.await?;
    Ok(Json(SpendingBody { data, total }))
}

/// The result of this server's last self-audit.
#[derive(Debug, Serialize, ToSchema)]
pub struct AuditBody {
    /// Number of differences: 0 if the ledger is correct; null before the first audit.
    #[schema(required, nullable)]
    pub differences: Option<usize>,
    /// Number of differences by check.
    pub checks: BTreeMap<String, usize>,
    /// When it ended.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub at: Option<DateTime<Utc>>,
    /// Its duration in milliseconds.
    #[schema(required, nullable)]
    pub took_ms: Option<u64>,
}

/// Read the last self-audit
///
/// Each server audits itself once a minute (`metrics.audit_seconds`).
#[utoipa::path(
    get, path = "/v1/admin/audit", tag = "admin",
    responses((status = 200, description = "What it found", body = AuditBody)),
)]
pub async fn audit(operator: Operator, _query: NoQuery) -> Json<AuditBody> {
    let found = operator.settings.metrics.metrics.last_audit();
    let checks = found.iter().flat_map(|found| &found.differences);
    let checks: BTreeMap<String, usize> = checks
        .map(|(name, count)| ((*name).to_owned(), *count))
        .collect();
    Json(AuditBody {
        differences: found.as_ref().map(|_| checks.values().sum()),
        checks,
        at: found
            .as_ref()
            .and_then(|found| DateTime::from_timestamp(found.at, 0)),
        took_ms: found.and_then(|found| u64::try_from(found.took.as_millis()).ok()),
    })
}
