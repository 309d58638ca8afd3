//! Tokens of the operator's own systems: the record, revocation, and the read that counts the
//! request.

use chrono::{DateTime, TimeDelta, Utc};

use super::{Store, StoreError};
use crate::domain::{
    ids::AdminTokenId,
    rate::{DEFAULT_PER_MINUTE, Gcra, RateState, nanos},
    token::TokenDigest,
};

/// How far `last_used_at` may lag.
const LAST_USED_LAG: TimeDelta = TimeDelta::seconds(60);

/// A stored admin token.
#[derive(Debug, Clone)]
pub struct AdminTokenRecord {
    pub id: AdminTokenId,
    pub name: String,
    /// When it was last used; may lag by 60 s.
    pub last_used_at: Option<DateTime<Utc>>,
    /// When it was revoked.
    pub revoked_at: Option<DateTime<Utc>>,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

/// An admin token that was presented.
#[derive(Debug)]
pub struct PresentedAdmin {
    pub id: AdminTokenId,
    /// The request, counted; `None` for a revoked one.
    pub rate: Option<RateState>,
}

struct TokenRow {
    id: i64,
    name: String,
    last_used_at: Option<DateTime<Utc>>,
    revoked_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
}

impl Store {
    /// Stores an admin token.
    pub async fn create_admin_token(
        &self,
        name: &str,
        digest: TokenDigest,
        now: DateTime<Utc>,
    ) -> Result<AdminTokenRecord, StoreError> {
        let row = sqlx::query_as!(
            TokenRow,
            "insert into admin_tokens (name, digest, created_at) values ($1, $2, $3)
             returning id, name, last_used_at, revoked_at, created_at",
            name,
            &digest.0[..],
            now,
        )
        .fetch_one(self.requests.named("create an admin token"))
        .await?;
        Ok(row.into())
    }

    /// All admin tokens, newest first. There are a handful.
    pub async fn admin_tokens(&self) -> Result<Vec<AdminTokenRecord>, StoreError> {
        let rows = sqlx::query_as!(
            TokenRow,
            "select id, name, last_used_at, revoked_at, created_at
             from admin_tokens order by id desc"
        )
        .fetch_all(self.requests.named("list admin tokens"))
        .await?;
        Ok(rows.into_iter().map(AdminTokenRecord::from).collect())
    }

    /// Revokes an admin token, for ever. A second time answers as the first.
    pub async fn revoke_admin_token(
        &self,
        id: AdminTokenId,
        now: DateTime<Utc>,
    ) -> Result<Option<AdminTokenRecord>, StoreError> {
        let row = sqlx::query_as!(
            TokenRow,
            "update admin_tokens set revoked_at = coalesce(revoked_at, $2) where id = $1
             returning id, name, last_used_at, revoked_at, created_at",
            id.0,
            now,
        )
        .fetch_optional(self.requests.named("revoke an admin token"))
        .await?;
        Ok(row.map(AdminTokenRecord::from))
    }

    /// Reads an admin token and counts the request against the default limit, as
    /// [`Store::authenticate_key`] does.
    pub async fn present_admin(
        &self,
        digest: TokenDigest,
        now: DateTime<Utc>,
    ) -> Result<Option<PresentedAdmin>, StoreError> {
        let gcra = Gcra::per_minute(DEFAULT_PER_MINUTE);
        let reading = sqlx::query!(
            r#"
            with moment as materialized (
                select $3::bigint as now
            ), token as materialized (
                select t.id, t.revoked_at, m.now from admin_tokens t, moment m where t.digest = $1
            ), live as materialized (
                select * from token where revoked_at is null
            ), counted as (
                insert into rate_limits as r (kind, id, tat, admitted)
                select 'a', id, now + $4::bigint, true from live
                on conflict (kind, id) do update
                    set (tat, admitted) = (
                        select case when r.tat - now > 120000000000 then excluded.tat
                                    when fits then greatest(r.tat, now) + $4::bigint
                                    else r.tat end,
                               fits or r.tat - now > 120000000000
                        from live, lateral (
                            select greatest(r.tat, now) + $4::bigint - now <= $5 as fits
                        ) f)
                returning tat, admitted
            ), used as (
                update admin_tokens set last_used_at = $2
                where id = (select id from live)
                  and (last_used_at is null or last_used_at <= $6)
            )
            select token.now as "now!", token.id, counted.tat as "tat?", counted.admitted as "admitted?"
            from token left join counted on true
            "#,
            &digest.0[..],
            now,
            nanos(now),
            gcra.emission_nanos(),
            gcra.burst_nanos(),
            now - LAST_USED_LAG,
        )
        .fetch_optional(self.requests.named("authenticate an admin token"));
        Ok(reading.await?.map(|row| PresentedAdmin {
            id: AdminTokenId(row.id),
            rate: row
                .tat
                .zip(row.admitted)
                .map(|(tat, admitted)| gcra.state(row.now, tat, admitted)),
        }))
    }
}

impl From<TokenRow> for AdminTokenRecord {
    fn from(row: TokenRow) -> Self {
        Self {
            id: AdminTokenId(row.id),
            name: row.name,
            last_used_at: row.last_used_at,
            revoked_at: row.revoked_at,
            created_at: row.created_at,
        }
    }
}
