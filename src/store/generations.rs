//! The narrow door through which credits are held and settled: [`Store::open`] and
//! [`Store::finish`], each one statement. Callers see only their own verdict, so that many of
//! them may one day share a commit behind this door.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Store, StoreError, bounded, credits::Balance};
use crate::domain::{
    credits::Credits,
    generation::{Failure, FailureCode, Generation, Modality, Output, Status, TemplateUse},
    ids::{AccountId, ApiKeyId, GenerationId, InstanceId, SessionId, TemplateId},
};

/// How often an opening is tried again when the account changed between the refusal and its
/// explanation.
const OPEN_TRIES: usize = 5;

/// What pays: checked again by the statement that places the hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// An API key.
    ApiKey(ApiKeyId),
    /// A session.
    Session(SessionId),
}

/// A key that the caller chose for a request.
#[derive(Debug, Clone)]
pub struct Idempotency {
    /// 1 to 255 visible ASCII characters.
    pub key: String,
    /// SHA-256 of the route and the request's JSON value.
    pub fingerprint: [u8; 32],
    /// Until when the key is bound.
    pub expires_at: DateTime<Utc>,
}

/// A generation to be opened.
#[derive(Debug)]
pub struct NewGeneration {
    /// Its id.
    pub id: GenerationId,
    /// Who pays.
    pub account_id: AccountId,
    /// With what.
    pub credential: Credential,
    /// Modality.
    pub modality: Modality,
    /// Resolved provider.
    pub provider: String,
    /// Resolved model.
    pub model: String,
    /// The caller's prompt.
    pub prompt: String,
    /// The caller's system prompt.
    pub system_prompt: Option<String>,
    /// The caller's negative prompt.
    pub negative_prompt: Option<String>,
    /// Resolved parameters.
    pub parameters: Value,
    /// The template that the prompt was rendered from.
    pub template: Option<TemplateUse>,
    /// The price row.
    pub pricing: Value,
    /// The ceiling to hold.
    pub hold: Credits,
    /// The instance that works on it from the start; `None`: a job, for any worker to take.
    pub instance: Option<InstanceId>,
    /// When it is given up; jobs only.
    pub deadline: Option<DateTime<Utc>>,
    /// `processing`, or `pending` while it waits for a free worker.
    pub status: Status,
    /// How many unfinished generations the account may have, this one included.
    pub max_unfinished: i32,
    /// The key to bind.
    pub idempotency: Option<Idempotency>,
    /// When.
    pub now: DateTime<Utc>,
}

/// How a key's own cap stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpendLimit {
    /// The cap of the current period.
    pub limit: Credits,
    /// Charged and on hold in it.
    pub spent: Credits,
}

/// How an opening ended. Anything but `Held` left no trace.
#[derive(Debug)]
pub enum Opened {
    /// The hold is placed and the row is there.
    Held,
    /// The idempotency key is bound already, to another generation.
    KeyBound,
    /// The key or session has ended meanwhile.
    CredentialEnded,
    /// The account is suspended.
    Suspended,
    /// The account has too many unfinished generations.
    TooManyJobs,
    /// The key's own cap would be exceeded.
    SpendLimit(SpendLimit, Balance),
    /// Less is available than must be held.
    Short(Balance),
}

/// How a generation ended.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// With a result, charged at real usage.
    Completed {
        /// The text itself; `None` for stored files.
        result: Option<String>,
        /// The stored files.
        outputs: Vec<Output>,
        /// What it used.
        usage: Value,
        /// At most what is held.
        charged: Credits,
    },
    /// Without one; the hold is released.
    Failed(Failure),
}

/// The end of a generation.
#[derive(Debug, Clone)]
pub struct Finish {
    /// Which.
    pub id: GenerationId,
    /// Only if this instance still works on it; `None`: whoever does (a cancel).
    pub instance: Option<InstanceId>,
    /// How.
    pub outcome: Outcome,
    /// Submissions made, where known.
    pub attempts: Option<i32>,
    /// The provider's own id.
    pub provider_request_id: Option<String>,
    /// When.
    pub now: DateTime<Utc>,
}

/// What an idempotency key is bound to.
#[derive(Debug)]
pub struct Bound {
    /// The request's fingerprint.
    pub fingerprint: Vec<u8>,
    /// The generation that it made.
    pub generation: GenerationId,
}

pub(super) struct GenerationRow {
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
    pub template_id: Option<i64>,
    pub template_version: Option<i32>,
}

