//! Stored generations: lookup, deletion, and cancels of texts that another server streams.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{FromRow as _, types::Json};
use uuid::Uuid;

use super::{Result, Store};
use crate::{
    dialect::Answer,
    domain::{
        conversation::Answered,
        credits::Credits,
        generation::{
            Failure, FailureCode, FinishReason, Generation, Modality, Output, Status, Surface,
            TemplateUse,
        },
        ids::{AccountId, ApiKeyId, GenerationId, InstanceId, TemplateId},
        route::Routed,
    },
};

#[derive(sqlx::FromRow)]
pub(in crate::store) struct GenerationRow {
    pub id: GenerationId,
    pub account_id: AccountId,
    #[sqlx(rename = "type")]
    pub modality: Modality,
    pub status: Status,
    pub provider: String,
    pub model: String,
    pub prompt: String,
    pub parameters: Value,
    pub pricing: Value,
    pub api_key_id: Option<ApiKeyId>,
    pub estimated: Credits,
    pub charged: Option<Credits>,
    pub usage: Option<Value>,
    pub result: Option<String>,
    pub error_code: Option<FailureCode>,
    pub error_message: Option<String>,
    pub attempts: i32,
    pub provider_request_id: Option<String>,
    pub created_at: DateTime<Utc>,
    pub started_at: Option<DateTime<Utc>>,
    pub completed_at: Option<DateTime<Utc>>,
    pub outputs: Option<Json<Vec<Output>>>,
    pub progress: Option<i16>,
    pub finish_reason: Option<FinishReason>,
    pub template_id: Option<TemplateId>,
    pub template_version: Option<i32>,
    pub surface: Option<Surface>,
    pub answer: Option<Json<Answered>>,
    pub joined: Option<i32>,
    pub route: Option<Json<Routed>>,
}

#[derive(sqlx::FromRow)]
struct AnswerRow {
    id: GenerationId,
    usage: Option<Value>,
    result: Option<String>,
    answer: Option<Json<Answered>>,
    max_tokens: Option<i64>,
    finish_reason: Option<FinishReason>,
}

impl Store {
    /// Returns a generation of an account, unless it is deleted.
    pub async fn generation(
        &self,
        account: AccountId,
        id: GenerationId,
    ) -> Result<Option<Generation>> {
        self.read_generation(account, id, false).await
    }

