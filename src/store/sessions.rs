//! Sessions and the login throttle.

use chrono::{DateTime, TimeDelta, Utc};

use super::{Store, StoreError, exactly_one};
use crate::domain::{
    ids::{AccountId, SessionId, UserId},
    rate::{DEFAULT_PER_MINUTE, Gcra, RateState, nanos},
    token::TokenDigest,
};

/// Failed logins of one email from one address within [`THROTTLE_WINDOW`].
const MAX_FAILURES: i64 = 10;
/// The throttle's window, sliding.
const THROTTLE_WINDOW: TimeDelta = TimeDelta::minutes(15);

/// A session that was presented.
#[derive(Debug)]
pub struct PresentedSession {
    /// Its id.
    pub id: SessionId,
    /// Its user.
    pub user_id: UserId,
    /// Its account.
    pub account_id: AccountId,
    /// When it ends.
    pub expires_at: DateTime<Utc>,
    /// Whether its account is suspended.
    pub suspended: bool,
    /// The request, counted.
    pub rate: RateState,
}

impl Store {
    /// Stores a session.
    pub async fn create_session(
        &self,
        user: UserId,
        account: AccountId,
        digest: TokenDigest,
        expires_at: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let done = sqlx::query!(
            "insert into sessions (user_id, account_id, digest, expires_at, created_at)
             values ($1, $2, $3, $4, $5)",
            user.0,
            account.0,
            &digest.0[..],
            expires_at,
            now,
        )
        .execute(&self.pool)
        .await?;
        exactly_one("creating a session", done.rows_affected())
    }

    /// Reads a live session and counts the request against the default limit.
    pub async fn present_session(
        &self,
        digest: TokenDigest,
        now: DateTime<Utc>,
    ) -> Result<Option<PresentedSession>, StoreError> {
        let gcra = Gcra::per_minute(DEFAULT_PER_MINUTE);
        let now_nanos = nanos(now);
        let row = sqlx::query!(
            r#"
            with live as materialized (
                select s.id, s.user_id, s.account_id, s.expires_at, a.suspended_at
                from sessions s join accounts a on a.id = s.account_id
                where s.digest = $1 and s.revoked_at is null and s.expires_at > $2
            ), counted as (
                insert into rate_limits as r (kind, id, tat)
                select 's', id, $3 + $4::bigint from live
                on conflict (kind, id) do update set tat = greatest(r.tat, $3) + $4::bigint
                    where greatest(r.tat, $3) + $4::bigint - $3 <= $5
                returning tat
            )
            select live.id, live.user_id, live.account_id, live.expires_at,
                   live.suspended_at is not null as "suspended!",
                   (select tat from counted) as counted,
                   (select r.tat from rate_limits r where r.kind = 's' and r.id = live.id) as before
            from live
            "#,
            &digest.0[..],
            now,
            now_nanos,
            gcra.emission_nanos(),
            gcra.burst_nanos(),
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|row| {
            let tat = row
                .counted
                .or(row.before)
                .unwrap_or(now_nanos + gcra.burst_nanos());
            PresentedSession {
                id: SessionId(row.id),
                user_id: UserId(row.user_id),
                account_id: AccountId(row.account_id),
                expires_at: row.expires_at,
                suspended: row.suspended,
                rate: gcra.state(now_nanos, tat, row.counted.is_some()),
            }
        }))
    }

    /// Ends a session. One that has ended already stays so.
    pub async fn end_session(&self, id: SessionId, now: DateTime<Utc>) -> Result<(), StoreError> {
        let done = sqlx::query!(
            "update sessions set revoked_at = coalesce(revoked_at, $2) where id = $1",
            id.0,
            now
        )
        .execute(&self.pool)
        .await?;
        exactly_one("ending a session", done.rows_affected())
    }

    /// Counts a login attempt as failed **before** the password is looked at, so that parallel
    /// guesses cannot overrun the limit. `None`: throttled; with the time until the oldest
    /// failure leaves the window.
    pub async fn begin_login(
        &self,
        email: &str,
        address: &str,
        now: DateTime<Utc>,
    ) -> Result<Result<(), TimeDelta>, StoreError> {
        let since = now - THROTTLE_WINDOW;
        let admitted = sqlx::query!(
            r#"
            insert into login_attempts as l (email, address, failed_at)
            values (lower($1), $2, array[$3::timestamptz])
            on conflict (email, address) do update
                set failed_at = array(select t from unnest(l.failed_at) t where t > $4) || $3::timestamptz
                where (select count(*) from unnest(l.failed_at) t where t > $4) < $5
            "#,
            email,
            address,
            now,
            since,
            MAX_FAILURES,
        )
        .execute(&self.pool)
        .await?;
        if admitted.rows_affected() == 1 {
            return Ok(Ok(()));
        }
        let oldest = sqlx::query_scalar!(
            "select (select min(t) from unnest(failed_at) t where t > $3)
             from login_attempts where email = lower($1) and address = $2",
            email,
            address,
            since,
        )
        .fetch_optional(&self.pool)
        .await?
        .flatten()
        .unwrap_or(now);
        Ok(Err(oldest + THROTTLE_WINDOW - now))
    }

    /// Takes back the failure that [`Store::begin_login`] counted at `at`: the password was
    /// right.
    pub async fn login_succeeded(
        &self,
        email: &str,
        address: &str,
        at: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        // One element only: another attempt may carry the same time.
        sqlx::query!(
            "update login_attempts
             set failed_at = failed_at[:array_position(failed_at, $3) - 1]
                          || failed_at[array_position(failed_at, $3) + 1:]
             where email = lower($1) and address = $2 and array_position(failed_at, $3) is not null",
            email,
            address,
            at,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Removes what no longer matters: ended sessions, old login attempts, expired idempotency
    /// keys; at most `batch` rows of each.
    pub async fn purge_expired(&self, now: DateTime<Utc>, batch: i64) -> Result<u64, StoreError> {
        let sessions = sqlx::query!(
            "delete from sessions where id in
                (select id from sessions where expires_at <= $1 order by expires_at limit $2)",
            now,
            batch
        )
        .execute(&self.pool)
        .await?;
        let attempts = sqlx::query!(
            "delete from login_attempts where (email, address) in
                (select email, address from login_attempts
                 where not exists (select from unnest(failed_at) t where t > $1) limit $2)",
            now - THROTTLE_WINDOW,
            batch
        )
        .execute(&self.pool)
        .await?;
        let keys = sqlx::query!(
            "delete from idempotency_keys where (account_id, key) in
                (select account_id, key from idempotency_keys
                 where expires_at <= $1 order by expires_at limit $2)",
            now,
            batch
        )
        .execute(&self.pool)
        .await?;
        // A state whose burst is whole again says nothing.
        let limits = sqlx::query!(
            "delete from rate_limits where tat <= $1 and (kind, id) in
                (select kind, id from rate_limits where tat <= $1 limit $2)",
            nanos(now),
            batch
        )
        .execute(&self.pool)
        .await?;
        Ok([sessions, attempts, keys, limits]
            .iter()
            .map(sqlx::postgres::PgQueryResult::rows_affected)
            .sum())
    }
}
