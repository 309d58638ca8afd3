//! The settlement: one statement.

use serde_json::json;

use super::{Outcome, Settlement, Store, StoreError};
use crate::domain::{
    credits::Credits,
    generation::{FinishReason, Status},
};

impl Store {
    /// Ends a generation and settles it: the row, the account and the ledger entry in one
    /// statement. `false`: it had ended already, or another instance works on it; nothing was
    /// touched.
    #[expect(clippy::too_many_lines, reason = "one statement")]
    pub async fn finish(&self, finish: &Settlement) -> Result<bool, StoreError> {
        let none = Vec::new();
        let (status, result, outputs, usage, charged, finish_reason, failure) =
            match &finish.outcome {
                Outcome::Completed {
                    result,
                    outputs,
                    usage,
                    charged,
                    finish_reason,
                } => (
                    Status::Completed,
                    result.as_ref(),
                    outputs,
                    Some(usage),
                    *charged,
                    *finish_reason,
                    None,
                ),
                Outcome::Failed(failure) => (
                    Status::Failed,
                    None,
                    &none,
                    None,
                    Credits::ZERO,
                    None,
                    Some(failure),
                ),
            };
        // Lock order everywhere: the generation, then its account. The account's row exists by
        // foreign key; its constraint refuses a charge above the hold, and with it everything.
        let settling = sqlx::query!(
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
                returning account_id, estimated, charged, type, status, provider, model,
                          api_key_id, created_at
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
            ), told as (
                insert into webhook_deliveries
                    (webhook_id, account_id, generation_id, event, next_attempt_at, created_at)
                select w.id, a.id, $1, 'generation.' || g.status, $11, $11
                from account a, generation g, webhooks w
                where w.account_id = a.id and w.deleted_at is null
                  and 'generation.' || g.status = any (w.events)
            )
            select id from account
            "#,
            finish.id.0,
            finish.instance.map(|i| i.0),
            status.as_str(),
            result,
            usage,
            charged.micros(),
            failure.map(|f| f.code.as_str()),
            failure.map(|f| f.message.as_str()),
            finish.attempts,
            finish.provider_request_id,
            finish.now,
            json!(outputs),
            finish_reason.map(FinishReason::as_str),
        )
        .fetch_optional(self.reserved.named("settle"));
        Ok(settling.await?.is_some())
    }
}
