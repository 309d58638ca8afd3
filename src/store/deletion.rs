//! Deletes accounts: removes personal data, keeps the ledger, counts and costs.

use chrono::{DateTime, TimeDelta, Utc};

use super::{Result, Store};
use crate::domain::ids::{AccountId, GenerationId};

const DELETED: &str = "deleted account";

/// Time after the deletion in which requests that began before it may still write.
const LATE_WRITES: TimeDelta = TimeDelta::minutes(15);

/// The result of closing an account.
#[derive(Debug)]
pub enum Closed {
    Done,
    /// Refused: one of its users is an operator.
    IsOperators,
    NoAccount,
}

impl Store {
    /// Closes an account permanently, in one transaction: removes its users, sessions and
    /// templates, revokes its keys and deletes its webhooks. Running work finishes. Idempotent.
    pub async fn close_account(&self, account: AccountId, now: DateTime<Utc>) -> Result<Closed> {
        let mut tx = self.requests.named("delete an account").begin().await?;
        // Holds are refused from here on: they lock this row and read `suspended_at`.
        let found = sqlx::query_scalar!(
            r#"select deleted_at is not null as "is_deleted!" from accounts
               where id = $1 for no key update"#,
            account.0
        )
        .fetch_optional(&mut tx)
        .await?;
        match found {
            None => return Ok(Closed::NoAccount),
            Some(true) => return Ok(Closed::Done),
            Some(false) => {}
        }
        // Logins lock the user's row: none can be in progress after this lock.
        let operators = sqlx::query_scalar!(
            r#"select operator_since is not null as "is_operator!" from users
               where account_id = $1 for update"#,
            account.0
        )
        .fetch_all(&mut tx)
        .await?;
        if operators.contains(&true) {
            return Ok(Closed::IsOperators);
        }
        for statement in [
            // The user's row is locked.
            sqlx::query!(
                "update accounts
                 set deleted_at = $2, suspended_at = coalesce(suspended_at, $2),
                     suspended_reason = null, name = $3, defaults = '{}'
                 where id = $1",
                account.0,
                now,
                DELETED
            ),
            sqlx::query!("delete from sessions where account_id = $1", account.0),
            // Statements that create keys and webhooks lock the caller's token. Once all tokens
            // have ended, no rows can be added to those that the statements below find.
            sqlx::query!(
                "update api_keys set revoked_at = coalesce(revoked_at, $2) where account_id = $1",
                account.0,
                now
            ),
            sqlx::query!(
                "update api_keys set revoked_at = coalesce(revoked_at, $2), name = $3
                 where account_id = $1",
                account.0,
                now,
                DELETED
            ),
            sqlx::query!(
                "delete from login_attempts where email in
                     (select lower(email) from users where account_id = $1)",
                account.0
            ),
            sqlx::query!("delete from users where account_id = $1", account.0),
            sqlx::query!("delete from templates where account_id = $1", account.0),
            // The purge of deleted webhooks removes their deliveries.
            sqlx::query!(
                "update webhooks set deleted_at = $2, secret = ''
                 where account_id = $1 and deleted_at is null",
                account.0,
                now
            ),
        ] {
            statement.execute(&mut tx).await?;
        }
        tx.commit().await?;
        Ok(Closed::Done)
    }

    /// Removes the content of up to `batch` finished generations of deleted accounts, then up to
    /// `batch` uploads that no running generation may read. Records when all content and files of
    /// an account are removed. Returns the erased generations that may have files, or the file ids
    /// of removed uploads, and whether nothing was left to remove except content of running work.
    #[expect(clippy::too_many_lines, reason = "two statements")]
    pub async fn erase_deleted(
        &self,
        now: DateTime<Utc>,
        batch: i64,
    ) -> Result<(Vec<GenerationId>, bool)> {
        let rows = sqlx::query!(
            r#"
            with next as materialized (
                select g.account_id, g.id
                from accounts a
                    cross join lateral (
                        select account_id, id from finished_generations
                        where account_id = a.id and deleted_at is null limit $2
                    ) g
                where a.deleted_at is not null and a.erased_at is null
                limit $2
            ), generation as (
                update finished_generations g
                set deleted_at = $1, prompt = '', system_prompt = null, negative_prompt = null,
                    result = null, outputs = null, answer = null, parameters = '{}',
                    error_message = null, route = route - 'dropped'
                from next
                where g.account_id = next.account_id and g.id = next.id and g.deleted_at is null
                returning g.id, g.model_id
            ), attempts as (
                delete from generation_attempts
                where generation_id = any(array(select id from generation))
                  and outcome not in ('unknown', 'account_refused')
            ), reported_attempts as (
                -- Kept for the reports of operators.
                update generation_attempts set provider_request_id = null
                where generation_id = any(array(select id from generation))
                  and outcome in ('unknown', 'account_refused') and provider_request_id is not null
            ), trash as (
                insert into media_trash (generation_id, created_at)
                select g.id, $1 from generation g join models m on m.id = g.model_id
                where m.type <> 'text' on conflict do nothing
            )
            select g.id as "id: GenerationId", m.type <> 'text' as "has_files!"
            from generation g join models m on m.id = g.model_id
            "#,
            now,
            batch,
        )
        .fetch_all(self.requests.named("erase deleted accounts").long())
        .await?;
        let files = rows.iter().filter(|row| row.has_files);
        let mut with_files: Vec<_> = files.map(|row| row.id).collect();
        let mut is_complete = rows.is_empty();
        if is_complete {
            let uploads = sqlx::query_scalar!(
                r#"with gone as (
                       delete from uploads where (account_id, id) in (
                           select u.account_id, u.id
                           from accounts a join uploads u on u.account_id = a.id
                           where a.deleted_at is not null and a.erased_at is null
                             and (u.kept_until <= $1
                                  or not exists (select from running_generations
                                                 where account_id = a.id))
                           limit $2 for update of u skip locked
                       ) returning file_id
                   )
                   insert into media_trash (generation_id, created_at) select file_id, $1 from gone
                   returning generation_id as "id: GenerationId""#,
                now,
                batch,
            )
            .fetch_all(
                self.requests
                    .named("erase uploads of deleted accounts")
                    .long(),
            )
            .await?;
            is_complete = uploads.is_empty();
            with_files = uploads;
        }
        if is_complete {
            // A generation that ends concurrently is in one of the two tables in every snapshot.
            sqlx::query!(
                "with erased as (
                     update accounts a set erased_at = $1, defaults = '{}'
                     where deleted_at <= $2 and erased_at is null
                       and not exists (select from running_generations where account_id = a.id)
                       and not exists (select from uploads where account_id = a.id)
                       and not exists (select from finished_generations
                                       where account_id = a.id and deleted_at is null)
                       -- `limit`: a lookup for each row of the trash, not a join of the tables.
                       and not exists (select from media_trash t, lateral (
                                           select from finished_generations g
                                           where g.account_id = a.id and g.id = t.generation_id
                                           limit 1) g)
                     returning id
                 ), late_templates as (
                     delete from templates where account_id in (select id from erased)
                 ), receipts as (
                     delete from prefix_receipts where account_id in (select id from erased)
                 )
                 delete from idempotency_keys where account_id in (select id from erased)",
                now,
                now - LATE_WRITES,
            )
            .execute(self.requests.named("note erased accounts").long())
            .await?;
        }
        Ok((with_files, is_complete))
    }
}
