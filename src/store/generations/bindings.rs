//! What keys of callers, and retries of SDKs, are bound to.

use chrono::{DateTime, Utc};

use super::{Store, StoreError};
use crate::{
    domain::ids::{AccountId, GenerationId},
    store::exactly_one,
};

/// What a key is bound to.
#[derive(Debug)]
pub struct Bound {
    pub fingerprint: Vec<u8>,
    pub generation: GenerationId,
    /// Whether it runs, or was completed by its provider and is not deleted.
    pub answers: bool,
}

impl Store {
    /// What a key is bound to. An expired binding is deleted, so that the key can be used again.
    pub async fn bound_key(
        &self,
        account: AccountId,
        key: &str,
        now: DateTime<Utc>,
    ) -> Result<Option<Bound>, StoreError> {
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

    /// Frees a key, unless it is bound to another generation by now.
    pub async fn unbind_key(
        &self,
        account: AccountId,
        key: &str,
        generation: GenerationId,
    ) -> Result<(), StoreError> {
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

    /// Counts a retry that is answered with a generation.
    pub async fn count_joined(
        &self,
        account: AccountId,
        id: GenerationId,
    ) -> Result<(), StoreError> {
        let counting = sqlx::query!(
            "update running_generations set joined = coalesce(joined, 0) + 1
             where account_id = $1 and id = $2",
            account.0,
            id.0,
        )
        .execute(self.requests.named("count a retry of what runs"));
        if counting.await?.rows_affected() == 1 {
            return Ok(());
        }
        // A statement of its own, which sees the end that the first may have waited for.
        let counting = sqlx::query!(
            "update finished_generations set joined = coalesce(joined, 0) + 1
             where account_id = $1 and id = $2",
            account.0,
            id.0,
        )
        .execute(self.requests.named("count a retry of what has ended"));
        exactly_one("counting a retry", counting.await?.rows_affected())
    }
}
