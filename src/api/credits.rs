//! The account's balance and ledger, its usage, and estimates.

use axum::{Json, response::Response};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::{
    body::JsonBody,
    error::ApiError,
    extract::{Authorized, NoQuery, Query, ReadCredits},
    generate,
    record::{self, PageBody},
};
use crate::{
    domain::{
        credits::Credits,
        ids::GenerationId,
        page::PageRequest,
        validate::{FieldCode, Fields, Input, Parsed, generation_id, parsed},
    },
    request::{GenerationRequest, UsageRequest},
    service::{generate::Estimate, reports::UsageReport},
    store::credits::{LEDGER_CURSOR, LedgerEntry},
};

/// Filters of the ledger's entries.
pub struct LedgerQuery {
    kind: Option<&'static str>,
    generation: Option<GenerationId>,
    page: PageRequest,
}

const KINDS: [&str; 6] = ["grant", "hold", "charge", "release", "adjustment", "refund"];
const KIND: Parsed<&str> = parsed(
    || json!({"type": "string", "enum": KINDS}),
    |text| {
        let kind = KINDS.into_iter().find(|kind| *kind == text);
        kind.ok_or_else(|| {
            let message = format!("must be one of {}", KINDS.join(", "));
            (FieldCode::NotAllowed, message.into())
        })
    },
);

impl Input for LedgerQuery {
    fn read(fields: &Fields<'_>) -> Option<Self> {
        let kinds = "grant, hold, charge, release, adjustment or refund";
        Some(Self {
            kind: fields.optional("kind", kinds, KIND),
            generation: fields.optional("generation", "A generation's uuid", generation_id()),
            page: PageRequest::read(fields, LEDGER_CURSOR),
        })
    }
}

/// The balance of an account.
#[derive(Debug, Serialize, ToSchema)]
pub struct BalanceBody {
    /// All credits of the account, including those on hold.
    pub balance: Credits,
    /// Credits on hold: the maximum cost of running work.
    pub held: Credits,
    /// `balance - held`.
    pub available: Credits,
}

/// Read the balance
#[utoipa::path(
    get, path = "/v1/credits/balance", tag = "credits",
    responses((status = 200, description = "How the account stands", body = BalanceBody)),
)]
pub async fn balance(
    auth: Authorized<ReadCredits>,
    _query: NoQuery,
) -> Result<Json<BalanceBody>, ApiError> {
    let store = auth.service.store();
    let found = store.balance(auth.caller.account_id).await?;
    Ok(Json(BalanceBody {
        balance: found.balance,
        held: found.held,
        available: found.available(),
    }))
}

/// List ledger entries
#[utoipa::path(
    get, path = "/v1/credits/ledger", tag = "credits",
    responses((status = 200, description = "A page of entries, newest first", body = PageBody<LedgerEntry>)),
)]
pub async fn ledger(
    auth: Authorized<ReadCredits>,
    Query(asked): Query<LedgerQuery>,
) -> Result<Response, ApiError> {
    let (store, account) = (auth.service.store(), auth.caller.account_id);
    let finding = store.ledger(account, asked.kind, asked.generation, &asked.page);
    Ok(record::page(finding.await?, &auth.uri, |entry| entry))
}

/// Report generations and their usage
///
/// Groups generations by creation time. Deleted generations count; failed ones count with no
/// charge.
#[utoipa::path(
    get, path = "/v1/credits/usage", tag = "credits",
    responses((status = 200, description = "The report", body = UsageReport)),
)]
pub async fn usage(
    auth: Authorized<ReadCredits>,
    Query(request): Query<UsageRequest>,
) -> Result<Json<UsageReport>, ApiError> {
    let account = auth.caller.account_id;
    Ok(Json(auth.service.usage(account, &request).await?))
}

/// Estimate a generation
///
/// Accepts the body of a generation, with its `type`. Validates it like a generation, including
/// templates, and creates nothing.
#[utoipa::path(
    post, path = "/v1/credits/estimate", tag = "credits",
    responses((status = 200, description = "What would be held", body = Estimate)),
)]
pub async fn estimate(
    auth: Authorized<ReadCredits>,
    body: JsonBody<GenerationRequest>,
) -> Result<Json<Estimate>, ApiError> {
    let caller = &auth.caller;
    let request = generate::read(&auth.state, caller, body).await?;
    Ok(Json(auth.service.estimate(caller, request).await?))
}
