//! Authenticates API keys: one statement reads keys and counts their requests.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use crate::{
    domain::{
        ability::Abilities,
        credits::Credits,
        ids::{AccountId, ApiKeyId},
        rate::{Gcra, RateState, nanos},
        token::TokenDigest,
    },
    store::{
        Result, Store, StoreError,
        groups::{Item, Writer},
        pool::{Pool, statement_span},
    },
};

/// Maximum age of `last_used_at` when a key is read. Together with the lifetime of cached keys, it
/// lags by at most 60 s.
const LAST_USED_LAG: TimeDelta = TimeDelta::seconds(45);

/// How often a statement is repeated after a deadlock.
const DEADLOCKS: u32 = 3;

#[derive(Debug, Clone)]
pub struct AuthenticatedKey {
    pub id: ApiKeyId,
    pub account_id: AccountId,
    pub abilities: Abilities,
    /// Incremented when its abilities or limits change. Revocation is checked separately.
    pub version: i32,
    pub expires_at: Option<DateTime<Utc>>,
    pub revoked: bool,
    pub suspended: bool,
    /// Maximum spending in each period.
    pub spend_limit: Option<Credits>,
    /// State of the rate limit after this request; `None` if the key is revoked or expired.
    pub rate: Option<RateState>,
    /// The account's default providers and models, by modality.
    pub defaults: Value,
}

/// Reads keys on its own connections.
pub struct KeyReader(pub Pool);

/// A request's key to be read, and the channel for the result.
pub struct Presented {
    digest: TokenDigest,
    now: DateTime<Utc>,
    waiter: oneshot::Sender<Result<Option<AuthenticatedKey>>>,
}

/// A key that was read, and how its requests were counted.
struct Counted {
    key: AuthenticatedKey,
    gcra: Gcra,
    /// State after them and the number admitted; `None` if the key is revoked or expired.
    state: Option<(i64, i32)>,
}

impl Store {
    /// Reads a key and counts the request against its limit.
    pub async fn authenticate_key(
        &self,
        digest: TokenDigest,
        now: DateTime<Utc>,
    ) -> Result<Option<AuthenticatedKey>> {
        let (waiter, key) = oneshot::channel();
        let reading = async {
            self.keys.submit(Presented {
                digest,
                now,
                waiter,
            });
            key.await?
        };
        reading
            .instrument(statement_span("authenticate a key"))
            .await
    }
}

impl Item for Presented {
    type Key = TokenDigest;

    fn key(&self) -> TokenDigest {
        self.digest
    }

    fn kind(&self) -> u8 {
        0
    }

    fn is_abandoned(&self) -> bool {
        self.waiter.is_closed()
    }

    fn bytes(&self) -> usize {
        size_of::<TokenDigest>()
    }
}

impl Writer for KeyReader {
    type Item = Presented;

    async fn together(&self, items: Vec<Presented>) -> Vec<Presented> {
        let now = items.iter().map(|item| item.now).max().unwrap_or_default();
        let mut counts = HashMap::new();
        for item in &items {
            *counts.entry(item.digest).or_insert(0) += 1;
        }
        let mut deadlocks = 0;
        let read = loop {
            match self.read(&counts, now).await {
                Err(error) if error.is_deadlock() && deadlocks < DEADLOCKS => deadlocks += 1,
                read => break read,
            }
        };
        let mut places: HashMap<TokenDigest, usize> = HashMap::new();
        for item in items {
            let place = places.entry(item.digest).or_default();
            let key = match &read {
                Ok(keys) => Ok(keys.get(&item.digest).map(|key| key.at(now, *place))),
                Err(error) => Err(error.clone()),
            };
            *place += 1;
            let _ = item.waiter.send(key);
        }
        Vec::new()
    }

    /// Does nothing: a statement that waits for a key's row waits at most for the commit of another
    /// statement, and holds give up if they have to wait themselves.
    async fn in_lane(&self, _: Vec<Presented>) {}
}

impl Counted {
    /// Returns the key as seen by the request at `place` among the counted requests.
    fn at(&self, now: DateTime<Utc>, place: usize) -> AuthenticatedKey {
        let rate = self
            .state
            .map(|(tat, admitted)| self.gcra.counted(now, tat, admitted, place));
        AuthenticatedKey {
            rate,
            ..self.key.clone()
        }
    }
}

impl KeyReader {
    async fn read(
        &self,
        counts: &HashMap<TokenDigest, i32>,
        now: DateTime<Utc>,
    ) -> Result<HashMap<TokenDigest, Counted>> {
        let (digests, counts): (Vec<&[u8]>, Vec<i32>) =
            counts.iter().map(|(digest, &n)| (&digest.0[..], n)).unzip();
        let reading = sqlx::query!(
            r#"
            with key as materialized (
                select k.id, k.account_id, k.abilities, k.version, k.rate_limit_per_minute, k.expires_at,
                       k.revoked_at, k.last_used_at, k.spend_limit, k.digest, p.n
                from unnest($1::bytea[], $2::integer[]) as p (digest, n)
                    join api_keys k on k.digest = p.digest and k.digest = any($1)
            ), live as materialized (
                select id, rate_limit_per_minute, n, last_used_at from key
                where revoked_at is null and (expires_at is null or expires_at > $3)
                order by id
            ), counted as materialized (
                select c.caller, c.tat, c.admitted
                from count_requests('k', array(select id from live),
                                    array(select rate_limit_per_minute from live),
                                    array(select n from live), $4) c
            ), used as (
                -- Once a minute. Commits of this connection are not flushed.
                update api_keys set last_used_at = $3
                where id = any(array(
                    -- No request waits for a key that is being changed.
                    select id from api_keys
                    where id = any(array(select id from live
                                         where last_used_at is null or last_used_at <= $5))
                    order by id for no key update skip locked))
            )
            select key.id as "id!: ApiKeyId", key.account_id as "account_id!: AccountId",
                   key.abilities as "abilities!: Abilities",
                   key.version as "version!",
                   key.rate_limit_per_minute as "rate_limit_per_minute!",
                   key.expires_at, key.revoked_at is not null as "revoked!",
                   a.suspended_at is not null as "suspended!",
                   key.spend_limit as "spend_limit: Credits", a.defaults as "defaults!",
                   key.digest as "digest!",
                   counted.tat as "tat?", counted.admitted as "admitted?"
            from key
                join accounts a
                    on a.id = key.account_id and a.id = any(array(select account_id from key))
                left join counted on counted.caller = key.id
            "#,
            &digests as _,
            &counts,
            now,
            nanos(now),
            now - LAST_USED_LAG,
        )
        .fetch_all(self.0.named("authenticate keys"));
        let read = reading.await?.into_iter().map(|row| {
            let digest = row.digest.try_into().map(TokenDigest);
            let digest = digest.map_err(|_| StoreError::Corrupt("a digest's length".to_owned()))?;
            let key = AuthenticatedKey {
                id: row.id,
                account_id: row.account_id,
                abilities: row.abilities,
                version: row.version,
                expires_at: row.expires_at,
                revoked: row.revoked,
                suspended: row.suspended,
                spend_limit: row.spend_limit,
                rate: None,
                defaults: row.defaults,
            };
            let gcra = Gcra::per_minute(row.rate_limit_per_minute.unsigned_abs());
            let state = row.tat.zip(row.admitted);
            Ok((digest, Counted { key, gcra, state }))
        });
        read.collect()
    }
}
