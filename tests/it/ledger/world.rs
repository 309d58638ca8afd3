//! The same steps, performed on the database through several servers' connections.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use gensvc::{
    domain::{
        ability::Abilities,
        generation::{Failure, FailureCode, Modality, Status, Surface},
        ids::{AccountId, GenerationId, GenerationIds, InstanceId},
        rate::{MAX_PER_MINUTE, RateState},
        token::TokenDigest,
    },
    store::{
        Connections, Store, StoreError,
        credits::{Balance, Move, Moved, NewMove, SpendLimit},
        generations::{
            Completion, Credential, HoldOutcome, Idempotency, NewGeneration, Outcome, Settlement,
        },
        keys::{AuthenticatedKey, Presumed},
        verify::Scope,
    },
};
use serde_json::json;
use sqlx::postgres::PgConnectOptions;
use uuid::Uuid;

use super::{
    cast::Cast,
    model::{Model, Verdict},
    mover::micros,
    steps::{By, Kind, SERVERS, Step, part_of},
};

/// Connections of each server.
const CONNECTIONS: Connections = Connections {
    requests: 2,
    credits: 2,
    locked: 1,
    keys: 1,
    jobs: 1,
    acquire_timeout: Duration::from_secs(30),
};

/// A generation that a run has created.
#[derive(Debug, Clone, Copy)]
pub struct Opening {
    pub id: GenerationId,
    account: AccountId,
    server: usize,
    pub hold: i64,
}

/// The servers and their shared state.
pub struct World {
    pub stores: Vec<Store>,
    instances: Vec<InstanceId>,
    ids: GenerationIds,
}

impl World {
    pub fn new(options: &PgConnectOptions) -> Self {
        let store = || Store::connect_lazy(options.clone(), CONNECTIONS);
        Self {
            stores: (0..SERVERS).map(|_| store()).collect(),
            instances: (0..SERVERS).map(|_| InstanceId(Uuid::now_v7())).collect(),
            ids: GenerationIds::default(),
        }
    }

