//! What the account owns and how it moved.

use axum::{Json, extract::State, response::Response};
use chrono::{DateTime, Utc};
use http::Uri;
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    ApiState,
    error::ApiError,
    extract::{Authorized, NoQuery, Query, ReadCredits},
    generations::one_of,
    record::{self, PageBody},
};
use crate::{
    domain::{
        credits::Credits,
        ids::{GenerationId, LedgerEntryId},
        page::PageRequest,
    },
    store::credits::{LEDGER_CURSOR, LedgerEntry},
};

const KINDS: [&str; 6] = ["grant", "hold", "charge", "release", "adjustment", "refund"];

/// What an account owns.
#[derive(Debug, Serialize, ToSchema)]
pub struct BalanceBody {
    /// What is owned.
    pub balance: Credits,
    /// What running work may cost at most.
    pub held: Credits,
    /// `balance - held`.
    pub available: Credits,
}

/// One movement of credits.
#[derive(Debug, Serialize, ToSchema)]
pub struct LedgerEntryBody {
    /// Its id; ascends within the account.
    pub id: LedgerEntryId,
    /// grant, hold, charge, release, adjustment or refund.
    #[schema(example = "charge")]
    pub kind: String,
    /// What was moved; negative only in adjustments.
    pub amount: Credits,
    /// The balance after it.
    pub balance: Credits,
    /// What was held after it.
    pub held: Credits,
    /// The generation that it belongs to.
    #[schema(required, nullable)]
    pub generation: Option<GenerationId>,
    /// The operator's note.
    #[schema(required, nullable)]
    pub reference: Option<String>,
    /// When.
    pub created_at: DateTime<Utc>,
}

impl From<LedgerEntry> for LedgerEntryBody {
    fn from(entry: LedgerEntry) -> Self {
        Self {
            id: entry.id,
            kind: entry.kind,
            amount: entry.amount,
            balance: entry.balance,
            held: entry.held,
            generation: entry.generation,
            reference: entry.reference,
            created_at: entry.created_at,
        }
    }
}

/// Read the balance
#[utoipa::path(
    get, path = "/v1/credits/balance", tag = "credits",
    responses((status = 200, description = "How the account stands", body = BalanceBody)),
    security(("bearer" = [])), extensions(("x-required-ability" = json!("read:credits")))
)]
pub async fn balance(
    State(state): State<ApiState>,
    auth: Authorized<ReadCredits>,
    _query: NoQuery,
) -> Result<Json<BalanceBody>, ApiError> {
    let found = state.service.balance(&auth.caller).await?;
    Ok(Json(BalanceBody {
        balance: found.balance,
        held: found.held,
        available: found.available(),
    }))
}

/// List the movements of credits
#[utoipa::path(
    get, path = "/v1/credits/ledger", tag = "credits",
    params(
        ("kind" = Option<String>, Query, description = "grant, hold, charge, release, adjustment or refund"),
        ("generation" = Option<String>, Query, description = "A generation's uuid"),
        ("per_page" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Default 20"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
    ),
    responses((status = 200, description = "A page of entries, newest first", body = PageBody<LedgerEntryBody>)),
    security(("bearer" = [])), extensions(("x-required-ability" = json!("read:credits")))
)]
pub async fn ledger(
    State(state): State<ApiState>,
    auth: Authorized<ReadCredits>,
    query: Query,
    uri: Uri,
) -> Result<Response, ApiError> {
    let (kind, generation, page) = query.read(|fields| {
        let kind = one_of(fields, "kind", &KINDS, |name| {
            KINDS.into_iter().find(|kind| *kind == name)
        });
        let generation = fields.string("generation").and_then(|text| {
            let id = GenerationId::parse(text);
            if id.is_none() {
                let code = crate::domain::validate::FieldCode::InvalidFormat;
                fields.error("generation", code, "must be a uuid");
            }
            id
        });
        (kind, generation, PageRequest::read(fields, LEDGER_CURSOR))
    })?;
    let found = state
        .service
        .ledger(&auth.caller, kind, generation, &page)
        .await?;
    Ok(record::page(found, &uri, LedgerEntryBody::from))
}
