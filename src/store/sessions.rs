//! Sessions, admin tokens, and the login throttle.

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use super::{Result, Store};
use crate::domain::{
    clock::rfc3339,
    ids::{AccountId, AdminTokenId, SessionId, UserId},
    rate::{DEFAULT_PER_MINUTE, Gcra, RateState, nanos},
    token::TokenDigest,
};

/// Failed logins of one email from one address within [`THROTTLE_WINDOW`].
const MAX_FAILURES: i64 = 10;
/// An attempt without a result counts for this long: its server may have died.
const PENDING_WINDOW: TimeDelta = TimeDelta::seconds(30);
/// Sliding window of the login throttle.
pub(super) const THROTTLE_WINDOW: TimeDelta = TimeDelta::minutes(15);

#[derive(Debug)]
pub struct PresentedSession {
    pub id: SessionId,
    pub user_id: UserId,
    pub account_id: AccountId,
    pub expires_at: DateTime<Utc>,
    pub suspended: bool,
    pub operator: bool,
    pub rate: RateState,
    /// The account's default providers and models, by modality.
    pub defaults: serde_json::Value,
}

/// Maximum lag of `last_used_at`.
const LAST_USED_LAG: TimeDelta = TimeDelta::seconds(60);

/// An admin token, without the token itself. Only the command line shows the token.
#[derive(Debug, Clone, Serialize)]
pub struct AdminTokenRecord {
    pub id: AdminTokenId,
    pub name: String,
    /// When it was last used; may lag by 60 s.
    #[serde(serialize_with = "rfc3339")]
    pub last_used_at: Option<DateTime<Utc>>,
    #[serde(serialize_with = "rfc3339")]
    pub revoked_at: Option<DateTime<Utc>>,
    #[serde(serialize_with = "rfc3339")]
    pub created_at: DateTime<Utc>,
}

