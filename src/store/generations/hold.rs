//! The statement that places holds, many at once.

use std::sync::{Arc, Weak};

use chrono::{DateTime, Utc};
use serde_json::value::RawValue;
use sqlx::{PgExecutor, types::Json};
use tokio::sync::oneshot;
use tracing::Instrument as _;
use uuid::Uuid;

use super::{
    Attempt, Credential, HoldOutcome, Idempotency, NewGeneration, Result, Store, StoreError,
    refusal::explain_refusal,
    routes::PriceId,
    writer::{Grouped, Verdicts, Write},
};
use crate::{
    domain::{credits::Credits, generation::Surface, ids::AccountId, rate::nanos},
    store::{
        group_rows,
        keys::{Presumed, Presumptions},
        pool::statement_span,
    },
};

pub struct Hold {
    row: Row,
    pub terms: Terms,
    /// Dangling once the caller has disconnected.
    caller: Weak<()>,
}

#[derive(Debug, Clone)]
pub struct Terms {
    pub account: AccountId,
    pub(super) credential: Credential,
    pub(super) presumed: Option<Arc<Presumed>>,
    pub(super) hold: Credits,
    pub(super) job: bool,
    pub(super) max_jobs: i32,
    /// The idempotency key to bind.
    pub(super) bind: Option<Idempotency>,
    pub(super) now: DateTime<Utc>,
}

#[derive(sqlx::Encode)]
struct Row {
    id: Uuid,
    account_id: i64,
    api_key_id: Option<i64>,
    session_id: Option<i64>,
    hold: i64,
    job: bool,
    max_jobs: i32,
    status: &'static str,
    model_id: i32,
    price_id: i32,
    negative_prompt: Option<String>,
    parameters: Json<Box<RawValue>>,
    streamed: bool,
    instance: Option<Uuid>,
    deadline_at: Option<DateTime<Utc>>,
    template_id: Option<i64>,
    template_version: Option<i32>,
    bind_key: Option<String>,
    bind_fingerprint: Option<Vec<u8>>,
    bind_until: Option<DateTime<Utc>>,
    surface: Option<&'static str>,
    now: DateTime<Utc>,
    prompt: String,
    system_prompt: Option<String>,
    route: Option<Json<Box<RawValue>>>,
}

group_rows::composite!(Row, "routed_hold_row");

impl Store {
    /// Places the hold and creates the row, the ledger entry and the idempotency binding: all of
    /// them or none. A hold that is not placed yet is abandoned once `caller` is dangling.
    pub async fn hold(&self, new: &NewGeneration, caller: &Weak<()>) -> Result<HoldOutcome> {
        let price = self.price(new.modality, &new.provider, &new.model, &new.pricing);
        let price = price.await?;
        let route = match &new.route {
            Some(route) => Some(self.route_row(new.modality, route).await?),
            None => None,
        };
        let terms = Terms::of(new);
        let hold = || Hold::new(new, price, route.clone(), caller.clone());
        let holding = async {
            // Retries are decided under the account's lock, which shows every other attempt.
            if !terms.is_attempt(Attempt::Retry) {
                let (waiter, outcome) = oneshot::channel();
                self.credits.submit(Write::Hold(hold(), waiter));
                if let Some(outcome) = outcome.await?? {
                    return Ok(outcome);
                }
                if let Some(refused) = terms.refused_before() {
                    return Ok(refused);
                }
                let explaining = self.requests.named("explain a refused hold");
                if let Some(refused) = explain_refusal(explaining, &terms).await? {
                    return Ok(refused);
                }
            }
            // The hold would fit now: alone, or because the account changed between the refusal and
            // its explanation. Under the account's lock, neither its balance nor its keys' spending
            // can change.
            let (waiter, outcome) = oneshot::channel();
            self.credits.submit_to_lane(Write::Hold(hold(), waiter));
            outcome.await??.ok_or(StoreError::RowCount {
                statement: "placing a hold",
                rows: 0,
            })
        };
        holding.instrument(statement_span("place a hold")).await
    }
}

impl Hold {
    fn new(
        new: &NewGeneration,
        price: PriceId,
        route: Option<Json<Box<RawValue>>>,
        caller: Weak<()>,
    ) -> Self {
        let (api_key_id, session_id) = new.credential.ids();
        let bind = new.idempotency.as_ref();
        let row = Row {
            id: new.id.0,
            account_id: new.account_id.0,
            api_key_id,
            session_id,
            hold: new.hold.micros(),
            job: new.job,
            max_jobs: new.max_jobs,
            status: new.status.as_str(),
            model_id: price.model,
            price_id: price.price,
            negative_prompt: new.negative_prompt.clone(),
            parameters: group_rows::json(&new.parameters),
            streamed: new.streamed,
            instance: new.instance.map(|instance| instance.0),
            deadline_at: new.deadline,
            template_id: new.template.map(|template| template.id.0),
            template_version: new.template.map(|template| template.version),
            bind_key: bind.map(|bind| bind.key.clone()),
            bind_fingerprint: bind.map(|bind| bind.fingerprint.to_vec()),
            bind_until: bind.map(|bind| bind.expires_at),
            surface: (new.surface != Surface::Generate).then(|| new.surface.as_str()),
            now: new.now,
            prompt: new.prompt.clone(),
            system_prompt: new.system_prompt.clone(),
            route,
        };
        Self {
            row,
            terms: Terms::of(new),
            caller,
        }
    }

