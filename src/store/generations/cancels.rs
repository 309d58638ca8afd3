//! Cancels of texts that another server streams.

use super::{Result, Store};
use crate::domain::ids::{AccountId, GenerationId, InstanceId};

impl Store {
    /// Asks the server that streams a text to end it. `false`: none does, and nothing was changed.
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

    /// Texts that this server streams and was asked to end.
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
