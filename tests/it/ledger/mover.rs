//! Moves an account's credits below the API.

use std::sync::Arc;

use gensvc::{
    domain::{
        credits::Credits,
        generation::{Failure, FailureCode, Modality, Status, Surface},
        ids::{AccountId, ApiKeyId, GenerationId, GenerationIds, InstanceId},
    },
    store::{
        Store,
        credits::{Move, Moved, NewMove},
        generations::{Completion, Credential, HoldOutcome, NewGeneration, Outcome, Settlement},
    },
};
use serde_json::json;

use crate::common::{Account, TestApp};

pub fn micros(amount: i64) -> Credits {
    Credits::from_micros(amount)
}

/// A result that costs that much.
pub fn completed(charge: i64) -> Outcome {
    Outcome::Completed(Completion {
        result: Some("x".to_owned()),
        outputs: Vec::new(),
        answer: None,
        usage: json!({}),
        list_cost: None,
        charged: micros(charge),
        finish_reason: None,
        receipt: None,
    })
}

/// What a test needs to move an account's credits below the API.
#[derive(Clone)]
pub struct Mover {
    pub store: Store,
    account: AccountId,
    credential: Credential,
    instance: InstanceId,
    now: chrono::DateTime<chrono::Utc>,
}

impl Mover {
    pub async fn new(app: &TestApp, account: &Account) -> Self {
        let key: i64 = sqlx::query_scalar("select id from api_keys where account_id = $1")
            .bind(account.id.0)
            .fetch_one(&app.pool)
            .await
            .unwrap();
        Self {
            store: app.store.clone(),
            account: account.id,
            credential: Credential::ApiKey(ApiKeyId(key)),
            instance: app.app.runner.instance(),
            now: app.now(),
        }
    }

    fn generation(&self, hold: i64) -> NewGeneration {
        NewGeneration {
            id: GenerationIds::default().next(self.now),
            account_id: self.account,
            credential: self.credential,
            presumed: None,
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
            hold: micros(hold),
            streamed: false,
            instance: Some(self.instance),
            deadline: None,
            status: Status::Processing,
            job: true,
            max_jobs: i32::MAX,
            idempotency: None,
            route: None,
            now: self.now,
        }
    }

    /// Holds; `None` when too little is available.
    pub async fn hold(&self, amount: i64) -> Option<GenerationId> {
        let new = self.generation(amount);
        let caller = Arc::new(());
        match self
            .store
            .hold(&new, &Arc::downgrade(&caller))
            .await
            .unwrap()
        {
            HoldOutcome::Held => Some(new.id),
            HoldOutcome::Short(balance) => {
                assert!(balance.available() < micros(amount), "{balance:?} {amount}");
                None
            }
            other => panic!("{other:?}"),
        }
    }

    /// Charges, or releases where `charge` is `None`. Returns whether this call ended it.
    pub async fn finish(&self, id: GenerationId, charge: Option<i64>) -> bool {
        let outcome = match charge {
            Some(amount) => completed(amount),
            None => Outcome::Failed(Failure::new(FailureCode::Cancelled, "x")),
        };
        let settlement = Settlement {
            id,
            account_id: self.account,
            // A cancel may come from anywhere.
            instance: charge.map(|_| self.instance),
            outcome,
            attempts: Some(1),
            provider_request_id: None,
            now: self.now,
        };
        self.store.settle(&settlement).await.unwrap().is_some()
    }

    /// Grants or adjusts. Returns whether it was carried out.
    pub async fn adjust(&self, what: fn(Credits) -> Move, amount: i64) -> bool {
        self.make(what(micros(amount))).await
    }

    /// Refunds that much of a charge. Returns whether it was carried out.
    pub async fn refund(&self, generation: GenerationId, amount: i64) -> bool {
        let amount = Some(micros(amount));
        self.make(Move::Refund { generation, amount }).await
    }

    async fn make(&self, what: Move) -> bool {
        let moved = self
            .store
            .move_credits(&NewMove {
                account: self.account,
                what,
                reference: None,
                now: self.now,
            })
            .await
            .unwrap();
        matches!(moved, Moved::Done(_))
    }

    /// Balance and held, in micro-credits.
    pub async fn balance_and_unfinished(&self) -> (i64, i64) {
        let balance = self.store.balance(self.account).await.unwrap();
        (balance.balance.micros(), balance.held.micros())
    }
}
