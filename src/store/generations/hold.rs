//! The hold: one statement, and why it was refused.

use sqlx::PgExecutor;

use super::{Balance, Credential, HoldOutcome, NewGeneration, SpendLimit, Store, StoreError};
use crate::domain::{credits::Credits, generation::Generation};

impl Store {
    /// Places the hold and creates the row, the ledger entry and the idempotency binding: all in
    /// one statement, or none.
    pub async fn hold(&self, new: &NewGeneration) -> Result<HoldOutcome, StoreError> {
        if let Some(outcome) = try_hold(self.requests.named("place a hold"), new).await? {
            return Ok(outcome);
        }
        let explaining = self.requests.named("explain a refused hold");
        if let Some(refused) = explain_refusal(explaining, new).await? {
            return Ok(refused);
        }
        // The account changed between the refusal and its explanation. Under the account's lock
        // neither its balance nor the spend of its keys can change between the two.
        let mut tx = self.requests.named("decide a hold").begin().await?;
        sqlx::query!(
            "select id from accounts where id = $1 for no key update",
            new.account_id.0
        )
        .fetch_one(&mut tx)
        .await?;
        let outcome = match try_hold(&mut tx, new).await? {
            None => explain_refusal(&mut tx, new).await?,
            outcome => outcome,
        };
        tx.commit().await?;
        outcome.ok_or(StoreError::RowCount {
            statement: "placing a hold",
            rows: 0,
        })
    }
}

/// `None`: refused, for a reason not determined yet.
async fn try_hold(
    executor: impl PgExecutor<'_>,
    new: &NewGeneration,
) -> Result<Option<HoldOutcome>, StoreError> {
    let (key, session) = new.credential.ids();
    let bind = new.idempotency.as_ref();
    // The account's row is locked first, and only then is anything inserted, so that ledger entries
    // get their ids in the order in which the balance moved. A second statement with the same
    // idempotency key waits for that lock and then fails as a whole.
    let holding = sqlx::query!(
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
                 template_id, template_version, streamed)
            select $6, id, $7, $19, $8, $9, $10, $11, $12, $13, $2, $3, $4, $15::uuid, $14,
                   case when $15::uuid is not null then $14 end, $20, $21,
                   case when $15::uuid is null then $14 end, $22::bigint, $23::integer, $24
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
        new.streamed,
    )
    .fetch_optional(executor);
    match holding.await.map_err(StoreError::from) {
        Ok(row) => Ok(row.map(|_| HoldOutcome::Held)),
        Err(error) if error.is_constraint("idempotency_keys_pkey") => {
            Ok(Some(HoldOutcome::KeyBound))
        }
        // A concurrent hold of the key came between the check and the write.
        Err(error) if error.is_constraint("key_spend_within_limit") => Ok(None),
        Err(error) => Err(error),
    }
}

/// Why a hold was refused, in the documented order; `None` when it would fit now.
async fn explain_refusal(
    executor: impl PgExecutor<'_>,
    new: &NewGeneration,
) -> Result<Option<HoldOutcome>, StoreError> {
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
    .fetch_one(executor);
    let row = reading.await?;
    let balance = Balance {
        balance: Credits::from_micros(row.balance),
        held: Credits::from_micros(row.held),
    };
    let cap = row.spend_limit.map(|limit| SpendLimit {
        limit: Credits::from_micros(limit),
        spent: Credits::from_micros(row.spent),
    });
    Ok(if !row.live {
        Some(HoldOutcome::CredentialEnded)
    } else if row.suspended {
        Some(HoldOutcome::Suspended)
    } else if row.bound {
        // A concurrent request with the same key came first and took what was available.
        Some(HoldOutcome::KeyBound)
    } else if row.unfinished >= new.max_unfinished {
        Some(HoldOutcome::TooManyJobs)
    } else if let Some(limit) = cap.filter(|cap| cap.left() < new.hold) {
        Some(HoldOutcome::SpendLimit(limit, balance))
    } else if balance.available() < new.hold {
        Some(HoldOutcome::Short(balance))
    } else {
        None
    })
}

impl NewGeneration {
    /// The record as the statement creates it.
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
            finish_reason: None,
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
