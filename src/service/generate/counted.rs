//! Asks vendors for token counts: for requests to count tokens, and before the hold of dialogues
//! with PDFs, which only vendors can count.

use std::time::Duration;

use tokio::time::timeout;

use super::refusal::{above_available, above_spend_limit};
use crate::{
    catalogue::{Model, TextModel},
    domain::{
        context::ContextOverflow,
        generation::Surface,
        pricing::{Ceiling, TextCeiling},
    },
    providers::{ProviderError, ProviderErrorKind, TextCall},
    service::{Result, Service, ServiceError, auth::Caller},
};

/// Maximum time of a count, including the wait for a permit.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// Margin added to a count, which vendors call an estimate: a fraction of the count, plus tokens.
const MARGIN_PART: u64 = 16;
const MARGIN: u64 = 1_024;

/// Returns the refusal of a request whose input was not counted in time.
pub(super) fn too_late() -> ServiceError {
    let error = ProviderError::new(ProviderErrorKind::Timeout, "no count in time");
    ServiceError::NotCounted(Box::new(error))
}

impl Service {
    /// Asks the vendor for the input tokens of a confirmed caller's call, if the account can pay
    /// for `least`. Returns the count plus a margin.
    pub(super) async fn counted_input(
        &self,
        caller: &Caller,
        model: &Model,
        text: &TextModel,
        surface: Surface,
        call: &TextCall,
        least: TextCeiling,
    ) -> Result<u64> {
        let least_tokens = least.input_tokens;
        let counted = self.vendor_count(caller, model, surface, call, least, true);
        let counted = counted.await.inspect_err(|error| {
            tracing::warn!(provider = model.provider, model = model.id, %error, "input was not counted");
        })?;
        if let Some(maximum) = text.limits.max_input_tokens.map(u64::from)
            && counted > maximum
        {
            let overflow = ContextOverflow::default().or(Some(maximum), counted);
            return Err(ServiceError::ContextLength(overflow));
        }
        let most = counted + counted / MARGIN_PART + MARGIN;
        Ok(text.taken_input(most.max(least_tokens)))
    }

    /// Like [`Self::counted_input`], without the margin and the model's maximum. `waits`: whether
    /// to wait for a place among the provider's calls.
    pub(super) async fn vendor_count(
        &self,
        caller: &Caller,
        model: &Model,
        surface: Surface,
        call: &TextCall,
        least: TextCeiling,
        waits: bool,
    ) -> Result<u64> {
        self.check_affordable(caller, surface, &Ceiling::Text(least))
            .await?;
        let providers = &self.0.providers;
        let Some(provider) = providers.text.get(&model.provider) else {
            let message = format!("there is no provider {}", model.provider);
            return Err(ServiceError::Internal(message));
        };
        let counting = async {
            let (provider_name, account) = (&model.provider, caller.account_id);
            let permit = if waits {
                providers.acquire(provider_name, account).await
            } else {
                providers.try_acquire(provider_name, account)
            };
            let _permit = permit.ok_or_else(|| {
                ProviderError::new(ProviderErrorKind::Overloaded, "too many calls wait")
            })?;
            provider.count_input(call).await
        };
        match timeout(TIMEOUT, counting).await {
            Ok(counted) => counted.map_err(|error| ServiceError::NotCounted(Box::new(error))),
            Err(_elapsed) => Err(too_late()),
        }
    }

    /// Refuses a request that would exceed the balance even without other holds, before a vendor is
    /// called.
    async fn check_affordable(
        &self,
        caller: &Caller,
        surface: Surface,
        ceiling: &Ceiling,
    ) -> Result<()> {
        let (balance, cap) = self.spendable_balance(caller).await?;
        let required = ceiling.hold();
        match cap {
            Some(cap) if !cap.has_room_for(required) => {
                Err(above_spend_limit(required, cap, balance, ceiling, surface))
            }
            _ if balance.balance < required => Err(above_available(required, balance, ceiling)),
            _ => Ok(()),
        }
    }
}
