//! API keys: records, replacement and revocation.

mod presented;
mod presumed;

use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

pub use presented::AuthenticatedKey;
pub(super) use presented::KeyReader;
pub use presumed::Presumed;
pub(super) use presumed::Presumptions;

use super::{Result, Store, exactly_one, pool::Transaction};
use crate::{
    domain::{
        ability::Abilities,
        clock::rfc3339,
        credits::Credits,
        ids::{AccountId, ApiKeyId, SessionId},
        page::{Page, PageRequest},
        spend::SpendPeriod,
        token::{NewToken, TokenDigest},
    },
    request::KeyRequest,
};

/// Prefix of the key list's cursors.
pub const KEYS_CURSOR: u8 = b'k';

/// The credential that pays for a generation. The statement that places the hold checks it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    ApiKey(ApiKeyId),
    Session(SessionId),
}

impl Credential {
    pub(super) fn ids(self) -> (Option<i64>, Option<i64>) {
        match self {
            Self::ApiKey(id) => (Some(id.0), None),
            Self::Session(id) => (None, Some(id.0)),
        }
    }
}

/// An API key, without the key itself.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = KeyBody)]
pub struct ApiKeyRecord {
    /// Its id.
    pub id: ApiKeyId,
    /// Its label.
    pub name: String,
    /// First and last characters of the key.
    #[schema(example = "svc_a1B2...9zYx")]
    pub key_hint: String,
    /// The key's abilities.
    pub abilities: Abilities,
    /// Requests per minute.
    #[schema(value_type = u32)]
    pub rate_limit_per_minute: i32,
    /// When it expires; null: never.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub expires_at: Option<DateTime<Utc>>,
    /// Maximum spending in each period; null: only the balance limits it.
    #[schema(required, nullable)]
    pub spend_limit: Option<Credits>,
    /// The period of the limit, in UTC; null: the limit is for all time.
    #[schema(required, nullable)]
    pub spend_period: Option<SpendPeriod>,
    /// Its spending in the current period: charged credits, and holds of running work.
    pub spent: Credits,
    /// When it was last used; may lag by 60 s.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub last_used_at: Option<DateTime<Utc>>,
    /// When it was revoked.
    #[schema(required, nullable)]
    #[serde(serialize_with = "rfc3339")]
    pub revoked_at: Option<DateTime<Utc>>,
    /// When it was created.
    #[serde(serialize_with = "rfc3339")]
    pub created_at: DateTime<Utc>,
}

impl Store {
    /// Stores a key. Returns `None` if the caller's key or session has ended, its account is
    /// suspended, or the caller is a key with a spend limit or without all abilities. Locks the row
    /// of the caller's token, so that its revocation or change comes before or after.
    pub async fn create_key(
        &self,
        account: AccountId,
        new: &KeyRequest,
        token: &NewToken,
        by: Option<Credential>,
        now: DateTime<Utc>,
    ) -> Result<Option<ApiKeyRecord>> {
        let (key, session) = by.map_or((None, None), Credential::ids);
        let reading = sqlx::query_as!(
            ApiKeyRecord,
            r#"insert into api_keys
                 (account_id, name, digest, key_hint, abilities, rate_limit_per_minute, expires_at,
                  created_at, spend_limit, spend_period)
             select $1, $2, $3, $4, $5, $6, $7, $8, $11, $12
             where ($9::bigint is null and $10::bigint is null)
                or lock_live_caller($9, $10, $8)
                   and exists (select from accounts where id = $1 and suspended_at is null)
                   -- Locks the row too, to read its newest version.
                   and ($9 is null
                        or exists (select from api_keys where id = $9 and spend_limit is null
                                   and abilities = '{*}' for share))
             returning id as "id: _", name, key_hint, abilities as "abilities: _",
                       rate_limit_per_minute, expires_at, spend_limit as "spend_limit: _",
                       spend_period as "spend_period: _", 0::bigint as "spent!: _",
                       last_used_at, revoked_at, created_at"#,
            account.0,
            new.name,
            &token.digest.0[..],
            token.hint,
            &new.abilities.names(),
            i32::try_from(new.rate_limit_per_minute).unwrap_or(i32::MAX),
            new.expires_at,
            now,
            key,
            session,
            new.spend_limit.map(Credits::micros),
            new.spend_period.map(SpendPeriod::as_str),
        )
        .fetch_optional(self.requests.named("create a key"));
        Ok(reading.await?)
    }

    /// Finds a key of an account by its digest.
    pub async fn key_of_digest(
        &self,
        account: AccountId,
        digest: TokenDigest,
    ) -> Result<Option<ApiKeyId>> {
        let reading = sqlx::query_scalar!(
            r#"select id as "id: ApiKeyId" from api_keys where account_id = $1 and digest = $2"#,
            account.0,
            &digest.0[..],
        );
        let reading = reading.fetch_optional(self.requests.named("find a key by its digest"));
        Ok(reading.await?)
    }

    /// Returns a key of an account.
    pub async fn key(
        &self,
        account: AccountId,
        id: ApiKeyId,
        now: DateTime<Utc>,
    ) -> Result<Option<ApiKeyRecord>> {
        let reading = sqlx::query_as!(
            ApiKeyRecord,
            r#"select id as "id: _", name, key_hint, abilities as "abilities: _",
                    rate_limit_per_minute, expires_at, spend_limit as "spend_limit: _",
                    spend_period as "spend_period: _",
                    spent_by(api_keys, $3) as "spent!: _",
                    last_used_at, revoked_at, created_at
             from api_keys where account_id = $1 and id = $2"#,
            account.0,
            id.0,
            now,
        )
        .fetch_optional(self.requests.named("read a key"));
        Ok(reading.await?)
    }