    /// Performs a step; `picked` is its generation. Returns the outcome, and the generation that
    /// was created.
    pub async fn run(
        &self,
        cast: &Cast,
        step: &Step,
        picked: Option<Opening>,
        most: i32,
        now: DateTime<Utc>,
    ) -> (Verdict, Option<Opening>) {
        let verdict = match *step {
            Step::Open {
                key,
                server,
                amount,
                bind,
            } => return self.open(cast, key, server, amount, bind, most, now).await,
            Step::Settle {
                server, charge, by, ..
            } => match picked {
                Some(opening) => self.finish(opening, server, charge, by, now).await,
                None => Verdict::Nothing,
            },
            Step::Move {
                account,
                server,
                kind,
                amount,
                reference,
            } => {
                let what = match kind {
                    Kind::Grant => Move::Grant(micros(amount)),
                    Kind::Adjustment => Move::Adjustment(micros(amount)),
                };
                let account = cast.accounts[account];
                self.move_credits(server, account, what, reference, now)
                    .await
            }
            Step::Refund {
                server,
                amount,
                reference,
                ..
            } => match picked {
                Some(opening) => {
                    let what = Move::Refund {
                        generation: opening.id,
                        amount: amount.map(micros),
                    };
                    let account = self.stores[server].account_of(opening.id).await.unwrap();
                    self.move_credits(server, account.unwrap(), what, Some(reference), now)
                        .await
                }
                None => Verdict::Nothing,
            },
            Step::Revoke { key, server } => {
                let account = cast.accounts[cast.model.keys[key].account];
                let revoking = self.stores[server].revoke_key(account, cast.keys[key], now);
                assert!(revoking.await.unwrap().unwrap().revoked_at.is_some());
                Verdict::Nothing
            }
            Step::Suspend {
                account,
                server,
                suspended,
            } => {
                let account = cast.accounts[account];
                let done = self.stores[server].set_suspended(account, suspended, None, now);
                assert!(done.await.unwrap().is_some());
                Verdict::Nothing
            }
            Step::Wait { .. } => Verdict::Nothing,
        };
        (verdict, None)
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a step")]
    async fn open(
        &self,
        cast: &Cast,
        key: usize,
        server: usize,
        amount: i64,
        bind: Option<u8>,
        most: i32,
        now: DateTime<Utc>,
    ) -> (Verdict, Option<Opening>) {
        let new = NewGeneration {
            id: self.ids.next(now),
            account_id: cast.accounts[cast.model.keys[key].account],
            credential: Credential::ApiKey(cast.keys[key]),
            // Of half of them the key is looked at by the hold alone.
            presumed: (amount % 2 == 0).then(|| presumed(cast, key).into()),
            modality: Modality::Text,
            surface: Surface::Generate,
            provider: "sandbox".to_owned(),
            model: "m".to_owned(),
            prompt: "x".to_owned(),
            system_prompt: None,
            negative_prompt: None,
            template: None,
            parameters: json!({}),
            pricing: json!({}),
            hold: micros(amount),
            streamed: false,
            instance: Some(self.instances[server]),
            deadline: None,
            status: Status::Processing,
            job: true,
            max_jobs: most,
            idempotency: bind.map(|bind| Idempotency {
                key: format!("k{bind}"),
                fingerprint: [bind; 32],
                expires_at: now + TimeDelta::days(1),
                attempt: None,
            }),
            route: None,
            now,
        };
        let caller = Arc::new(());
        let verdict = match self.stores[server]
            .hold(&new, &Arc::downgrade(&caller))
            .await
            .unwrap()
        {
            HoldOutcome::Held => {
                let opening = Opening {
                    id: new.id,
                    account: new.account_id,
                    server,
                    hold: amount,
                };
                return (Verdict::Held, Some(opening));
            }
            HoldOutcome::KeyBound => Verdict::KeyBound,
            HoldOutcome::CredentialEnded | HoldOutcome::NotAsPresumed => Verdict::Ended,
            HoldOutcome::RateLimited(rate) => panic!("{rate:?}"),
            HoldOutcome::Abandoned => panic!("its caller is there"),
            HoldOutcome::Suspended => Verdict::Suspended,
            HoldOutcome::TooManyJobs => Verdict::TooMany,
            HoldOutcome::SpendLimit(SpendLimit { limit, spent, .. }, _) => {
                Verdict::Capped(limit.micros(), spent.micros())
            }
            HoldOutcome::Short(balance) => short(balance),
        };
        (verdict, None)
    }

    async fn finish(
        &self,
        opening: Opening,
        server: usize,
        charge: Option<u8>,
        by: By,
        now: DateTime<Utc>,
    ) -> Verdict {
        let outcome = match charge {
            Some(part) => Outcome::Completed(Completion {
                result: Some("x".to_owned()),
                outputs: Vec::new(),
                answer: None,
                usage: json!({"input_tokens": 1}),
                list_cost: None,
                charged: micros(part_of(opening.hold, part)),
                finish_reason: None,
                receipt: None,
            }),
            None => Outcome::Failed(Failure::new(FailureCode::Cancelled, "x")),
        };
        let settlement = Settlement {
            id: opening.id,
            account_id: opening.account,
            instance: match by {
                By::Worker => Some(self.instances[opening.server]),
                By::Stranger => Some(self.instances[(opening.server + 1) % SERVERS]),
                By::Anyone => None,
            },
            outcome,
            attempts: Some(1),
            provider_request_id: None,
            now,
        };
        match self.stores[server].settle(&settlement).await {
            Ok(ended) => Verdict::Finished(ended.is_some()),
            Err(StoreError::Constraint(..)) => Verdict::Impossible,
            Err(error) => panic!("{error}"),
        }
    }

    async fn move_credits(
        &self,
        server: usize,
        account: AccountId,
        what: Move,
        reference: Option<u8>,
        now: DateTime<Utc>,
    ) -> Verdict {
        let reference = reference.map(|r| format!("r{r}"));
        let new = NewMove {
            account,
            what,
            reference: reference.as_deref(),
            now,
        };
        match self.stores[server].move_credits(&new).await.unwrap() {
            Moved::Done(_) => Verdict::Moved,
            Moved::Repeated(entry) => Verdict::Repeated(entry.amount.micros()),
            Moved::ReferenceUsed(entry) => Verdict::ReferenceUsed(entry.amount.micros()),
            Moved::Short(balance) => short(balance),
            Moved::Refunded(entry) => Verdict::Before(entry.amount.micros()),
            Moved::AboveCharge(_) => Verdict::TooMuch,
            Moved::NotCharged => Verdict::NotCharged,
            Moved::NoAccount | Moved::NoGeneration => panic!("{what:?}: it is gone"),
        }
    }

    /// The database matches the model, and the invariants hold.
    pub async fn assert_agrees(&self, cast: &Cast, model: &Model, now: DateTime<Utc>) {
        for (id, account) in cast.accounts.iter().zip(&model.accounts) {
            let (balance, jobs) = self.stores[0].balance_and_jobs(*id).await.unwrap();
            assert_eq!(
                (balance.balance.micros(), balance.held.micros(), jobs),
                (account.balance, account.held, account.unfinished),
                "balance, held and unfinished of {id}"
            );
            assert!(0 <= account.held && account.held <= account.balance);
        }
        for (id, key) in cast.keys.iter().zip(&model.keys) {
            let account = cast.accounts[key.account];
            let record = self.stores[0].key(account, *id, now).await.unwrap();
            assert_eq!(
                record.unwrap().spent.micros(),
                key.spent_at(now),
                "spent by {id}"
            );
            let limit = key.limit.unwrap_or(i64::MAX);
            assert!(key.spent.values().all(|spent| (0..=limit).contains(spent)));
        }
    }

    /// Neither audit finds anything.
    pub async fn assert_verified(&self) {
        for scope in [Scope::SinceLast, Scope::Whole] {
            let audit = self.stores[0].verify_ledger(scope).await.unwrap();
            assert_eq!(audit.differences, Vec::<String>::new(), "{scope:?}");
        }
    }
}

fn short(balance: Balance) -> Verdict {
    Verdict::Short(balance.balance.micros(), balance.held.micros())
}

/// A key as it was before anything ended it.
fn presumed(cast: &Cast, key: usize) -> Presumed {
    let rate = RateState {
        limit: MAX_PER_MINUTE,
        remaining: 0,
        reset_seconds: 0,
        retry_after_seconds: None,
    };
    let read = AuthenticatedKey {
        id: cast.keys[key],
        account_id: cast.accounts[cast.model.keys[key].account],
        abilities: Abilities::all(),
        version: 0,
        expires_at: None,
        revoked: false,
        suspended: false,
        spend_limit: None,
        rate: Some(rate),
        defaults: json!({}),
    };
    Presumed::new(TokenDigest([0; 32]), Arc::new(read)).unwrap()
}
