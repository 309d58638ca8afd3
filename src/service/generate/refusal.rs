//! Reasons for the refusal of a request, in the documented order.

use super::{IdempotentRequest, Prepared, Submitted};
use crate::{
    service::{Result, Service, ServiceError, TokenRefusal, auth::Caller, explain},
    store::generations::HoldOutcome,
};

impl Service {
    /// Refuses a request that cannot be called now with `error`. If its provider is at fault and the
    /// caller could not pay, the error says that instead, since waiting would not help.
    pub(super) async fn not_now(
        &self,
        caller: &Caller,
        plan: &Prepared<'_>,
        idempotent: Option<&IdempotentRequest>,
        error: ServiceError,
    ) -> Result<Submitted> {
        // A concurrent request with the same key may have been first.
        if let Some(before) = self.submitted_before(caller, idempotent).await? {
            return Ok(before);
        }
        if !matches!(error, ServiceError::TooManyRequests(_)) {
            self.check_spendable(caller, plan).await?;
        }
        self.0.refusals.log(caller.account_id.into());
        Err(error)
    }

    /// Refuses a request whose hold or job exceeds the account's limits now.
    pub(super) async fn check_spendable(&self, caller: &Caller, plan: &Prepared<'_>) -> Result<()> {
        let (_, jobs) = self.0.store.balance_and_jobs(caller.account_id).await?;
        self.check_jobs(plan, jobs)?;
        let (balance, cap) = self.spendable_balance(caller).await?;
        let (hold, surface) = (plan.work.new.hold, plan.work.new.surface);
        let short = match cap {
            Some(cap) if cap.left() < hold => {
                explain::above_spend_limit(hold, cap, balance, plan.dearest(), surface)
            }
            _ if balance.available() < hold => {
                explain::above_available(hold, balance, plan.dearest())
            }
            _ => return Ok(()),
        };
        Err(ServiceError::CreditsShort(Box::new(short)))
    }

    pub(super) fn check_jobs(&self, plan: &Prepared<'_>, jobs: i32) -> Result<()> {
        let most = self.0.settings.max_jobs_per_account;
        if plan.work.new.job && jobs >= most {
            return Err(ServiceError::TooManyJobs(most));
        }
        Ok(())
    }

    pub(super) async fn refused(
        &self,
        caller: &Caller,
        plan: &Prepared<'_>,
        why: HoldOutcome,
        idempotent: Option<&IdempotentRequest>,
    ) -> Result<Submitted> {
        let (ceiling, surface) = (plan.dearest(), plan.work.new.surface);
        let hold = plan.work.new.hold;
        let short = match why {
            HoldOutcome::SpendLimit(cap, balance) => {
                explain::above_spend_limit(hold, cap, balance, ceiling, surface)
            }
            HoldOutcome::Short(balance) => explain::above_available(hold, balance, ceiling),
            HoldOutcome::KeyBound => {
                // A concurrent request with the same key, or another attempt, was first.
                let mut before = self.submitted_before(caller, idempotent).await?;
                if let (None, Some(request)) = (&before, idempotent) {
                    before = self.replaced_by(caller, request).await?;
                }
                return before.ok_or(ServiceError::IdempotencyInProgress);
            }
            HoldOutcome::NotAsPresumed => return Err(ServiceError::NotAsPresumed),
            HoldOutcome::RateLimited(rate) => {
                caller.forget_key();
                return Err(ServiceError::RateLimited(rate));
            }
            HoldOutcome::CredentialEnded => {
                let is_past = caller.expires_at.is_some_and(|at| at <= self.0.clock.now());
                return Err(match caller.user_id {
                    None if is_past => ServiceError::Token(TokenRefusal::Expired),
                    _ => caller.ended(),
                });
            }
            HoldOutcome::Suspended => return Err(ServiceError::Suspended),
            HoldOutcome::TooManyJobs => {
                let most = self.0.settings.max_jobs_per_account;
                return Err(ServiceError::TooManyJobs(most));
            }
            HoldOutcome::Held | HoldOutcome::Abandoned => {
                let message = "a hold was both placed and refused".to_owned();
                return Err(ServiceError::Internal(message));
            }
        };
        Err(ServiceError::CreditsShort(Box::new(short)))
    }
}
