//! Generations with several candidates: what the hold stores of them, the move to the next one, and
//! the attempts that were left.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Value, value::RawValue};
use sqlx::types::Json;

use super::{Result, Store, prices::Priced};
use crate::{
    domain::{
        credits::Credits,
        generation::Modality,
        ids::InstanceId,
        route::{Dropped, FallbackOn, MoveReason, Routed},
    },
    store::{group_rows, jobs::Job},
};

/// The candidates of a generation to be created. The first one is in its other fields.
#[derive(Debug, Clone)]
pub struct NewRoute {
    /// The route; `None` for fallbacks of the request.
    pub name: Option<String>,
    /// The maximum cost with the first candidate.
    pub ceiling: Credits,
    /// The others, in order.
    pub next: Vec<NextCandidate>,
    pub dropped: Vec<Dropped>,
    /// Of a text, which runs where it was created.
    pub on: FallbackOn,
}

/// A model that serves if those before it do not start.
#[derive(Debug, Clone)]
pub struct NextCandidate {
    pub provider: String,
    pub model: String,
    pub pricing: Value,
    pub ceiling: Credits,
    pub parameters: Value,
}

/// Why and when a generation leaves a candidate.
#[derive(Debug, Clone)]
pub struct Left {
    pub reason: MoveReason,
    /// When the provider was called; `None` if it was not.
    pub submitted_at: Option<DateTime<Utc>>,
    /// HTTP status of the answer.
    pub status: Option<u16>,
    pub provider_request_id: Option<String>,
}

/// The column `route`, as a hold writes it.
#[derive(Serialize)]
struct Column<'a> {
    name: Option<&'a str>,
    ceiling: i64,
    dropped: &'a [Dropped],
    next: Vec<NextColumn<'a>>,
}

#[derive(Serialize)]
struct NextColumn<'a> {
    model_id: i32,
    price_id: i32,
    ceiling: i64,
    parameters: &'a Value,
}

impl NewRoute {
    /// Number of further candidates.
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

impl Store {
    /// The column `route`. The price of each candidate is the one of now.
    pub(super) async fn route_row(
        &self,
        modality: Modality,
        route: &NewRoute,
    ) -> Result<Json<Box<RawValue>>> {
        let mut next = Vec::with_capacity(route.next.len());
        for candidate in &route.next {
            let priced = Priced {
                modality,
                provider: &candidate.provider,
                model: &candidate.model,
                pricing: &candidate.pricing,
            };
            let number = self.price(priced).await?;
            next.push(NextColumn {
                model_id: number.model,
                price_id: number.price,
                ceiling: candidate.ceiling.micros(),
                parameters: &candidate.parameters,
            });
        }
        Ok(group_rows::json(&Column {
            name: route.name.as_deref(),
            ceiling: route.ceiling.micros(),
            dropped: &route.dropped,
            next,
        }))
    }

    /// Moves a generation on to its next candidate, and records the one that it leaves. A job is
    /// released, to be claimed for its new provider; other work stays with its instance. `false`: the
    /// instance no longer owns it, or it has moved already, and nothing was changed.
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
}
