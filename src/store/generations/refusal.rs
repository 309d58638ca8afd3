//! Explains refused holds, and finds the generations bound to idempotency keys of callers and of
//! SDK retries.

use chrono::{DateTime, Utc};
use sqlx::PgExecutor;

use super::{
    Attempt, Balance, HoldOutcome, Result, SpendLimit, Store, StoreError,
    hold::{Hold, Terms, write},
    retry_key,
};
use crate::{
    domain::{
        credits::Credits,
        ids::{AccountId, GenerationId},
    },
    store::{exactly_one, pool::Transaction},
};

/// Places holds of one account, whose row the transaction has locked: all together or, if they do
/// not fit or there are retries, one by one in order. `retries_until`: the account's column of that
/// name.
pub(super) async fn decide(
    tx: &mut Transaction,
    holds: &[&Hold],
    retries_until: Option<DateTime<Utc>>,
) -> Result<Vec<HoldOutcome>> {
    let has_retries = holds
        .iter()
        .any(|hold| hold.terms.is_attempt(Attempt::Retry));
    let mut refused = Vec::with_capacity(holds.len());
    for hold in holds {
        refused.push(if hold.is_abandoned() {
            Some(HoldOutcome::Abandoned)
        } else if hold.is_open() {
            // A transaction of several statements counts no requests: others of the same key would
            // wait for its commit.
            Some(HoldOutcome::NotAsPresumed)
        } else if !has_retries && is_replaced(tx, &hold.terms, retries_until).await? {
            Some(HoldOutcome::KeyBound)
        } else {
            None
        });
    }
    let wanted = holds
        .iter()
        .zip(&refused)
        .filter(|(_, refused)| refused.is_none());
    let wanted: Vec<&Hold> = wanted.map(|(&hold, _)| hold).collect();
    let mut verdicts = if has_retries || wanted.is_empty() {
        Vec::new()
    } else {
        write(&wanted, &mut *tx, true).await?
    }
    .into_iter();
    let mut outcomes = Vec::with_capacity(holds.len());
    for (hold, refused) in holds.iter().zip(refused) {
        if let Some(refused) = refused {
            outcomes.push(refused);
            continue;
        }
        let mut held = verdicts.next().flatten();
        if held.is_none() && (has_retries || wanted.len() > 1) {
            // Earlier holds of this transaction may be attempts at the same request.
            if has_retries && is_replaced(tx, &hold.terms, Some(DateTime::<Utc>::MAX_UTC)).await? {
                outcomes.push(HoldOutcome::KeyBound);
                continue;
            }
            let alone = write(&[hold], &mut *tx, true).await?;
            held = alone.into_iter().flatten().next();
        }
        if let Some(held) = held {
            note_retry(tx, &hold.terms).await?;
            outcomes.push(held);
            continue;
        }
        let explained = explain_refusal(&mut *tx, &hold.terms).await?;
        outcomes.push(explained.ok_or(StoreError::RowCount {
            statement: "placing a hold",
            rows: 0,
        })?);
    }
    Ok(outcomes)
}

/// Whether another attempt replaces this one. Any attempt that a retry can join replaces the retry;
/// a retry that arrived later replaces a first attempt.
async fn is_replaced(
    tx: &mut Transaction,
    terms: &Terms,
    retries_until: Option<DateTime<Utc>>,
) -> Result<bool> {
    let Some(bind) = &terms.bind else {
        return Ok(false);
    };
    match bind.attempt {
        Some(Attempt::Retry) => {
            let found = find_attempt(&mut *tx, terms.account, &bind.fingerprint, 0, terms.now);
            Ok(found.await?.is_some())
        }
        Some(Attempt::First) if retries_until.is_some_and(|until| until > bind.expires_at) => {
            let finding = sqlx::query_scalar!(
                r#"select exists (select from idempotency_keys i
                                  where i.account_id = $1 and i.key = $2 and i.expires_at > $3)
                   as "found!""#,
                terms.account.0,
                retry_key(&bind.fingerprint),
                bind.expires_at,
            );
            Ok(finding.fetch_one(&mut *tx).await?)
        }
        Some(Attempt::First) | None => Ok(false),
    }
}

