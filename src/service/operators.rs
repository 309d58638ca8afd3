//! The operator's reports over all accounts, and the list of operators.

use chrono::{DateTime, Utc};

use super::{Result, Service};
use crate::{
    domain::{
        ids::{AccountId, UserId},
        limiter::Limiter,
        party::Party,
    },
    jobs::Circuit,
    store::operators::{ModelHealth, ProviderErrors, Spending, SpendingBy, SpendingSums},
};

/// Generations from which the health of models and providers is computed.
const RECENT: i64 = 5_000;
/// Maximum rows of a report.
pub const ROWS: i64 = 100;

/// Concurrent calls of this server to a provider, and their maximum; `None` without a limit.
#[derive(Debug)]
pub struct ProviderCalls {
    pub provider: String,
    pub limit: Option<usize>,
    pub in_use: Option<usize>,
}

impl Service {
    /// Grants or revokes the role of an operator.
    pub async fn set_operator(&self, user: UserId, operator: bool) -> Result<()> {
        let now = self.0.clock.now();
        Ok(self.0.store.set_operator(user, operator, now).await?)
    }

    /// Returns the running calls of each provider, and the outcomes of the last generations of all
    /// servers by model and by error.
    pub async fn provider_health(
        &self,
    ) -> Result<(Vec<ProviderCalls>, Vec<ModelHealth>, Vec<ProviderErrors>)> {
        let _permit = self.report_permit(Party::Operator).await?;
        let health = self.0.store.model_health(RECENT, None).await?;
        let errors = self.0.store.provider_errors(RECENT).await?;
        let providers = self.catalogue().providers(None).into_iter();
        let calls = providers.map(|name| {
            let limiter = self.0.providers.limiters.get(name);
            let in_use =
                |limiter: &Limiter<AccountId>| limiter.total().saturating_sub(limiter.free());
            ProviderCalls {
                provider: name.to_owned(),
                limit: limiter.map(Limiter::total),
                in_use: limiter.map(in_use),
            }
        });
        Ok((calls.collect(), health, errors))
    }

    /// The models that this server skips where a request has other candidates.
    pub fn open_circuits(&self) -> Vec<Circuit> {
        self.0.runner.open_circuits()
    }

    /// Spending on the days from `from` to before `to`, and its sum.
    pub async fn spending(
        &self,
        by: SpendingBy,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
    ) -> Result<(Vec<Spending>, SpendingSums)> {
        let _permit = self.report_permit(Party::Operator).await?;
        let most = (by == SpendingBy::Account).then_some(ROWS);
        Ok(self.0.store.spending(by, from, to, most).await?)
    }
}