impl Store {
    /// Creates a session. Returns `false` if `hash` is not the user's current password. Locks the
    /// user's row, so that a concurrent password change comes before or after.
    pub async fn create_session(
        &self,
        user: UserId,
        hash: &str,
        digest: TokenDigest,
        expires_at: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<bool> {
        let done = sqlx::query!(
            "insert into sessions (user_id, account_id, digest, expires_at, created_at)
             select id, account_id, $3, $4, $5 from users where id = $1 and password_hash = $2
             for share",
            user.0,
            hash,
            &digest.0[..],
            expires_at,
            now,
        )
        .execute(self.requests.named("create a session"))
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Sets a password by its argon2id hash (PHC string), ends the user's sessions and returns
    /// their number. `by`: if the user changes it, the current hash and the session to keep.
    /// Returns `None` if the current password has changed.
    pub async fn set_password(
        &self,
        user: UserId,
        hash: &str,
        by: Option<(&str, SessionId)>,
        now: DateTime<Utc>,
    ) -> Result<Option<u64>> {
        let mut tx = self.requests.named("set a password").begin().await?;
        let (replaces, keep) = by.unzip();
        let set = sqlx::query!(
            "update users set password_hash = $2
             where id = $1 and ($3::text is null or password_hash = $3)",
            user.0,
            hash,
            replaces,
        );
        if set.execute(&mut tx).await?.rows_affected() == 0 {
            return Ok(None);
        }
        // A second statement, which sees sessions of the logins that the first one waited for.
        let ended = sqlx::query!(
            "update sessions set revoked_at = $2
             where user_id = $1 and revoked_at is null and id is distinct from $3",
            user.0,
            now,
            keep.map(|session| session.0),
        );
        let ended = ended.execute(&mut tx).await?.rows_affected();
        tx.commit().await?;
        Ok(Some(ended))
    }

    /// Reads a live session and optionally counts the request against the default limit, as
    /// [`Store::authenticate_key`] does.
    pub async fn present_session(
        &self,
        digest: TokenDigest,
        counts: bool,
        now: DateTime<Utc>,
    ) -> Result<Option<PresentedSession>> {
        let reading = sqlx::query!(
            r#"
            with live as materialized (
                select s.id, s.user_id, s.account_id, s.expires_at, a.suspended_at, a.defaults,
                       u.operator_since
                from sessions s join accounts a on a.id = s.account_id
                join users u on u.id = s.user_id
                where s.digest = $1 and s.revoked_at is null and s.expires_at > $2
            )
            select live.id as "id: SessionId", live.user_id as "user_id: UserId",
                   live.account_id as "account_id: AccountId", live.expires_at,
                   live.suspended_at is not null as "suspended!", live.defaults,
                   live.operator_since is not null as "operator!",
                   counted.tat as "tat!", counted.admitted as "admitted!"
            from live, count_requests('s', array[live.id], array[$3::integer], array[$5::integer], $4) counted
            "#,
            &digest.0[..],
            now,
            DEFAULT_PER_MINUTE.cast_signed(),
            nanos(now),
            i32::from(counts),
        )
        .fetch_optional(self.requests.named("authenticate a session"));
        let gcra = Gcra::per_minute(DEFAULT_PER_MINUTE);
        Ok(reading.await?.map(|row| PresentedSession {
            id: row.id,
            user_id: row.user_id,
            account_id: row.account_id,
            expires_at: row.expires_at,
            suspended: row.suspended,
            operator: row.operator,
            defaults: row.defaults,
            rate: if counts {
                gcra.counted(now, row.tat, row.admitted, 0)
            } else {
                gcra.state(now, row.tat, true)
            },
        }))
    }

    /// Ends a session. Idempotent; the deletion of an account removes its sessions.
    pub async fn end_session(&self, id: SessionId, now: DateTime<Utc>) -> Result<()> {
        sqlx::query!(
            "update sessions set revoked_at = coalesce(revoked_at, $2) where id = $1",
            id.0,
            now
        )
        .execute(self.requests.named("end a session"))
        .await?;
        Ok(())
    }

    /// Counts a login attempt **before** the password is checked. It counts as a failure until
    /// [`Store::end_login`], so parallel guesses cannot exceed the limit. If the limit is reached,
    /// returns the time to wait.
    pub async fn begin_login(
        &self,
        email: &str,
        address: &str,
        now: DateTime<Utc>,
    ) -> Result<Result<(), TimeDelta>> {
        let (failed_since, pending_since) = (now - THROTTLE_WINDOW, now - PENDING_WINDOW);
        let counting = sqlx::query!(
            r#"
            insert into login_attempts as l (email, address, pending)
            values (lower($1), $2, array[$3::timestamptz])
            on conflict (email, address) do update
                set pending = array(select t from unnest(l.pending) t where t > $5) || $3::timestamptz,
                    failed_at = array(select t from unnest(l.failed_at) t where t > $4)
                where (select count(*) from unnest(l.failed_at) t where t > $4)
                    + (select count(*) from unnest(l.pending) t where t > $5) < $6
            "#,
            email,
            address,
            now,
            failed_since,
            pending_since,
            MAX_FAILURES,
        )
        .execute(self.requests.named("count a login"));
        if counting.await?.rows_affected() == 1 {
            return Ok(Ok(()));
        }
        let failures = sqlx::query!(
            r#"select (select count(*) from unnest(failed_at) t where t > $3) as "count!",
                      (select min(t) from unnest(failed_at) t where t > $3) as oldest
               from login_attempts where email = lower($1) and address = $2"#,
            email,
            address,
            failed_since,
        )
        .fetch_optional(self.requests.named("read the login limit"))
        .await?;
        Ok(Err(match failures {
            Some(row) if row.count >= MAX_FAILURES => {
                row.oldest.unwrap_or(now) + THROTTLE_WINDOW - now
            }
            // Only attempts without a result count.
            _ => TimeDelta::zero(),
        }))
    }

    /// Records the result of the attempt that began at `at`.
    pub async fn end_login(
        &self,
        email: &str,
        address: &str,
        at: DateTime<Utc>,
        failed: bool,
    ) -> Result<()> {
        // Removes one element only: another attempt may have the same time.
        sqlx::query!(
            "update login_attempts
             set pending = pending[:array_position(pending, $3) - 1]
                        || pending[array_position(pending, $3) + 1:],
                 failed_at = case when $4 then failed_at || $3 else failed_at end
             where email = lower($1) and address = $2 and array_position(pending, $3) is not null",
            email,
            address,
            at,
            failed,
        )
        .execute(self.requests.named("forget a login"))
        .await?;
        Ok(())
    }

    pub async fn create_admin_token(
        &self,
        name: &str,
        digest: TokenDigest,
        now: DateTime<Utc>,
    ) -> Result<AdminTokenRecord> {
        let reading = sqlx::query_as!(
            AdminTokenRecord,
            r#"insert into admin_tokens (name, digest, created_at) values ($1, $2, $3)
             returning id as "id: _", name, last_used_at, revoked_at, created_at"#,
            name,
            &digest.0[..],
            now,
        )
        .fetch_one(self.requests.named("create an admin token"));
        Ok(reading.await?)
    }

    /// Returns all admin tokens, newest first. There are few, so they are not paginated.
    pub async fn admin_tokens(&self) -> Result<Vec<AdminTokenRecord>> {
        let reading = sqlx::query_as!(
            AdminTokenRecord,
            r#"select id as "id: _", name, last_used_at, revoked_at, created_at
             from admin_tokens order by id desc"#
        )
        .fetch_all(self.requests.named("list admin tokens"));
        Ok(reading.await?)
    }

    pub async fn revoke_admin_token(
        &self,
        id: AdminTokenId,
        now: DateTime<Utc>,
    ) -> Result<Option<AdminTokenRecord>> {
        let reading = sqlx::query_as!(
            AdminTokenRecord,
            r#"update admin_tokens set revoked_at = coalesce(revoked_at, $2) where id = $1
             returning id as "id: _", name, last_used_at, revoked_at, created_at"#,
            id.0,
            now,
        )
        .fetch_optional(self.requests.named("revoke an admin token"));
        Ok(reading.await?)
    }

    /// Reads an admin token and counts the request against the default limit, as
    /// [`Store::authenticate_key`] does. The state of the limit is `None` if the token is revoked.
    pub async fn present_admin(
        &self,
        digest: TokenDigest,
        now: DateTime<Utc>,
    ) -> Result<Option<(AdminTokenId, Option<RateState>)>> {
        let reading = sqlx::query!(
            r#"
            with token as materialized (
                select id, revoked_at from admin_tokens where digest = $1
            ), live as materialized (
                select id from token where revoked_at is null
            ), counted as materialized (
                select c.tat, c.admitted
                from live, count_requests('a', array[live.id], array[$3::integer], array[1], $4) c
            ), used as (
                update admin_tokens set last_used_at = $2
                where id = (select id from live)
                  and (last_used_at is null or last_used_at <= $5)
            )
            select token.id as "id: AdminTokenId", counted.tat as "tat?",
                   counted.admitted as "admitted?"
            from token left join counted on true
            "#,
            &digest.0[..],
            now,
            DEFAULT_PER_MINUTE.cast_signed(),
            nanos(now),
            now - LAST_USED_LAG,
        )
        .fetch_optional(self.requests.named("authenticate an admin token"));
        let gcra = Gcra::per_minute(DEFAULT_PER_MINUTE);
        Ok(reading.await?.map(|row| {
            let counted = row.tat.zip(row.admitted);
            let rate = counted.map(|(tat, admitted)| gcra.counted(now, tat, admitted, 0));
            (row.id, rate)
        }))
    }
}