/// Records a retry, so that first attempts that arrived before it look for it.
async fn note_retry(tx: &mut Transaction, terms: &Terms) -> Result<()> {
    let retry = terms.bind.as_ref();
    let Some(retry) = retry.filter(|bind| bind.attempt == Some(Attempt::Retry)) else {
        return Ok(());
    };
    let noting = sqlx::query!(
        "update accounts set retries_until = greatest(retries_until, $2) where id = $1",
        terms.account.0,
        retry.expires_at,
    );
    let noted = noting.execute(&mut *tx).await?;
    exactly_one("noting a retry", noted.rows_affected())
}

/// Returns why a hold was refused, checked in the documented order; `None` if it would fit now.
pub(super) async fn explain_refusal(
    executor: impl PgExecutor<'_>,
    terms: &Terms,
) -> Result<Option<HoldOutcome>> {
    let (key, session) = terms.credential.ids();
    let reading = sqlx::query!(
        r#"
        select balance, held, jobs, suspended_at is not null as "suspended!",
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
                   where k.id = $2), 0) as "spent!",
               (select coalesce(sum(g.estimated), 0)::bigint
                from api_keys k join running_generations g
                    on g.account_id = $1 and g.api_key_id = k.id
                       and g.spend_period = spend_period_start(k.spend_period, $4)
                where k.id = $2) as "on_hold!"
        from accounts where id = $1
        "#,
        terms.account.0,
        key,
        session,
        terms.now,
        terms.bind.as_ref().map(|bind| &bind.key),
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
        held: Credits::from_micros(row.on_hold),
    });
    Ok(if !row.live {
        Some(HoldOutcome::CredentialEnded)
    } else if row.suspended {
        Some(HoldOutcome::Suspended)
    } else if row.bound {
        // A concurrent request with the same key was first and used the available credits.
        Some(HoldOutcome::KeyBound)
    } else if terms.job && row.jobs >= terms.max_jobs {
        Some(HoldOutcome::TooManyJobs)
    } else if let Some(limit) = cap.filter(|cap| cap.is_exceeded_by(terms.hold)) {
        Some(HoldOutcome::SpendLimit(limit, balance))
    } else if balance.available() < terms.hold {
        Some(HoldOutcome::Short(balance))
    } else {
        None
    })
}

#[derive(Debug)]
pub struct Bound {
    pub fingerprint: Vec<u8>,
    pub generation: GenerationId,
    /// Whether it is running, or completed and not deleted.
    pub answers: bool,
    expires_at: DateTime<Utc>,
}

/// An attempt that a retry can join.
#[derive(Debug)]
pub struct Joinable {
    pub generation: GenerationId,
    /// Number of retries that have joined it.
    joined: i32,
    /// Number of attempts that the retry could join.
    all: i64,
}

/// Finds the attempt that a retry most likely repeats: the one that has been joined by as many
/// retries as preceded this one; among several, a running one, then the oldest. A running one can be
/// joined for longer than any work takes; later it cannot be settled, and must not catch retries.
pub(super) async fn find_attempt(
    executor: impl PgExecutor<'_>,
    account: AccountId,
    fingerprint: &[u8],
    retries_before: i32,
    now: DateTime<Utc>,
) -> Result<Option<Joinable>> {
    let reading = sqlx::query_as!(
        Joinable,
        r#"select i.generation_id as "generation: GenerationId",
                  coalesce(r.joined, f.joined, 0) as "joined!", count(*) over () as "all!"
           from idempotency_keys i
               left join running_generations r
                   on r.account_id = $1 and r.id = i.generation_id
               left join finished_generations f
                   on f.account_id = $1 and f.id = i.generation_id and not f.failed
                      and f.finish_reason is null and f.deleted_at is null
           where i.account_id = $1 and i.fingerprint = $2 and starts_with(i.key, ' ')
             and (i.expires_at > $4 and (r.id is not null or f.id is not null)
                  or r.created_at > $4 - interval '6 hours')
           order by abs(coalesce(r.joined, f.joined, 0)::bigint - $3), r.id is null,
                    i.generation_id
           limit 1"#,
        account.0,
        fingerprint,
        i64::from(retries_before),
        now,
    )
    .fetch_optional(executor);
    Ok(reading.await?)
}

