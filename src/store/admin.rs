//! Admin tokens: records, revocation, authentication.

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use super::{Result, Store};
use crate::domain::{
    clock::rfc3339,
    ids::AdminTokenId,
    rate::{DEFAULT_PER_MINUTE, Gcra, RateState, nanos},
    token::TokenDigest,
};

/// Maximum lag of `last_used_at`.
const LAST_USED_LAG: TimeDelta = TimeDelta::seconds(60);

/// An admin token, without the token itself. Only the command line shows it.
#[derive(Debug, Clone, Serialize)]
pub struct AdminTokenRecord {
    pub id: AdminTokenId,
    pub name: String,
    /// When it was last used; may lag by 60 s.
    #[serde(serialize_with = "rfc3339")]
    pub last_used_at: Option<DateTime<Utc>>,
    /// When it was revoked.
    #[serde(serialize_with = "rfc3339")]
    pub revoked_at: Option<DateTime<Utc>>,
    /// When it was made.
    #[serde(serialize_with = "rfc3339")]
    pub created_at: DateTime<Utc>,
}

#[derive(Debug)]
pub struct PresentedAdmin {
    pub id: AdminTokenId,
    /// The state of the rate limit; `None` for a revoked token.
    pub rate: Option<RateState>,
}

impl Store {
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

    /// All admin tokens, newest first, without pages: there are few.
    pub async fn admin_tokens(&self) -> Result<Vec<AdminTokenRecord>> {
        let reading = sqlx::query_as!(
            AdminTokenRecord,
            r#"select id as "id: _", name, last_used_at, revoked_at, created_at
             from admin_tokens order by id desc"#
        )
        .fetch_all(self.requests.named("list admin tokens"));
        Ok(reading.await?)
    }

    /// Revokes an admin token. Idempotent.
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
    /// [`Store::authenticate_key`] does.
    pub async fn present_admin(
        &self,
        digest: TokenDigest,
        now: DateTime<Utc>,
    ) -> Result<Option<PresentedAdmin>> {
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
        Ok(reading.await?.map(|row| PresentedAdmin {
            id: row.id,
            rate: row
                .tat
                .zip(row.admitted)
                .map(|(tat, admitted)| gcra.counted(now, tat, admitted, 0)),
        }))
    }
}