    /// Whether the hold has a cached key whose request is not counted.
    pub(super) fn is_open(&self) -> bool {
        self.terms.uncounted().is_some()
    }

    /// Whether the caller has disconnected.
    pub(super) fn is_abandoned(&self) -> bool {
        self.caller.strong_count() == 0
    }

    pub(super) fn bytes(&self) -> usize {
        let row = &self.row;
        let texts = [&row.system_prompt, &row.negative_prompt];
        let optional: usize = texts.into_iter().flatten().map(String::len).sum();
        let route = row.route.as_ref().map_or(0, |route| route.get().len());
        row.prompt.len() + row.parameters.get().len() + optional + route
    }
}

impl Terms {
    fn of(new: &NewGeneration) -> Self {
        Self {
            account: new.account_id,
            credential: new.credential,
            presumed: new.presumed.clone(),
            hold: new.hold,
            job: new.job,
            max_jobs: new.max_jobs,
            bind: new.idempotency.clone(),
            now: new.now,
        }
    }

    pub(super) fn is_attempt(&self, attempt: Attempt) -> bool {
        self.bind.as_ref().and_then(|bind| bind.attempt) == Some(attempt)
    }

    /// Returns the cached key whose request is still to be counted.
    fn uncounted(&self) -> Option<&Presumed> {
        let presumed = self.presumed.as_deref();
        presumed.filter(|presumed| presumed.is_open())
    }

    /// Returns the refusal of a hold that was decided before its account was read.
    fn refused_before(&self) -> Option<HoldOutcome> {
        let presumed = self.presumed.as_deref()?;
        match presumed.counted() {
            None => Some(HoldOutcome::NotAsPresumed),
            Some(rate) => rate
                .retry_after_seconds
                .map(|_| HoldOutcome::RateLimited(rate)),
        }
    }
}

impl Grouped for Hold {
    const STATEMENT: &'static str = "place holds";
    type Outcome = HoldOutcome;

    fn account(&self) -> AccountId {
        self.terms.account
    }

    /// Places all given holds of an account or none of them, after leaving out holds of keys whose
    /// spend limit they would exceed.
    fn write<'a>(
        items: &'a [&'a Self],
        executor: impl PgExecutor<'a> + 'a,
    ) -> Verdicts<'a, HoldOutcome> {
        Box::pin(write(items, executor, false))
    }

    fn outcome_of(error: StoreError) -> Result<Option<HoldOutcome>> {
        if error.is_constraint("idempotency_keys_pkey") {
            // Another server's concurrent hold came first.
            Ok(Some(HoldOutcome::KeyBound))
        } else if error.is_constraint("key_spend_within_limit") {
            Ok(None)
        } else {
            Err(error)
        }
    }
}