impl Store {
    /// Finds the attempt that a retry joins, see [`find_attempt`].
    pub async fn joinable(
        &self,
        account: AccountId,
        fingerprint: &[u8],
        retries_before: i32,
        now: DateTime<Utc>,
    ) -> Result<Option<Joinable>> {
        let executor = self.requests.named("find the attempts at a request");
        find_attempt(executor, account, fingerprint, retries_before, now).await
    }

    /// Counts a retry that joins a generation. Returns `false` if another retry joined first; the
    /// caller then chooses again.
    pub async fn join(&self, account: AccountId, attempt: &Joinable) -> Result<bool> {
        let expected = (attempt.all > 1).then_some(attempt.joined);
        let rows = self.count_joined(account, attempt.generation, expected);
        match rows.await? {
            0 if expected.is_some() => Ok(false),
            rows => exactly_one("counting a retry", rows).map(|()| true),
        }
    }

    /// Finds a key's binding. Deletes an expired one, so that the key can be used again.
    pub async fn bound_key(
        &self,
        account: AccountId,
        key: &str,
        now: DateTime<Utc>,
    ) -> Result<Option<Bound>> {
        let reading = sqlx::query_as!(
            Bound,
            r#"select i.fingerprint, i.generation_id as "generation: GenerationId", i.expires_at,
                      exists (select from running_generations g
                              where g.account_id = $1 and g.id = i.generation_id)
                   or exists (select from finished_generations g
                              where g.account_id = $1 and g.id = i.generation_id
                                and not g.failed and g.finish_reason is null
                                and g.deleted_at is null)
                      as "answers!"
               from idempotency_keys i where i.account_id = $1 and i.key = $2"#,
            account.0,
            key,
        )
        .fetch_optional(self.requests.named("find an idempotency key"));
        match reading.await? {
            Some(bound) if bound.expires_at <= now => {
                self.unbind_key(account, key, bound.generation).await?;
                Ok(None)
            }
            bound => Ok(bound),
        }
    }

    /// Deletes a key's binding, unless the key is now bound to another generation.
    pub async fn unbind_key(
        &self,
        account: AccountId,
        key: &str,
        generation: GenerationId,
    ) -> Result<()> {
        let removing = sqlx::query!(
            "delete from idempotency_keys
             where account_id = $1 and key = $2 and generation_id = $3",
            account.0,
            key,
            generation.0,
        )
        .execute(self.requests.named("remove an idempotency key"));
        removing.await?;
        Ok(())
    }

    /// Counts a retry; if `expected` is given, only if the count so far equals it.
    async fn count_joined(
        &self,
        account: AccountId,
        id: GenerationId,
        expected: Option<i32>,
    ) -> Result<u64> {
        let counting = sqlx::query!(
            "update running_generations set joined = coalesce(joined, 0) + 1
             where account_id = $1 and id = $2 and coalesce(joined, 0) = coalesce($3, joined, 0)",
            account.0,
            id.0,
            expected,
        )
        .execute(self.requests.named("count a retry of what runs"));
        if counting.await?.rows_affected() == 1 {
            return Ok(1);
        }
        // A second statement, which sees the end that the first may have waited for.
        let counting = sqlx::query!(
            "update finished_generations set joined = coalesce(joined, 0) + 1
             where account_id = $1 and id = $2 and coalesce(joined, 0) = coalesce($3, joined, 0)",
            account.0,
            id.0,
            expected,
        )
        .execute(self.requests.named("count a retry of what has ended"));
        Ok(counting.await?.rows_affected())
    }
}
