//! Generations with several candidates: the columns that the hold stores, the move to the next
//! candidate, and the attempts at earlier ones. Rows refer to models and prices by number.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use chrono::{DateTime, Utc};
use serde_json::{Value, json, value::RawValue};
use sqlx::types::Json;
use tokio::{sync::Mutex, time::timeout};

use super::{Result, Store};
use crate::{
    domain::{
        credits::Credits,
        generation::Modality,
        ids::InstanceId,
        route::{Dropped, FallbackOn, MoveReason, Routed},
    },
    store::{group_rows, jobs::Job, pool::timed_out},
};

/// Maximum wait while another request stores a price.
const TURN_LIMIT: Duration = Duration::from_secs(5);

/// The candidates of a generation to be created. The first one is in its other fields.
#[derive(Debug, Clone)]
pub struct NewRoute {
    /// The route; `None` for fallbacks of the request.
    pub name: Option<String>,
    /// The maximum cost with the first candidate.
    pub ceiling: Credits,
    /// The other candidates, in order.
    pub next: Vec<NextCandidate>,
    pub dropped: Vec<Dropped>,
    /// When a text falls back. Not stored: a text runs in the process that created it.
    pub on: FallbackOn,
}

/// A model that is used if those before it do not start.
#[derive(Debug, Clone)]
pub struct NextCandidate {
    pub provider: String,
    pub model: String,
    pub pricing: Value,
    pub ceiling: Credits,
    pub parameters: Value,
}

/// Why and when a generation left a candidate.
#[derive(Debug, Clone)]
pub struct Left {
    pub reason: MoveReason,
    /// When the provider was called; `None` if it was not.
    pub submitted_at: Option<DateTime<Utc>>,
    /// HTTP status of the provider's response.
    pub status: Option<u16>,
    pub provider_request_id: Option<String>,
}

impl NewRoute {
    /// Returns the number of further candidates.
    pub fn candidates(&self) -> i32 {
        i32::try_from(self.next.len()).unwrap_or(i32::MAX)
    }

    pub(super) fn record(&self) -> Routed {
        Routed {
            name: self.name.clone(),
            dropped: self.dropped.clone(),
            left: Vec::new(),
        }
    }
}

/// A cache of the numbers of models and prices that this process has used. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Prices(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    known: RwLock<Vec<Known>>,
    /// Held while a price is stored. The first requests of a process need the same rows at once,
    /// and would otherwise each write them.
    turn: Mutex<()>,
}

#[derive(Debug)]
struct Known {
    modality: Modality,
    provider: String,
    model: String,
    pricing: Value,
    number: PriceId,
}

/// The numbers of a row of `prices` and of its model.
#[derive(Debug, Clone, Copy)]
pub struct PriceId {
    pub model: i32,
    pub price: i32,
}

impl Prices {
    /// Clears the cache, for a database that may have lost its last rows.
    pub fn forget(&self) {
        let known = self.0.known.write();
        known.unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn find(
        &self,
        modality: Modality,
        provider: &str,
        model: &str,
        pricing: &Value,
    ) -> Option<PriceId> {
        let known = self.0.known.read().unwrap_or_else(PoisonError::into_inner);
        let same = |known: &&Known| {
            known.model == model
                && known.provider == provider
                && known.modality == modality
                && known.pricing == *pricing
        };
        known.iter().find(same).map(|known| known.number)
    }
}

impl Store {
    /// Builds the column `route`. Each candidate has its current price.
    pub(super) async fn route_row(
        &self,
        modality: Modality,
        route: &NewRoute,
    ) -> Result<Json<Box<RawValue>>> {
        let mut next = Vec::with_capacity(route.next.len());
        for candidate in &route.next {
            let (provider, model) = (&candidate.provider, &candidate.model);
            let number = self.price(modality, provider, model, &candidate.pricing);
            let number = number.await?;
            next.push(json!({
                "model_id": number.model,
                "price_id": number.price,
                "ceiling": candidate.ceiling.micros(),
                "parameters": candidate.parameters,
            }));
        }
        Ok(group_rows::json(&json!({
            "name": route.name,
            "ceiling": route.ceiling.micros(),
            "dropped": route.dropped,
            "next": next,
        })))
    }