/// Places holds. `is_decided`: it was checked under the account's lock that no retry has replaced
/// one of these attempts.
#[expect(clippy::too_many_lines, reason = "one statement")]
pub(super) async fn write(
    items: &[&Hold],
    executor: impl PgExecutor<'_>,
    is_decided: bool,
) -> Result<Vec<Option<HoldOutcome>>> {
    let rows: Vec<&Row> = items.iter().map(|item| &item.row).collect();
    let accounts = group_rows::ids(items.iter().map(|item| Some(item.terms.account.0)));
    let ids = || items.iter().map(|item| item.terms.credential.ids());
    let keys = group_rows::ids(ids().map(|(key, _)| key));
    let sessions = group_rows::ids(ids().map(|(_, session)| session));
    let presumptions = Presumptions::of(items.iter().map(|item| item.terms.uncounted()));
    let now = items.iter().map(|item| item.terms.now).max();
    let now = now.unwrap_or_default();
    let verdicts = sqlx::query!(
        r#"
        with wanted as materialized (
            select *, unnest as nth, ordinality as place
            from rows from (unnest($1::routed_hold_row[]), unnest($2::integer[])) with ordinality
        ), keys as materialized (
            select k.id, k.expires_at, k.spend_limit, k.spend_period,
                   p.id as presumed, p.per_minute, p.n
            from api_keys k
                join accounts a on a.id = k.account_id and a.id = any($3)
                left join unnest($6::bigint[], $7::integer[], $8::integer[], $9::jsonb[],
                                 $13::integer[])
                        as p (id, per_minute, n, defaults, version)
                    -- Not `=`, by which all that have the same defaults would be joined first.
                    on p.id = k.id and p.version = k.version
                        and a.defaults is not distinct from p.defaults and (k.expires_at is null or k.expires_at > $10)
            where k.id = any($4) and k.revoked_at is null
        ), counted as materialized (
            select c.caller, c.tat, c.admitted
            from count_requests('k', array(select id from keys where presumed is not null),
                                array(select per_minute from keys where presumed is not null),
                                array(select n from keys where presumed is not null), $11) c
        ), live as (
            select w.*, k.spend_limit,
                   case when k.spend_limit is not null
                        then spend_period_start(k.spend_period, w.now) end as period
            from wanted w
                join keys k on k.id = w.api_key_id
                left join counted c on c.caller = w.api_key_id
            where (k.expires_at is null or k.expires_at > w.now)
              and (w.nth is null or w.nth < c.admitted)
            union all
            select w.*, null, null
            from wanted w join sessions s on s.id = w.session_id and s.id = any($5)
            where s.revoked_at is null and s.expires_at > w.now
        ), fitting as (
            select * from (
                select l.*, sum(hold) over (partition by api_key_id, period) as of_key,
                       row_number() over (partition by account_id, bind_key order by place)
                           as of_bind
                from live l) l
            -- Looks that spare an error. What holds are the constraints.
            where (spend_limit is null
                   or spend_limit >= of_key + coalesce((
                       select s.spent from key_spend s
                       where s.api_key_id = l.api_key_id and s.period = l.period), 0))
              and (bind_key is null
                   or (of_bind = 1 and not exists (
                       select from idempotency_keys i
                       where i.account_id = l.account_id and i.key = l.bind_key)))
        ), moved as (
            update accounts a set held = a.held + s.hold, jobs = a.jobs + s.jobs
            from (select account_id, sum(hold)::bigint as hold,
                         (count(*) filter (where job))::integer as jobs,
                         min(max_jobs) as max_jobs,
                         min(bind_until) filter (where starts_with(bind_key, ' ')) as tried_until
                  from fitting group by account_id) s
            where a.id = s.account_id and a.id = any($3)
              and a.suspended_at is null and a.balance - a.held >= s.hold
              and (s.jobs = 0 or a.jobs + s.jobs <= s.max_jobs)
              -- A retry that was placed since one of these attempts arrived may have replaced it.
              and ($12 or a.retries_until is null or s.tried_until is null
                   or a.retries_until <= s.tried_until)
            returning a.id, a.balance, a.held - s.hold as held
        ), held as materialized (
            select f.*, m.balance,
                   m.held + (sum(f.hold) over (partition by f.account_id order by f.place))::bigint
                   as held
            from fitting f join moved m on m.id = f.account_id
        ), spend as (
            insert into key_spend as s (api_key_id, period, spend_limit, spent)
            select api_key_id, period, min(spend_limit), sum(hold)::bigint from held
            where spend_limit is not null and hold > 0
            group by api_key_id, period
            on conflict (api_key_id, period) do update
            set spent = s.spent + excluded.spent, spend_limit = excluded.spend_limit
        ), created as (
            insert into running_generations
                (id, account_id, api_key_id, session_id, estimated, created_at, started_at,
                 next_step_at, deadline_at, template_id, template_version, model_id, price_id,
                 spend_period, job, streamed, lease_token, status, prompt, system_prompt,
                 negative_prompt, parameters, surface, route)
            select id, account_id, api_key_id, session_id, hold, now,
                   case when instance is not null then now end,
                   case when instance is null then now end, deadline_at, template_id,
                   template_version, model_id, price_id, period, job, streamed, instance,
                   status, prompt, system_prompt, negative_prompt, parameters, surface,
                   route
            from held
        ), entry as (
            insert into ledger_entries
                (account_id, kind, amount, balance, held, generation_id, created_at)
            select account_id, 'hold', hold, balance, held, id, now from held
            where hold > 0 order by place
        ), bound as (
            insert into idempotency_keys
                (account_id, key, fingerprint, generation_id, expires_at)
            select account_id, bind_key, bind_fingerprint, id, bind_until from held
            where bind_key is not null
        )
        select h.id is not null as "held!",
               case when h.id is not null and h.instance is null
                    -- The lock of notices, until the commit, is not of an account: it may be waited
                    -- for, as those of the accounts are there.
                    then set_config('lock_timeout', '3s', true)
                         || pg_notify('gensvc', 'jobs')::text end as notified,
               c.tat as "tat?", c.admitted as "admitted?"
        from wanted w
            left join held h on h.place = w.place
            left join counted c on c.caller = w.api_key_id
        order by w.place
        "#,
        rows as _,
        &presumptions.places as _,
        &accounts,
        &keys,
        &sessions,
        &presumptions.ids,
        &presumptions.limits,
        &presumptions.counts,
        &presumptions.defaults as _,
        now,
        nanos(now),
        is_decided,
        &presumptions.versions,
    )
    .fetch_all(executor)
    .await?;
    let of_items = items.iter().zip(&presumptions.places);
    let verdicts = verdicts.into_iter().zip(of_items);
    let verdicts = verdicts.map(|(row, (item, &place))| {
        if let Some(presumed) = item.terms.uncounted() {
            presumed.settle_at(place, row.tat.zip(row.admitted), now);
        }
        row.held.then_some(HoldOutcome::Held)
    });
    Ok(verdicts.collect())
}
