//! Records of generations as the statements leave them, without reading them again.

use super::{Credential, NewGeneration, Outcome, SettledRow, Settlement};
use crate::domain::{
    credits::Credits,
    generation::{Generation, Status},
    pricing::LIST,
};

impl NewGeneration {
    /// The record as the statement creates it.
    pub fn record(&self) -> Generation {
        let prices = self.pricing.as_object().into_iter().flatten();
        let prices = prices.filter(|(name, _)| *name != LIST);
        Generation {
            id: self.id,
            account_id: self.account_id,
            modality: self.modality,
            surface: self.surface,
            status: self.status,
            provider: self.provider.clone(),
            model: self.model.clone(),
            prompt: self.prompt.clone(),
            parameters: self.parameters.clone(),
            result: None,
            outputs: Vec::new(),
            progress: None,
            usage: None,
            estimated: self.hold,
            charged: None,
            failure: None,
            finish_reason: None,
            answer: None,
            api_key_id: match self.credential {
                Credential::ApiKey(id) => Some(id),
                Credential::Session(_) => None,
            },
            template: self.template,
            pricing: prices
                .map(|(name, price)| (name.clone(), price.clone()))
                .collect(),
            attempts: 0,
            provider_request_id: None,
            joined: 0,
            route: self.route.as_ref().map(|route| Box::new(route.record())),
            created_at: self.now,
            started_at: self.instance.map(|_| self.now),
            completed_at: None,
        }
    }

    /// The record once it is settled.
    pub fn settled_record(&self, settlement: Settlement, settled: SettledRow) -> Generation {
        let record = Generation {
            estimated: settled.estimated,
            attempts: settled.attempts,
            provider_request_id: settlement.provider_request_id.or(settled.remote_id),
            started_at: Some(settled.started_at),
            completed_at: Some(settled.completed_at),
            joined: settled.joined.unwrap_or(0),
            ..self.record()
        };
        match settlement.outcome {
            Outcome::Completed(completion) => Generation {
                status: Status::Completed,
                result: completion.result,
                outputs: completion.outputs,
                usage: Some(completion.usage),
                charged: Some(completion.charged),
                finish_reason: completion.finish_reason,
                answer: completion.answer,
                ..record
            },
            Outcome::Failed(failure) => Generation {
                status: Status::Failed,
                charged: Some(Credits::ZERO),
                failure: Some(failure),
                ..record
            },
        }
    }
}
