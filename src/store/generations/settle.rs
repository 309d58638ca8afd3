//! The statement that settles generations, many at once. It also writes receipts: the token counts
//! that providers reported for a dialogue.

use chrono::{DateTime, Utc};
use serde_json::value::RawValue;
use sqlx::{PgExecutor, types::Json};
use tokio::sync::oneshot;
use tracing::Instrument as _;
use uuid::Uuid;

use super::{
    Outcome, Result, SettledRow, Settlement, Store, StoreError,
    writer::{Grouped, Verdicts, Write},
};
use crate::{
    domain::{
        credits::Credits,
        generation::{FinishReason, Modality},
        ids::AccountId,
        receipt::Receipt,
    },
    store::{group_rows, pool::statement_span},
};

/// A settlement to be written.
pub struct Settle {
    row: Row,
    account: AccountId,
    receipt: Option<(Uuid, Receipt)>,
    /// At the vendor's list prices, in micro-credits.
    list_cost: Option<i64>,
}

/// The columns to write at the end of a generation.
#[derive(sqlx::Encode)]
struct Row {
    id: Uuid,
    account_id: i64,
    instance: Option<Uuid>,
    charged: i64,
    usage: Option<Json<Box<RawValue>>>,
    outputs: Option<Json<Box<RawValue>>>,
    answer: Option<Json<Box<RawValue>>>,
    error_code: Option<&'static str>,
    error_message: Option<String>,
    finish_reason: Option<&'static str>,
    attempts: Option<i32>,
    provider_request_id: Option<String>,
    now: DateTime<Utc>,
    result: Option<String>,
}

group_rows::composite!(Row, "settlement_row");

impl Store {
    /// Ends a generation and settles it: writes its row, the account and the ledger entry, all or
    /// none. Returns `None`, without changing anything, if it had ended already or another instance
    /// owns it.
    pub async fn settle(&self, settlement: &Settlement) -> Result<Option<SettledRow>> {
        let (waiter, settled) = oneshot::channel();
        let settle = Settle::new(settlement);
        let settling = async {
            self.credits.submit(Write::Settle(settle, waiter));
            settled.await?
        };
        settling.instrument(statement_span("settle")).await
    }

    /// Returns the first of these keys' receipts that exists.
    pub async fn receipt(&self, account: AccountId, keys: &[Uuid]) -> Result<Option<Receipt>> {
        let row = sqlx::query!(
            r#"select r.bound as "bound!", r.tokens as "tokens!"
               from unnest($2::uuid[]) with ordinality as wanted (key, place)
                   cross join lateral (
                       select bound, tokens from prefix_receipts
                       where account_id = $1 and key = wanted.key
                       offset 0
                   ) r
               order by place limit 1"#,
            account.0,
            keys,
        )
        .fetch_optional(self.requests.named("read a receipt"))
        .await?;
        Ok(row.map(|row| Receipt {
            bound: row.bound.cast_unsigned(),
            tokens: row.tokens.cast_unsigned(),
        }))
    }
}

impl Settle {
    fn new(settlement: &Settlement) -> Self {
        let (completion, failure) = match &settlement.outcome {
            Outcome::Completed(completion) => (Some(completion), None),
            Outcome::Failed(failure) => (None, Some(failure)),
        };
        let outputs = completion.map(|completion| &completion.outputs[..]);
        let finish_reason = completion.and_then(|completion| completion.finish_reason);
        let row = Row {
            id: settlement.id.0,
            account_id: settlement.account_id.0,
            instance: settlement.instance.map(|instance| instance.0),
            charged: completion.map_or(0, |completion| completion.charged.micros()),
            usage: completion.map(|completion| group_rows::json(&completion.usage)),
            outputs: outputs
                .filter(|outputs| !outputs.is_empty())
                .map(group_rows::json),
            answer: completion
                .and_then(|completion| completion.answer.as_ref())
                .map(group_rows::json),
            error_code: failure.map(|failure| failure.code.as_str()),
            error_message: failure.map(|failure| failure.message.clone()),
            finish_reason: finish_reason.map(FinishReason::as_str),
            attempts: settlement.attempts,
            provider_request_id: settlement.provider_request_id.clone(),
            now: settlement.now,
            result: completion.and_then(|completion| completion.result.clone()),
        };
        Self {
            row,
            account: settlement.account_id,
            receipt: completion.and_then(|completion| completion.receipt),
            list_cost: completion
                .and_then(|completion| completion.list_cost)
                .map(Credits::micros),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let row = &self.row;
        let values = [&row.usage, &row.outputs, &row.answer];
        let values: usize = values.into_iter().flatten().map(|v| v.get().len()).sum();
        values + row.result.as_ref().map_or(0, String::len)
    }
}

impl Grouped for Settle {
    const STATEMENT: &'static str = "settle";
    type Outcome = SettledRow;

