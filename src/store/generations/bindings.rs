//! Idempotency keys of callers and of SDK retries, and the generations bound to them.

use chrono::{DateTime, Utc};
use sqlx::PgExecutor;

use super::{Result, Store};
use crate::{
    domain::ids::{AccountId, GenerationId},
    store::exactly_one,
};

#[derive(Debug)]
pub struct Bound {
    pub fingerprint: Vec<u8>,
    pub generation: GenerationId,
    /// Whether it runs, or was completed and is not deleted.
    pub answers: bool,
}

/// An attempt that a retry can join.
#[derive(Debug)]
pub struct Joinable {
    pub generation: GenerationId,
    /// Retries that have joined it.
    joined: i32,
    has_others: bool,
}

/// Finds the attempt that a retry most likely repeats: the one that as many retries have joined as
/// preceded this one; of several, a running one, then the oldest.
pub(super) async fn find_attempt(
    executor: impl PgExecutor<'_>,
    account: AccountId,
    fingerprint: &[u8],
    retries_before: i32,
    now: DateTime<Utc>,
) -> Result<Option<Joinable>> {
    let reading = sqlx::query!(
        r#"select i.generation_id as "generation: GenerationId",
                  coalesce(r.joined, f.joined, 0) as "joined!", count(*) over () as "all!"
           from idempotency_keys i
               left join running_generations r
                   on r.account_id = $1 and r.id = i.generation_id
               left join finished_generations f
                   on f.account_id = $1 and f.id = i.generation_id and not f.failed
                      and f.finish_reason is null and f.deleted_at is null
           where i.account_id = $1 and i.fingerprint = $2 and starts_with(i.key, ' ')
             and i.expires_at > $4 and (r.id is not null or f.id is not null)
           order by abs(coalesce(r.joined, f.joined, 0)::bigint - $3), r.id is null,
                    i.generation_id
           limit 1"#,
        account.0,
        fingerprint,
        i64::from(retries_before),
        now,
    )
    .fetch_optional(executor);
    Ok(reading.await?.map(|row| Joinable {
        generation: row.generation,
        joined: row.joined,
        has_others: row.all > 1,
    }))
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

    /// Counts a retry that joins a generation. `false`: another retry joined first, so the choice
    /// must be made again.
    pub async fn join(&self, account: AccountId, attempt: &Joinable) -> Result<bool> {
        let expected = attempt.has_others.then_some(attempt.joined);
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
        let reading = sqlx::query!(
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
            Some(row) if row.expires_at <= now => {
                self.unbind_key(account, key, row.generation).await?;
                Ok(None)
            }
            Some(row) => Ok(Some(Bound {
                fingerprint: row.fingerprint,
                generation: row.generation,
                answers: row.answers,
            })),
            None => Ok(None),
        }
    }

    /// Deletes a key's binding, unless it is bound to another generation by now.
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

    /// Counts a retry; with `expected`, only if the count so far is equal.
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
        // A second statement, which sees the end for which the first may have waited.
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