impl Store {
    /// Places the hold and makes the row, the ledger entry and the idempotency binding: all of
    /// it in one statement, or nothing.
    pub async fn open(&self, new: &NewGeneration) -> Result<Opened, StoreError> {
        let mut explained = Opened::TooManyJobs;
        for _ in 0..OPEN_TRIES {
            match self.try_open(new).await {
                Ok(true) => return Ok(Opened::Held),
                Ok(false) => {}
                Err(error) if error.is_constraint("idempotency_keys_pkey") => {
                    return Ok(Opened::KeyBound);
                }
                // Another hold of the key got in between the look and the write.
                Err(error) if error.is_constraint("key_spend_within_limit") => {}
                Err(error) => return Err(error),
            }
            match self.explain_refusal(new).await? {
                Some(refusal) => return Ok(refusal),
                // A hold was released between the two statements: it may fit now.
                None => explained = Opened::Short(self.balance(new.account_id).await?),
            }
        }
        Ok(explained)
    }

    async fn try_open(&self, new: &NewGeneration) -> Result<bool, StoreError> {
        let (key, session) = new.credential.ids();
        let bind = new.idempotency.as_ref();
        // The account's row is locked first, and only then is anything inserted, so that
        // entries get their ids in the order in which the balance moved. A second statement
        // with the same idempotency key waits at that lock and then fails as a whole.
        let opening = sqlx::query!(
            r#"
            with credential as (
                select spend_limit, spend_period_start(spend_period, $14) as period
                from api_keys
                where id = $2 and revoked_at is null and (expires_at is null or expires_at > $14)
                union all
                select null, null from sessions
                where id = $3 and revoked_at is null and expires_at > $14
            ), account as (
                update accounts set held = held + $4, unfinished = unfinished + 1
                where id = $1 and balance - held >= $4 and unfinished < $5
                  and suspended_at is null and exists (select from credential)
                  -- A look that spares an error; what holds is the constraint of key_spend.
                  and not exists (
                      select from credential c left join key_spend s
                          on s.api_key_id = $2 and s.period = c.period
                      where coalesce(s.spent, 0) + $4 > c.spend_limit)
                returning id, balance, held
            ), spend as (
                insert into key_spend as s (api_key_id, period, spend_limit, spent)
                select $2, c.period, c.spend_limit, $4 from account, credential c
                where $2::bigint is not null and $4 > 0
                on conflict (api_key_id, period) do update
                set spent = s.spent + excluded.spent, spend_limit = excluded.spend_limit
            ), generation as (
                insert into generations
                    (id, account_id, type, status, provider, model, prompt, system_prompt,
                     parameters, pricing, api_key_id, session_id, estimated, lease_token,
                     created_at, started_at, negative_prompt, deadline_at, next_step_at,
                     template_id, template_version)
                select $6, id, $7, $19, $8, $9, $10, $11, $12, $13, $2, $3, $4, $15::uuid, $14,
                       case when $15::uuid is not null then $14 end, $20, $21,
                       case when $15::uuid is null then $14 end, $22::bigint, $23::integer
                from account
            ), entry as (
                insert into ledger_entries
                    (account_id, kind, amount, balance, held, generation_id, created_at)
                select id, 'hold', $4, balance, held, $6, $14 from account where $4 > 0
            ), bound as (
                insert into idempotency_keys (account_id, key, fingerprint, generation_id, expires_at)
                select id, $16::text, $17, $6, $18 from account where $16::text is not null
            )
            select balance from account
            "#,
            new.account_id.0,
            key,
            session,
            new.hold.micros(),
            new.max_unfinished,
            new.id.0,
            new.modality.as_str(),
            new.provider,
            new.model,
            new.prompt,
            new.system_prompt,
            new.parameters,
            new.pricing,
            new.now,
            new.instance.map(|i| i.0),
            bind.map(|b| b.key.as_str()),
            bind.map(|b| &b.fingerprint[..]),
            bind.map(|b| b.expires_at),
            new.status.as_str(),
            new.negative_prompt,
            new.deadline,
            new.template.map(|t| t.id.0),
            new.template.map(|t| t.version),
        )
        .fetch_optional(&self.pool);
        Ok(bounded(opening).await?.is_some())
    }