    /// Moves a generation to its next candidate and records the one it leaves. A job is released,
    /// to be claimed for its new provider; other work stays with its instance. Returns `false`,
    /// without changing anything, if the instance no longer owns it or it has moved already.
    pub async fn move_on(
        &self,
        job: &Job,
        instance: InstanceId,
        left: &Left,
        now: DateTime<Utc>,
    ) -> Result<bool> {
        let moving = sqlx::query!(
            r#"
            with old as materialized (
                select id, model_id from running_generations
                where id = $1 and account_id = $2 and lease_token = $3 and remote_id is null
                  and jsonb_array_length(route -> 'next') = $4
                for update
            ), moved as (
                update running_generations g
                set model_id = (g.route #>> '{next,0,model_id}')::integer,
                    price_id = (g.route #>> '{next,0,price_id}')::integer,
                    parameters = g.route #> '{next,0,parameters}',
                    route = g.route || jsonb_build_object(
                        'ceiling', g.route #> '{next,0,ceiling}', 'next', (g.route -> 'next') - 0),
                    submitted_at = null,
                    lease_token = case when g.deadline_at is null then g.lease_token end,
                    next_step_at = case when g.deadline_at is not null then $5::timestamptz end
                from old
                where g.id = old.id and g.account_id = $2
                returning g.id, g.account_id, old.model_id, g.deadline_at
            )
            insert into generation_attempts
                (generation_id, account_id, number, model_id, submitted_at, ended_at, outcome,
                 status, provider_request_id)
            select m.id, m.account_id,
                   1 + (select count(*)::integer from generation_attempts a
                        where a.generation_id = m.id),
                   m.model_id, $6, $5, $7, $8, $9
            from moved m
            "#,
            job.id.0,
            job.account_id.0,
            instance.0,
            job.candidates,
            now,
            left.submitted_at,
            left.reason.as_str(),
            left.status.map(i32::from),
            left.provider_request_id,
        )
        .execute(self.jobs.named("move on to another provider"));
        Ok(moving.await?.rows_affected() == 1)
    }

    /// Returns the numbers of a model and its price; inserts the rows if they are missing.
    pub(super) async fn price(
        &self,
        modality: Modality,
        provider: &str,
        model: &str,
        pricing: &Value,
    ) -> Result<PriceId> {
        let find = || self.prices.find(modality, provider, model, pricing);
        if let Some(number) = find() {
            return Ok(number);
        }
        let turn = timeout(TURN_LIMIT, self.prices.0.turn.lock()).await;
        let _turn = turn.map_err(|_elapsed| timed_out("store a price"))?;
        if let Some(number) = find() {
            return Ok(number);
        }
        sqlx::query!(
            "insert into models (type, provider, name) values ($1, $2, $3) on conflict do nothing",
            modality.as_str(),
            provider,
            model,
        )
        .execute(self.requests.named("store a model"))
        .await?;
        let number = sqlx::query_as!(
            PriceId,
            r#"with model as (
                 select id from models where type = $1 and provider = $2 and name = $3
             ), made as (
                 insert into prices (model_id, pricing) select id, $4 from model
                 on conflict (model_id, pricing) do update set pricing = excluded.pricing
                 returning id, model_id
             )
             select model_id as model, id as price from made"#,
            modality.as_str(),
            provider,
            model,
            pricing,
        )
        .fetch_one(self.requests.named("store a price"))
        .await?;
        let known = self.prices.0.known.write();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        known.push(Known {
            modality,
            provider: provider.to_owned(),
            model: model.to_owned(),
            pricing: pricing.clone(),
            number,
        });
        Ok(number)
    }
}
