//! The accounts and keys of one run, in the database and in the model.

use chrono::{DateTime, TimeDelta, Utc};
use gensvc::{
    domain::{
        ability::Abilities,
        ids::{AccountId, ApiKeyId},
        spend::SpendPeriod,
        token::new_api_key,
    },
    request::KeyRequest,
    store::accounts::NewAccount,
};
use uuid::Uuid;

use super::{
    model::{Model, ModelAccount, ModelKey},
    mover::micros,
    steps::{ACCOUNTS, KEYS},
    world::World,
};

/// Initial balance of each account.
const BALANCE: i64 = 400;

/// The accounts and keys of one run.
#[derive(Clone)]
pub struct Cast {
    pub accounts: Vec<AccountId>,
    pub keys: Vec<ApiKeyId>,
    pub model: Model,
}

impl World {
    /// New accounts, each with one key without a limit, one that expires, and one with a limit for
    /// each period.
    pub async fn cast(&self, now: DateTime<Utc>) -> Cast {
        let mut cast = Cast {
            accounts: Vec::new(),
            keys: Vec::new(),
            model: Model::default(),
        };
        for account in 0..ACCOUNTS {
            let new = NewAccount {
                name: "x",
                email: &format!("{}@example.com", Uuid::now_v7()),
                password_hash: "x",
                credits: micros(BALANCE),
                now,
            };
            let (id, _) = self.stores[0].create_account(&new).await.unwrap().unwrap();
            cast.accounts.push(id);
            cast.model.accounts.push(ModelAccount::new(BALANCE));
            let ends = now + TimeDelta::hours(60);
            let kinds = [
                (None, None, None),
                (None, None, Some(ends)),
                (Some(250), None, None),
                (Some(120), Some(SpendPeriod::Day), None),
                (Some(160), Some(SpendPeriod::Month), None),
            ];
            for (limit, period, expires_at) in kinds {
                let key = self.key(id, limit, period, expires_at, now).await;
                cast.keys.push(key);
                cast.model.keys.push(ModelKey {
                    account,
                    limit,
                    period,
                    expires_at,
                    revoked: false,
                    spent: [].into(),
                });
            }
        }
        assert_eq!(cast.keys.len(), ACCOUNTS * KEYS);
        cast
    }

    async fn key(
        &self,
        account: AccountId,
        limit: Option<i64>,
        period: Option<SpendPeriod>,
        expires_at: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) -> ApiKeyId {
        let token = new_api_key().unwrap();
        let request = KeyRequest {
            name: "x".to_owned(),
            abilities: Abilities::parse(&["*".to_owned()]).unwrap(),
            rate_limit_per_minute: 600,
            expires_at,
            spend_limit: limit.map(micros),
            spend_period: period,
        };
        let made = self.stores[0]
            .create_key(account, &request, &token, None, now)
            .await
            .unwrap();
        made.unwrap().id
    }
}