    /// Passes the answers of these generations to `read`, one at a time. Skips generations of other
    /// accounts or without an answer.
    pub async fn each_answer(
        &self,
        account: AccountId,
        ids: &[Uuid],
        mut read: impl FnMut(GenerationId, Answer) + Send,
    ) -> Result<()> {
        let query = sqlx::query(
            // One lookup per row; otherwise the planner could read all generations of the account.
            "select g.* from unnest($2::uuid[]) wanted (id) cross join lateral (
                 select id, usage, result, answer,
                     (parameters ->> 'max_tokens')::bigint as max_tokens,
                     coalesce(finish_reason, stop_reason) as finish_reason
                 from generations
                 where id = wanted.id and account_id = $1 and deleted_at is null
                     and usage is not null
                 offset 0
             ) g",
        );
        let call = self.requests.named("read answers").long();
        let reading = call.each(query.bind(account.0).bind(ids), |row| {
            let row = AnswerRow::from_row(&row)?;
            let max_tokens = row.max_tokens.and_then(|limit| u64::try_from(limit).ok());
            let answered = row.answer.map(|Json(answered)| answered);
            let answer = row.usage.and_then(|usage| {
                Answer::from_parts(usage, max_tokens, row.finish_reason, answered, row.result)
            });
            if let Some(answer) = answer {
                read(row.id, answer);
            }
            Ok(())
        });
        Ok(reading.await?)
    }

    /// Returns a generation, even if its owner has deleted it.
    pub async fn generation_including_deleted(
        &self,
        account: AccountId,
        id: GenerationId,
    ) -> Result<Option<Generation>> {
        self.read_generation(account, id, true).await
    }

    async fn read_generation(
        &self,
        account: AccountId,
        id: GenerationId,
        deleted: bool,
    ) -> Result<Option<Generation>> {
        let reading = sqlx::query_as!(
            GenerationRow,
            r#"
            select
                id as "id!: _", account_id as "account_id!: _", type as "modality!: _",
                status as "status!: _", provider as "provider!", model as "model!",
                prompt as "prompt!", parameters as "parameters!", pricing as "pricing!",
                api_key_id as "api_key_id: _", estimated as "estimated!: _",
                charged as "charged: _", usage, result, error_code as "error_code: _",
                error_message, attempts as "attempts!", provider_request_id,
                created_at as "created_at!", started_at, completed_at, outputs as "outputs: _",
                progress, coalesce(finish_reason, stop_reason) as "finish_reason: _",
                template_id as "template_id: _", template_version, surface as "surface: _", answer as "answer: _", joined,
                case when route is not null then route || jsonb_build_object('left', (
                    select coalesce(jsonb_agg(a order by a.number), '[]') from (
                        select a.number, m.provider, m.name as model,
                               coalesce(lag(a.ended_at) over (order by a.number), a.submitted_at,
                                        a.ended_at) as started_at,
                               a.ended_at, a.submitted_at is not null as called, a.outcome,
                               a.status, a.provider_request_id
                        from generation_attempts a join models m on m.id = a.model_id
                        where a.generation_id = $2
                    ) a
                )) end as "route: _"
            from generations
            where account_id = $1 and id = $2 and ($3 or deleted_at is null)
            "#,
            account.0,
            id.0,
            deleted,
        )
        .fetch_optional(self.requests.named("read a generation"));
        let Some(row) = reading.await? else {
            return Ok(None);
        };
        let mut record = Generation::from(row);
        let first = record
            .route
            .as_mut()
            .and_then(|route| route.left.first_mut());
        if let (Some(first), Some(begun)) = (first, record.started_at) {
            first.started_at = begun;
        }
        Ok(Some(record))
    }

    /// Deletes the text and files of a finished generation and keeps its numbers. Returns `false`
    /// if it is not finished or not found.
    pub async fn delete_generation(
        &self,
        account: AccountId,
        id: GenerationId,
        now: DateTime<Utc>,
    ) -> Result<bool> {
        let done = sqlx::query!(
            "with generation as (
                 update finished_generations
                 set deleted_at = $3, prompt = '', system_prompt = null, negative_prompt = null,
                     result = null, outputs = null, answer = null, parameters = '{}',
                     error_message = null, route = route - 'dropped'
                 where id = $1 and account_id = $2 and deleted_at is null
                 returning id, model_id
             ), attempts as (
                 delete from generation_attempts
                 where generation_id in (select id from generation)
                   and outcome not in ('unknown', 'account_refused')
             ), reported_attempts as (
                 -- Kept for the reports of operators.
                 update generation_attempts set provider_request_id = null
                 where generation_id in (select id from generation)
                   and outcome in ('unknown', 'account_refused') and provider_request_id is not null
             ), trash as (
                 insert into media_trash (generation_id, created_at)
                 select g.id, $3 from generation g join models m on m.id = g.model_id
                 where m.type <> 'text' on conflict do nothing
             )
             select id from generation",
            id.0,
            account.0,
            now,
        )
        .fetch_optional(self.requests.named("delete a generation"))
        .await?;
        Ok(done.is_some())
    }

    /// Asks the server that streams a text to end it. Returns `false`, without changing anything,
    /// if no server streams it.
    pub async fn request_cancel(&self, account: AccountId, id: GenerationId) -> Result<bool> {
        let asking = sqlx::query!(
            "with asked as (
                 update running_generations
                 set cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp())
                 where account_id = $1 and id = $2 and streamed
                   and exists (select from instances i where i.id = lease_token)
                 returning id)
             select pg_notify('gensvc', 'cancel ' || id)::text as notified from asked",
            account.0,
            id.0,
        )
        .fetch_optional(self.requests.named("request a cancel"));
        Ok(asking.await?.is_some())
    }

    /// Returns the texts that this server streams and was asked to end.
    pub async fn requested_cancels(&self, instance: InstanceId) -> Result<Vec<GenerationId>> {
        let reading = sqlx::query_scalar!(
            "select id from running_generations
             where lease_token = $1 and cancel_requested_at is not null",
            instance.0,
        )
        .fetch_all(self.jobs.named("look for requested cancels"));
        let ids = reading.await?;
        Ok(ids.into_iter().map(GenerationId).collect())
    }
}

impl From<GenerationRow> for Generation {
    fn from(row: GenerationRow) -> Self {
        // A deletion removes the stored message.
        let message = (row.error_message).unwrap_or_else(|| "the generation was deleted".into());
        Self {
            id: row.id,
            account_id: row.account_id,
            modality: row.modality,
            surface: row.surface.unwrap_or(Surface::Generate),
            status: row.status,
            provider: row.provider,
            model: row.model,
            prompt: row.prompt,
            parameters: row.parameters,
            result: row.result,
            outputs: row.outputs.map(|outputs| outputs.0).unwrap_or_default(),
            progress: row.progress,
            usage: row.usage,
            estimated: row.estimated,
            charged: row.charged,
            failure: row.error_code.map(|code| Failure::new(code, message)),
            finish_reason: row.finish_reason,
            answer: row.answer.map(|answer| answer.0),
            api_key_id: row.api_key_id,
            template: row
                .template_id
                .zip(row.template_version)
                .map(|(id, version)| TemplateUse { id, version }),
            pricing: row.pricing,
            attempts: row.attempts,
            provider_request_id: row.provider_request_id,
            joined: row.joined.unwrap_or(0),
            route: row.route.map(|route| Box::new(route.0)),
            created_at: row.created_at,
            started_at: row.started_at,
            completed_at: row.completed_at,
        }
    }
}
