//! Models and their prices as numbers, which rows refer to.

use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use super::{NewGeneration, Result, Store};
use crate::domain::generation::Modality;

/// The numbers that this process knows: those of its catalogue, once each was used. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Prices(Arc<RwLock<Vec<Known>>>);

#[derive(Debug)]
struct Known {
    modality: Modality,
    provider: String,
    model: String,
    pricing: Value,
    number: PriceId,
}

/// A row of `prices`, and the model's.
#[derive(Debug, Clone, Copy)]
pub struct PriceId {
    pub model: i32,
    pub price: i32,
}

/// A model with its prices.
#[derive(Debug, Clone, Copy)]
pub struct Priced<'a> {
    pub modality: Modality,
    pub provider: &'a str,
    pub model: &'a str,
    pub pricing: &'a Value,
}

impl<'a> Priced<'a> {
    pub(super) fn of(new: &'a NewGeneration) -> Self {
        Self {
            modality: new.modality,
            provider: &new.provider,
            model: &new.model,
            pricing: &new.pricing,
        }
    }
}

impl Prices {
    /// For a database that may have lost its last rows.
    pub fn forget(&self) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.clear();
    }

    fn find(&self, priced: &Priced<'_>) -> Option<PriceId> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let same = |known: &&Known| {
            known.model == priced.model
                && known.provider == priced.provider
                && known.modality == priced.modality
                && known.pricing == *priced.pricing
        };
        known.iter().find(same).map(|known| known.number)
    }
}

impl Store {
    /// The numbers of a model and its price, made where it is the first of them.
    pub(super) async fn price(&self, new: Priced<'_>) -> Result<PriceId> {
        if let Some(number) = self.prices.find(&new) {
            return Ok(number);
        }
        sqlx::query!(
            "insert into models (type, provider, name) values ($1, $2, $3) on conflict do nothing",
            new.modality.as_str(),
            new.provider,
            new.model,
        )
        .execute(self.requests.named("store a model"))
        .await?;
        let number = sqlx::query_as!(
            PriceId,
            r#"with model as (
                 select id from models where type = $1 and provider = $2 and name = $3
             ), made as (
                 insert into prices (model_id, pricing) select id, $4 from model
                 on conflict (model_id, pricing) do update set pricing = excluded.pricing
                 returning id, model_id
             )
             select model_id as model, id as price from made"#,
            new.modality.as_str(),
            new.provider,
            new.model,
            new.pricing,
        )
        .fetch_one(self.requests.named("store a price"))
        .await?;
        let mut known = self
            .prices
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        known.push(Known {
            modality: new.modality,
            provider: new.provider.to_owned(),
            model: new.model.to_owned(),
            pricing: new.pricing.clone(),
            number,
        });
        Ok(number)
    }
}