    fn account(&self) -> AccountId {
        self.account
    }

    /// Constraints refuse a charge above the hold, which fails the whole statement.
    fn write<'a>(
        items: &'a [&'a Self],
        executor: impl PgExecutor<'a> + 'a,
    ) -> Verdicts<'a, SettledRow> {
        Box::pin(write(items, executor))
    }
}

#[expect(clippy::too_many_lines, reason = "one statement")]
async fn write(
    items: &[&Settle],
    executor: impl PgExecutor<'_>,
) -> Result<Vec<Option<SettledRow>>> {
    let rows: Vec<&Row> = items.iter().map(|item| &item.row).collect();
    let accounts = group_rows::ids(items.iter().map(|item| Some(item.account.0)));
    let ids = group_rows::ids(items.iter().map(|item| Some(item.row.id)));
    let receipts = items.iter();
    let receipts = receipts.filter_map(|item| Some((item, item.receipt?)));
    let counted_at = receipts.clone().map(|(item, _)| item.row.now).max();
    let counted_of: Vec<i64> = receipts.clone().map(|(item, _)| item.account.0).collect();
    let (keys, receipts): (Vec<Uuid>, Vec<Receipt>) = receipts.map(|(_, receipt)| receipt).unzip();
    let bounds: Vec<i64> = receipts.iter().map(|one| one.bound.cast_signed()).collect();
    let tokens: Vec<i64> = receipts
        .iter()
        .map(|one| one.tokens.cast_signed())
        .collect();
    // A separate argument, because servers of the previous release share the rows' composite type.
    let list_costs: Vec<Option<i64>> = items.iter().map(|item| item.list_cost).collect();
    let verdicts = sqlx::query!(
        r#"
        with wanted as materialized (
            select *, unnest as list_cost, ordinality as place
            from rows from (unnest($1::settlement_row[]), unnest($9::bigint[])) with ordinality
        ), gone as (
            delete from running_generations g
            using wanted w
            where g.account_id + 0 = w.account_id and g.id = w.id
              and g.id = any($3)
              and (w.instance is null or g.lease_token = w.instance)
            returning g.*, w.place, w.charged, w.usage, w.outputs, w.answer,
                      w.error_code, w.error_message, w.finish_reason, w.result, w.now, w.list_cost,
                      greatest(g.attempts, w.attempts) as made,
                      coalesce(w.provider_request_id, g.remote_id) as provider_request_id,
                      coalesce(g.started_at, g.created_at) as started,
                      greatest(w.now, g.created_at) as ended
        ), moved as (
            update accounts a
            set balance = a.balance - s.charged, held = a.held - s.estimated,
                jobs = a.jobs - s.jobs
            from (select account_id, sum(charged)::bigint as charged,
                         sum(estimated)::bigint as estimated,
                         (count(*) filter (where job))::integer as jobs
                  from gone group by account_id) s
            where a.id = s.account_id and a.id = any($2)
            returning a.id, a.balance + s.charged as balance, a.held + s.estimated as held
        ), finished as (
            insert into finished_generations
                (id, account_id, api_key_id, session_id, estimated, charged, created_at,
                 started_at, completed_at, template_id, template_version, model_id, price_id,
                 attempts, prompt, system_prompt, negative_prompt, parameters, usage, result,
                 outputs, answer, error_code, error_message, finish_reason, stop_reason,
                 provider_request_id, surface, joined, route, list_cost)
            select id, account_id, api_key_id, session_id, estimated, charged, created_at,
                   started, ended, template_id, template_version, model_id, price_id, made,
                   prompt, system_prompt, negative_prompt, parameters, usage, result, outputs,
                   answer, error_code, error_message,
                   -- The only reason that servers of the release before know.
                   case when finish_reason = 'cancelled' then finish_reason end,
                   nullif(finish_reason, 'cancelled'), provider_request_id, surface, joined,
                   route - 'next', list_cost
            from gone
        ), entry as (
            insert into ledger_entries
                (account_id, kind, amount, balance, held, generation_id, created_at)
            select g.account_id, case when g.charged > 0 then 'charge' else 'release' end,
                   case when g.charged > 0 then g.charged else g.estimated end,
                   a.balance - (sum(g.charged) over entries)::bigint,
                   a.held - (sum(g.estimated) over entries)::bigint, g.id, g.now
            from gone g join moved a on a.id = g.account_id
            where g.estimated > 0
            window entries as (partition by g.account_id order by g.place)
            order by g.place
        ), spend as (
            update key_spend s
            set spent = s.spent - f.freed,
                -- Off after a recount that found it exceeded; on again as soon as it holds.
                spend_limit = case when s.spent - f.freed <= k.spend_limit then k.spend_limit end
            from (select g.api_key_id, g.spend_period,
                         sum(g.estimated - g.charged)::bigint as freed
                  from gone g join moved a on a.id = g.account_id
                  where g.spend_period is not null and g.estimated > g.charged
                  group by g.api_key_id, g.spend_period) f
                join api_keys k on k.id = f.api_key_id
            where k.id = any(array(select api_key_id from gone where spend_period is not null))
              and s.api_key_id = k.id and s.period = f.spend_period
              and s.api_key_id = any(array(
                  select api_key_id from gone where spend_period is not null))
              and s.period = any(array(
                  select spend_period from gone where spend_period is not null))
        ), trash as (
            -- Files of a failed generation have no owner.
            insert into media_trash (generation_id, created_at)
            select id, now from gone
            where error_code is not null
              and (select m.type from models m where m.id = gone.model_id) <> 'text'
            on conflict do nothing
        ), deliveries as (
            insert into webhook_deliveries
                (webhook_id, account_id, generation_id, event, next_attempt_at, created_at)
            select w.id, g.account_id, g.id, e.event, g.now, g.now
            from webhooks w join gone g on g.account_id = w.account_id,
                lateral (select case when g.error_code is null then 'generation.completed'
                                     else 'generation.failed' end as event) e
            where w.account_id = any($2) and w.deleted_at is null and e.event = any(w.events)
            returning id
        ), receipts as materialized (
            -- After the accounts are locked. A failure is none of the statement.
            select keep_receipts($4, $5, $6, $7, $8)
            where cardinality($5::uuid[]) > 0 and (select count(*) from moved) > 0
        )
        select g.id is not null as "ended!",
               m.type as "modality?: Modality", m.provider as "provider?", m.name as "model?",
               g.estimated as "estimated?: Credits", g.made as "attempts?",
               g.remote_id as "remote_id?", g.started as "started_at?",
               g.ended as "completed_at?", g.joined as "joined?",
               -- The lock of notices, until the commit, is not of an account: it may be waited for
               -- once all accounts are locked.
               case when (g.job or g.cancel_requested_at is not null)
                         and (select count(*) from moved) > 0
                    then set_config('lock_timeout', '3s', true)
                         || pg_notify('gensvc', 'ended ' || g.id)::text end as notified_end,
               case when exists (select from deliveries) and (select count(*) from moved) > 0
                    then set_config('lock_timeout', '3s', true)
                         || pg_notify('gensvc', 'deliveries')::text end
                   as notified_deliveries,
               (select count(*) from receipts) as receipts
        from wanted w
            left join gone g on g.place = w.place
            left join models m on m.id = g.model_id
        order by w.place
        "#,
        rows as _,
        &accounts,
        &ids,
        &counted_of,
        &keys,
        &bounds,
        &tokens,
        counted_at.unwrap_or_default(),
        &list_costs as _,
    )
    .fetch_all(executor)
    .await?;
    let verdicts = verdicts.into_iter().map(|row| {
        if !row.ended {
            return Ok(None);
        }
        let settled = || {
            Some(SettledRow {
                modality: row.modality?,
                provider: row.provider?,
                model: row.model?,
                estimated: row.estimated?,
                attempts: row.attempts?,
                remote_id: row.remote_id,
                started_at: row.started_at?,
                completed_at: row.completed_at?,
                joined: row.joined,
            })
        };
        let missing = || StoreError::Corrupt("a generation has no model".to_owned());
        settled().map(Some).ok_or_else(missing)
    });
    verdicts.collect()
}
