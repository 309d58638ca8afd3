//! The settlement: one statement.

use serde_json::json;

use super::{GenerationRow, Outcome, Settlement, Store, StoreError};
use crate::domain::{
    credits::Credits,
    generation::{FinishReason, Generation, Status},
};

impl Store {
    /// Ends a generation and settles it: the row, the account and the ledger entry in one
    /// statement. Returns the updated row; `None`: it had ended already, or another instance owns
    /// it, and nothing was changed.
    #[expect(clippy::too_many_lines, reason = "one statement")]
    pub async fn settle(&self, settlement: &Settlement) -> Result<Option<Generation>, StoreError> {
        let (completion, failure) = match &settlement.outcome {
            Outcome::Completed(completion) => (Some(completion), None),
            Outcome::Failed(failure) => (None, Some(failure)),
        };
        let status = match completion {
            Some(_) => Status::Completed,
            None => Status::Failed,
        };
        let outputs = completion.map_or(&[][..], |c| &c.outputs);
        let charged = completion.map_or(Credits::ZERO, |c| c.charged);
        let finish_reason = completion.and_then(|c| c.finish_reason);
        // Lock order everywhere: the generation, then its account. The account's row exists by
        // foreign key; its constraint refuses a charge above the hold, and with it the whole
        // statement.
        let settling = sqlx::query_as!(
            GenerationRow,
            r#"
            with generation as (
                update generations
                set status = $3, result = $4, usage = $5, charged = $6, error_code = $7,
                    error_message = $8, attempts = greatest(attempts, coalesce($9, 0)),
                    provider_request_id = coalesce($10, provider_request_id),
                    completed_at = greatest($11, created_at), lease_token = null,
                    outputs = $12, progress = null, finish_reason = $13,
                    started_at = coalesce(started_at, created_at)
                where id = $1 and status in ('pending', 'processing')
                  and ($2::uuid is null or lease_token = $2)
                returning
                    id, account_id, type, status, provider, model, prompt, parameters, pricing,
                    api_key_id, estimated, charged, usage, result, error_code, error_message,
                    attempts, provider_request_id, created_at, started_at, completed_at,
                    outputs, progress, finish_reason, template_id, template_version
            ), trash as (
                -- Files of a failure are nobody's.
                insert into media_trash (generation_id, created_at)
                select $1, $11 from generation where type <> 'text' and status = 'failed'
                on conflict do nothing
            ), account as (
                update accounts a
                set balance = a.balance - g.charged, held = a.held - g.estimated,
                    unfinished = a.unfinished - 1
                from generation g where a.id = g.account_id
                returning a.id, a.balance, a.held
            ), entry as (
                insert into ledger_entries
                    (account_id, kind, amount, balance, held, generation_id, created_at)
                select a.id, case when g.charged > 0 then 'charge' else 'release' end,
                       case when g.charged > 0 then g.charged else g.estimated end,
                       a.balance, a.held, $1, $11
                from account a, generation g
                where g.estimated > 0
            ), spend as (
                update key_spend s
                set spent = s.spent - (g.estimated - g.charged),
                    -- Off after a recount that found it exceeded; on again as soon as it holds.
                    spend_limit = case
                        when s.spent - (g.estimated - g.charged) <= k.spend_limit then k.spend_limit
                    end
                from account, generation g join api_keys k on k.id = g.api_key_id
                where s.api_key_id = k.id and g.estimated > g.charged
                  and s.period = spend_period_start(k.spend_period, g.created_at)
            ), counted as (
                insert into usage_sums as u
                    (account_id, span, start, type, provider, model, api_key_id, completed, failed,
                     charged, input_tokens, output_tokens, images, seconds, characters)
                select a.id, span, usage_start(span, g.created_at), g.type, g.provider, g.model,
                       coalesce(g.api_key_id, 0), (g.status = 'completed')::int,
                       (g.status = 'failed')::int, g.charged, coalesce(($5::jsonb ->> 'input_tokens')::numeric, 0),
                       coalesce(($5 ->> 'output_tokens')::numeric, 0),
                       coalesce(($5 ->> 'images')::bigint, 0),
                       coalesce(($5 ->> 'seconds')::bigint, 0),
                       coalesce(($5 ->> 'characters')::bigint, 0)
                from account a, generation g, (values ('d'::"char"), ('h')) spans (span)
                on conflict (account_id, span, start, type, provider, model, api_key_id) do update
                set completed = u.completed + excluded.completed,
                    failed = u.failed + excluded.failed,
                    charged = u.charged + excluded.charged,
                    input_tokens = u.input_tokens + excluded.input_tokens,
                    output_tokens = u.output_tokens + excluded.output_tokens,
                    images = u.images + excluded.images,
                    seconds = u.seconds + excluded.seconds,
                    characters = u.characters + excluded.characters
            ), deliveries as (
                insert into webhook_deliveries
                    (webhook_id, account_id, generation_id, event, next_attempt_at, created_at)
                select w.id, a.id, $1, 'generation.' || g.status, $11, $11
                from account a, generation g, webhooks w
                where w.account_id = a.id and w.deleted_at is null
                  and 'generation.' || g.status = any (w.events)
            )
            select
                g.id as "id!: _", g.account_id as "account_id!: _", g.type as "modality!: _",
                g.status as "status!: _", g.provider as "provider!", g.model as "model!",
                g.prompt as "prompt!", g.parameters as "parameters!", g.pricing as "pricing!",
                g.api_key_id as "api_key_id?: _", g.estimated as "estimated!: _",
                g.charged as "charged?: _", g.usage as "usage?", g.result as "result?",
                g.error_code as "error_code?: _", g.error_message as "error_message?",
                g.attempts as "attempts!", g.provider_request_id as "provider_request_id?",
                g.created_at as "created_at!", g.started_at as "started_at?",
                g.completed_at as "completed_at?", g.outputs as "outputs!: _",
                g.progress as "progress?", g.finish_reason as "finish_reason?: _",
                g.template_id as "template_id?: _", g.template_version as "template_version?"
            from generation g join account a on a.id = g.account_id
            "#,
            settlement.id.0,
            settlement.instance.map(|i| i.0),
            status.as_str(),
            completion.and_then(|c| c.result.as_deref()),
            completion.map(|c| &c.usage),
            charged.micros(),
            failure.map(|f| f.code.as_str()),
            failure.map(|f| f.message.as_str()),
            settlement.attempts,
            settlement.provider_request_id,
            settlement.now,
            json!(outputs),
            finish_reason.map(FinishReason::as_str),
        )
        .fetch_optional(self.reserved.named("settle"));
        Ok(settling.await?.map(Generation::from))
    }
}
