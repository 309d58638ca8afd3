//! Stored generations: lookup, deletion, idempotency keys.

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use super::{Bound, Store, StoreError};
use crate::domain::{
    credits::Credits,
    generation::{Failure, FailureCode, FinishReason, Generation, Modality, Status, TemplateUse},
    ids::{AccountId, ApiKeyId, GenerationId, TemplateId},
};

pub(in crate::store) struct GenerationRow {
    pub id: Uuid,
    pub account_id: i64,
    pub r#type: String,
    pub status: String,
    pub provider: String,
    pub model: String,
    pub prompt: String,
    pub parameters: Value,
    pub pricing: Value,
    pub api_key_id: Option<i64>,
    pub estimated: i64,
    pub charged: Option<i64>,
    pub usage: Option<Value>,
    pub result: Option<String>,
    pub error_code: Option<String>,
    pub error_message: Option<String>,
    pub attempts: i32,
    pub provider_request_id: Option<String>,
    pub created_at: DateTime<Utc>,
    pub started_at: Option<DateTime<Utc>>,
    pub completed_at: Option<DateTime<Utc>>,
    pub outputs: Value,
    pub progress: Option<i16>,
    pub finish_reason: Option<String>,
    pub template_id: Option<i64>,
    pub template_version: Option<i32>,
}

impl Store {
    /// One generation of an account, unless deleted.
    pub async fn generation(
        &self,
        account: AccountId,
        id: GenerationId,
    ) -> Result<Option<Generation>, StoreError> {
        let reading = sqlx::query_as!(
            GenerationRow,
            "select id, account_id, type, status, provider, model, prompt, parameters, pricing,
                    api_key_id, estimated, charged, usage, result, error_code, error_message,
                    attempts, provider_request_id, created_at, started_at, completed_at,
                    outputs, progress, finish_reason, template_id, template_version
             from generations where id = $1 and account_id = $2 and deleted_at is null",
            id.0,
            account.0,
        )
        .fetch_optional(self.requests.named("read a generation"));
        reading.await?.map(TryInto::try_into).transpose()
    }

    /// Deletes the text and files of a finished generation for good; its numbers stay. `false`: not
    /// finished, or not found.
    pub async fn delete_generation(
        &self,
        account: AccountId,
        id: GenerationId,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            "with generation as (
                 update generations
                 set deleted_at = $3, prompt = '', system_prompt = null, negative_prompt = null,
                     result = null, outputs = '[]', parameters = '{}', error_message = null
                 where id = $1 and account_id = $2 and deleted_at is null
                   and status in ('completed', 'failed')
                 returning id, type
             ), trash as (
                 insert into media_trash (generation_id, created_at)
                 select id, $3 from generation where type <> 'text' on conflict do nothing
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

    /// What an idempotency key is bound to. An expired binding is deleted, so that the key can be
    /// used again.
    pub async fn bound_key(
        &self,
        account: AccountId,
        key: &str,
        now: DateTime<Utc>,
    ) -> Result<Option<Bound>, StoreError> {
        let reading = sqlx::query!(
            "select fingerprint, generation_id, expires_at from idempotency_keys
             where account_id = $1 and key = $2",
            account.0,
            key,
        )
        .fetch_optional(self.requests.named("find an idempotency key"));
        match reading.await? {
            Some(row) if row.expires_at <= now => {
                let removing = sqlx::query!(
                    "delete from idempotency_keys
                     where account_id = $1 and key = $2 and expires_at <= $3",
                    account.0,
                    key,
                    now,
                )
                .execute(self.requests.named("remove an idempotency key"));
                removing.await?;
                Ok(None)
            }
            Some(row) => Ok(Some(Bound {
                fingerprint: row.fingerprint,
                generation: GenerationId(row.generation_id),
            })),
            None => Ok(None),
        }
    }
}

impl TryFrom<GenerationRow> for Generation {
    type Error = StoreError;

    fn try_from(row: GenerationRow) -> Result<Self, StoreError> {
        let corrupt = |what: &str| StoreError::Corrupt(format!("{what} of generation {}", row.id));
        let failure = row
            .error_code
            .as_deref()
            .map(|code| {
                FailureCode::parse(code)
                    .map(|code| Failure::new(code, row.error_message.clone().unwrap_or_default()))
                    .ok_or_else(|| corrupt("error_code"))
            })
            .transpose()?;
        Ok(Self {
            id: GenerationId(row.id),
            account_id: AccountId(row.account_id),
            modality: Modality::parse(&row.r#type).ok_or_else(|| corrupt("type"))?,
            status: Status::parse(&row.status).ok_or_else(|| corrupt("status"))?,
            provider: row.provider,
            model: row.model,
            prompt: row.prompt,
            parameters: row.parameters,
            result: row.result,
            outputs: serde_json::from_value(row.outputs).map_err(|_| corrupt("outputs"))?,
            progress: row.progress,
            usage: row.usage,
            estimated: Credits::from_micros(row.estimated),
            charged: row.charged.map(Credits::from_micros),
            failure,
            finish_reason: row
                .finish_reason
                .as_deref()
                .map(|name| FinishReason::parse(name).ok_or_else(|| corrupt("finish_reason")))
                .transpose()?,
            api_key_id: row.api_key_id.map(ApiKeyId),
            template: row
                .template_id
                .zip(row.template_version)
                .map(|(id, version)| TemplateUse {
                    id: TemplateId(id),
                    version,
                }),
            pricing: row.pricing,
            attempts: row.attempts,
            provider_request_id: row.provider_request_id,
            created_at: row.created_at,
            started_at: row.started_at,
            completed_at: row.completed_at,
        })
    }
}