    /// Returns the account's keys, newest first.
    pub async fn keys(
        &self,
        account: AccountId,
        page: &PageRequest,
        now: DateTime<Utc>,
    ) -> Result<Page<ApiKeyRecord>> {
        let keys = sqlx::query_as!(
            ApiKeyRecord,
            r#"select id as "id: _", name, key_hint, abilities as "abilities: _",
                    rate_limit_per_minute, expires_at, spend_limit as "spend_limit: _",
                    spend_period as "spend_period: _",
                    case when spend_limit is null then coalesce(s.spent, 0)
                         else spent_by(api_keys, $4) end as "spent!: _",
                    last_used_at, revoked_at, created_at
             from api_keys left join spent_without_limits($1) s on s.api_key_id = id
             where account_id = $1 and ($2::bigint is null or id < $2)
             order by id desc limit $3"#,
            account.0,
            page.after_number(),
            page.per_page + 1,
            now,
        )
        .fetch_all(self.requests.named("list keys").long())
        .await?;
        Ok(page.numbered(KEYS_CURSOR, keys, |row| row.id.0))
    }

    /// Revokes a key permanently. Idempotent.
    pub async fn revoke_key(
        &self,
        account: AccountId,
        id: ApiKeyId,
        now: DateTime<Utc>,
    ) -> Result<Option<ApiKeyRecord>> {
        let reading = sqlx::query_as!(
            ApiKeyRecord,
            r#"update api_keys set revoked_at = coalesce(revoked_at, $3)
             where account_id = $1 and id = $2
             returning id as "id: _", name, key_hint, abilities as "abilities: _",
                       rate_limit_per_minute, expires_at, spend_limit as "spend_limit: _",
                       spend_period as "spend_period: _",
                       spent_by(api_keys, $3) as "spent!: _",
                       last_used_at, revoked_at, created_at"#,
            account.0,
            id.0,
            now,
        )
        .fetch_optional(self.requests.named("revoke a key"));
        Ok(reading.await?)
    }

    /// Replaces the name, abilities and limits of a key, including a revoked one. Returns `None` if
    /// the account does not have the key.
    pub async fn replace_key(
        &self,
        account: AccountId,
        id: ApiKeyId,
        new: &KeyRequest,
        now: DateTime<Utc>,
    ) -> Result<Option<ApiKeyRecord>> {
        let mut tx = self.requests.named("replace a key").begin().await?;
        // Serializes replacements of a key. Locking its row instead would block authentication.
        sqlx::query!(
            "select pg_advisory_xact_lock(hashtextextended('limits of ' || $1::bigint, 0))",
            id.0
        )
        .execute(&mut tx)
        .await?;
        let old = sqlx::query!(
            r#"select spend_limit as "limit: Credits", spend_period as period from api_keys
               where account_id = $1 and id = $2"#,
            account.0,
            id.0,
        )
        .fetch_optional(&mut tx)
        .await?;
        let Some(old) = old else {
            return Ok(None);
        };
        let period = new.spend_period.map(SpendPeriod::as_str);
        let has_new_limit = (old.limit, old.period.as_deref()) != (new.spend_limit, period);
        if has_new_limit {
            // Every hold and settlement names this table and waits here before its snapshot is
            // taken, so none counts by the old limit once this is committed.
            sqlx::query!("lock table key_spend in share row exclusive mode")
                .execute(&mut tx)
                .await?;
        }
        let done = sqlx::query!(
            "update api_keys
             set name = $3, abilities = $4, rate_limit_per_minute = $5, expires_at = $6,
                 spend_limit = $7, spend_period = $8, version = version + 1
             where account_id = $1 and id = $2",
            account.0,
            id.0,
            new.name,
            &new.abilities.names(),
            i32::try_from(new.rate_limit_per_minute).unwrap_or(i32::MAX),
            new.expires_at,
            new.spend_limit.map(Credits::micros),
            period,
        )
        .execute(&mut tx)
        .await?;
        exactly_one("replacing a key", done.rows_affected())?;
        if has_new_limit {
            count_spend(&mut tx, account, id).await?;
        }
        tx.commit().await?;
        self.key(account, id, now).await
    }
}

/// Recomputes what a key has spent in each period of its limit, from its generations.
async fn count_spend(tx: &mut Transaction, account: AccountId, id: ApiKeyId) -> Result<()> {
    sqlx::query!("delete from key_spend where api_key_id = $1", id.0)
        .execute(&mut *tx)
        .await?;
    // The settlements of these generations return unused credits to this period.
    sqlx::query!(
        "update running_generations g
         set spend_period = case when k.spend_limit is not null
                                 then spend_period_start(k.spend_period, g.created_at) end
         from api_keys k
         where k.id = $2 and g.account_id = $1 and g.api_key_id = $2",
        account.0,
        id.0,
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!(
        "insert into key_spend (api_key_id, period, spent)
         select k.id, spend_period_start(k.spend_period, at), sum(amount)::bigint
         from api_keys k cross join (
             select start as at, charged as amount from usage_sums
             where account_id = $1 and span = 'd' and api_key_id = $2
             union all
             select created_at, charged from usage_tail($1) where api_key_id = $2
             union all
             select created_at, estimated from running_generations
             where account_id = $1 and api_key_id = $2
         ) spent
         where k.id = $2 and k.spend_limit is not null
         group by 1, 2",
        account.0,
        id.0,
    )
    .execute(&mut *tx)
    .await?;
    // A separate statement, because `key_spend_within_limit` forbids a limit below the spent
    // amount. The next hold of such a key sets the limit, and is refused.
    sqlx::query!(
        "update key_spend s set spend_limit = k.spend_limit
         from api_keys k where k.id = $1 and s.api_key_id = $1 and s.spent <= k.spend_limit",
        id.0,
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}