    /// Why an opening was refused, in the contract's order; `None` when it would fit now.
    async fn explain_refusal(&self, new: &NewGeneration) -> Result<Option<Opened>, StoreError> {
        let (key, session) = new.credential.ids();
        let reading = sqlx::query!(
            r#"
            select balance, held, unfinished, suspended_at is not null as "suspended!",
                   exists (select from api_keys
                           where id = $2 and revoked_at is null
                             and (expires_at is null or expires_at > $4))
                or exists (select from sessions
                           where id = $3 and revoked_at is null and expires_at > $4)
                   as "live!",
                   exists (select from idempotency_keys i where i.account_id = $1 and i.key = $5)
                   as "bound!",
                   (select k.spend_limit from api_keys k where k.id = $2) as spend_limit,
                   coalesce((select s.spent from api_keys k join key_spend s
                       on s.api_key_id = k.id and s.period = spend_period_start(k.spend_period, $4)
                       where k.id = $2), 0) as "spent!"
            from accounts where id = $1
            "#,
            new.account_id.0,
            key,
            session,
            new.now,
            new.idempotency.as_ref().map(|b| b.key.as_str()),
        )
        .fetch_one(&self.pool);
        let row = bounded(reading).await?;
        let balance = Balance {
            balance: Credits::from_micros(row.balance),
            held: Credits::from_micros(row.held),
        };
        let cap = row.spend_limit.map(|limit| SpendLimit {
            limit: Credits::from_micros(limit),
            spent: Credits::from_micros(row.spent),
        });
        Ok(if !row.live {
            Some(Opened::CredentialEnded)
        } else if row.suspended {
            Some(Opened::Suspended)
        } else if row.bound {
            // A parallel request with the same key got in first and took what was available.
            Some(Opened::KeyBound)
        } else if row.unfinished >= new.max_unfinished {
            Some(Opened::TooManyJobs)
        } else if let Some(limit) = cap.filter(|cap| cap.left() < new.hold) {
            Some(Opened::SpendLimit(limit, balance))
        } else if balance.available() < new.hold {
            Some(Opened::Short(balance))
        } else {
            None
        })
    }

    /// Ends a generation and settles it: the row, the account and the ledger entry in one
    /// statement. `false`: it had ended already, or another instance works on it; nothing was
    /// touched.
    #[expect(clippy::too_many_lines, reason = "one statement")]
    pub async fn finish(&self, finish: &Finish) -> Result<bool, StoreError> {
        let none = Vec::new();
        let (status, result, outputs, usage, charged, failure) = match &finish.outcome {
            Outcome::Completed {
                result,
                outputs,
                usage,
                charged,
            } => (
                Status::Completed,
                result.as_ref(),
                outputs,
                Some(usage),
                *charged,
                None,
            ),
            Outcome::Failed(failure) => (
                Status::Failed,
                None,
                &none,
                None,
                Credits::ZERO,
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
                    outputs = $12, progress = null,
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
        )
        .fetch_optional(&self.reserved);
        Ok(bounded(settling).await?.is_some())
    }

    /// One generation of an account, unless it was deleted.
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
                    outputs, progress, template_id, template_version
             from generations where id = $1 and account_id = $2 and deleted_at is null",
            id.0,
            account.0,
        )
        .fetch_optional(&self.pool);
        bounded(reading).await?.map(TryInto::try_into).transpose()
    }

    /// Removes a finished generation's words for good; its numbers stay. `false`: it is not
    /// finished, or not there.
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
        .fetch_optional(&self.pool)
        .await?;
        Ok(done.is_some())
    }

    /// What an idempotency key is bound to. An expired binding is removed, so that the key can
    /// be used again.
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
        .fetch_optional(&self.pool);
        match bounded(reading).await? {
            Some(row) if row.expires_at <= now => {
                let removing = sqlx::query!(
                    "delete from idempotency_keys
                     where account_id = $1 and key = $2 and expires_at <= $3",
                    account.0,
                    key,
                    now,
                )
                .execute(&self.pool);
                bounded(removing).await?;
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

impl NewGeneration {
    /// The record as the opening statement makes it.
    pub fn record(&self) -> Generation {
        Generation {
            id: self.id,
            account_id: self.account_id,
            modality: self.modality,
            status: self.status,
            provider: self.provider.clone(),
            model: self.model.clone(),
            prompt: self.prompt.clone(),
            parameters: self.parameters.clone(),
            result: None,
            outputs: Vec::new(),
            progress: None,
            usage: None,
            estimated: self.hold,
            charged: None,
            failure: None,
            api_key_id: match self.credential {
                Credential::ApiKey(id) => Some(id),
                Credential::Session(_) => None,
            },
            template: self.template,
            pricing: self.pricing.clone(),
            attempts: 0,
            provider_request_id: None,
            created_at: self.now,
            started_at: self.instance.map(|_| self.now),
            completed_at: None,
        }
    }
}

impl SpendLimit {
    /// What may still be spent.
    pub fn left(self) -> Credits {
        self.limit.minus_or_zero(self.spent)
    }
}

impl Credential {
    pub(super) fn ids(self) -> (Option<i64>, Option<i64>) {
        match self {
            Self::ApiKey(id) => (Some(id.0), None),
            Self::Session(id) => (None, Some(id.0)),
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
